//! System calls that open other ways out, and other processes.

use super::Attack;
use super::Control::{Breaches, BreachesAsRoot, Unchecked};

/// Most of these cannot be shown to work outside: they need arguments that would do harm there. What
/// is shown instead is that the filter refuses them before the kernel looks at the arguments.
const WOULD_HARM: super::Control = Unchecked(
    "with arguments that work it would do harm; the errno tells whether the filter refused it",
);

pub(super) const ATTACKS: &[Attack] = &[
    // Other processes.
    Attack::new(
        "signal a process",
        "os.kill(VICTIM, 0); breach('reached')",
        Breaches,
    ),
    Attack::new(
        "kill a process",
        "os.kill(VICTIM, 9); breach('sent')",
        Unchecked("the victim is needed again"),
    ),
    Attack::new(
        "kill its group",
        "os.killpg(os.getpgid(VICTIM), 0); breach('reached')",
        Breaches,
    ),
    Attack::new(
        "queue a signal",
        "call('rt_sigqueueinfo', VICTIM, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "signal by descriptor",
        "import signal; signal.pidfd_send_signal(os.pidfd_open(VICTIM), 0); breach('reached')",
        Breaches,
    ),
    Attack::new(
        "trace a process",
        "call('ptrace', 16, VICTIM, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "seize a process",
        "call('ptrace', 0x4206, VICTIM, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "be traced by the parent",
        "call('ptrace', 0, 0, 0, 0)",
        Breaches,
    ),
    Attack::new(
        "read a process's memory by call",
        "call('process_vm_readv', VICTIM, 0, 0, 0, 0, 0)",
        Breaches,
    ),
    Attack::new(
        "write a process's memory by call",
        "call('process_vm_writev', VICTIM, 0, 0, 0, 0, 0)",
        Breaches,
    ),
    Attack::new(
        "take a process's descriptor",
        "call('pidfd_getfd', 0, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "advise about another's memory",
        "call('process_madvise', 0, 0, 0, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "compare with a process",
        "call('kcmp', VICTIM, VICTIM, 1, 0, 0)",
        Breaches,
    ),
    Attack::new(
        "change a process's priority",
        "os.setpriority(os.PRIO_PROCESS, VICTIM, 5); breach('changed')",
        Breaches,
    ),
    Attack::new(
        "move a process",
        "os.sched_setaffinity(VICTIM, {0}); breach('changed')",
        Breaches,
    ),
    Attack::new(
        "limit a process",
        "import resource; resource.prlimit(VICTIM, resource.RLIMIT_CORE, (0, 0)); breach('changed')",
        Breaches,
    ),
    Attack::new(
        "outrank everybody",
        "os.nice(-5); breach('raised')",
        BreachesAsRoot,
    ),
    Attack::new(
        "become real-time",
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); breach('changed')",
        BreachesAsRoot,
    ),
    // Identity and namespaces.
    Attack::new(
        "become root",
        "os.setuid(0); os.chroot('/'); breach(os.getuid() == 0)",
        BreachesAsRoot,
    ),
    Attack::new(
        "get privileges back",
        "os.setresuid(0, 0, 0); breach(os.geteuid() == 0)",
        BreachesAsRoot,
    ),
    Attack::new(
        "change groups",
        "os.setgroups([0, 1]); breach(os.getgroups())",
        BreachesAsRoot,
    ),
    Attack::new("set capabilities", "call('capset', 0, 0)", WOULD_HARM),
    Attack::new(
        "enter a user namespace",
        "call('unshare', 0x10000000)",
        Breaches,
    ),
    Attack::new(
        "enter a mount namespace",
        "call('unshare', 0x20000)",
        BreachesAsRoot,
    ),
    Attack::new("join a namespace", "call('setns', 0, 0)", WOULD_HARM),
    Attack::new(
        "clone into a user namespace",
        "call('clone', 0x10000000 | 17, 0, 0, 0, 0)",
        Unchecked("its child would run on in the test"),
    ),
    Attack::new("clone with a structure", "call('clone3', 0, 0)", WOULD_HARM),
    Attack::new(
        "change the root",
        "os.chroot('.'); breach('changed')",
        BreachesAsRoot,
    ),
    Attack::new("mount", "call('mount', 0, 0, 0, 0, 0)", WOULD_HARM),
    Attack::new(
        "mount a file system",
        "breach(LIBC.mount(b'none', b'.', b'tmpfs', 0, None) == 0 and LIBC.umount2(b'.', 2) == 0)",
        BreachesAsRoot,
    ),
    Attack::new("unmount", "call('umount2', 0, 2)", WOULD_HARM),
    Attack::new(
        "open a tree of mounts",
        "call('open_tree', -100, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "make a new kind of mount",
        "call('fsopen', 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "change mount attributes",
        "call('mount_setattr', -100, 0, 0, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new("swap the root", "call('pivot_root', 0, 0)", WOULD_HARM),
    Attack::new(
        "open by handle",
        "call('open_by_handle_at', 0, 0, 0)",
        WOULD_HARM,
    ),
    // Large or young parts of the kernel.
    Attack::new("io_uring", "call('io_uring_setup', 1, 0)", WOULD_HARM),
    Attack::new(
        "io_uring without setting it up",
        "call('io_uring_enter', 0, 1, 1, 0, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "load a program into the kernel",
        "call('bpf', 0, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "measure the machine",
        "call('perf_event_open', 0, 0, -1, -1, 0)",
        WOULD_HARM,
    ),
    Attack::new("handle page faults", "call('userfaultfd', 0)", Breaches),
    Attack::new("use a keyring", "call('keyctl', 0, -3, 1, 0, 0)", Breaches),
    Attack::new("add a key", "call('add_key', 0, 0, 0, 0, 0)", WOULD_HARM),
    Attack::new(
        "ask for a key",
        "call('request_key', 0, 0, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new("load a module", "call('init_module', 0, 0, 0)", WOULD_HARM),
    Attack::new(
        "load another kernel",
        "call('kexec_load', 0, 0, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "restart the machine",
        "call('reboot', 0, 0, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new("swap to a file", "call('swapon', 0, 0)", WOULD_HARM),
    Attack::new("account for processes", "call('acct', 0)", WOULD_HARM),
    Attack::new("set the clock", "call('clock_settime', 0, 0)", WOULD_HARM),
    Attack::new(
        "set the host's name",
        "call('sethostname', 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "change how calls behave",
        "call('personality', 0xffffffff)",
        Breaches,
    ),
    Attack::new("open I/O ports", "call('iopl', 3)", WOULD_HARM),
    Attack::new(
        "read the kernel's log",
        "call('syslog', 10, 0, 0)",
        BreachesAsRoot,
    ),
    Attack::new("watch files", "call('inotify_init1', 0)", Breaches),
    Attack::new(
        "watch everything",
        "call('fanotify_init', 0, 0)",
        BreachesAsRoot,
    ),
    // Sharing with others.
    Attack::new("share memory", "call('shmget', 0, 4096, 0o1600)", Breaches),
    Attack::new(
        "share a semaphore",
        "call('semget', 0, 1, 0o1600)",
        Breaches,
    ),
    Attack::new(
        "open a message queue",
        "call('msgget', 0, 0o1600)",
        Breaches,
    ),
    Attack::new(
        "open a named message queue",
        "call('mq_open', 0, 0, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "keep memory in a file",
        "breach(os.memfd_create('m'))",
        Breaches,
    ),
    Attack::new(
        "keep secret memory",
        "call('memfd_secret', 0)",
        Unchecked("not every kernel has it"),
    ),
    // Around the filter.
    Attack::new(
        "a call the filter does not know",
        "call(512)",
        Unchecked("no such call exists"),
    ),
    Attack::new(
        "an x32 call",
        "call(0x40000000 + 41, 2, 1, 0)",
        Unchecked("few kernels have these calls"),
    ),
    Attack::new(
        "a compatibility call",
        "\
import mmap
code = mmap.mmap(-1, 4096, prot=7)
# mov eax, 20 (getpid of 32 bits); int 0x80; ret
code.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')
f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
breach(f() == os.getpid())",
        Unchecked("only x86 with 32-bit calls has it"),
    ),
    Attack::new("remove the filter", "call('seccomp', 1, 0, 0)", WOULD_HARM),
    Attack::new(
        "replace the filter",
        "breach(LIBC.prctl(22, 1, 0, 0, 0) == 0)",
        Unchecked("the strictest mode would end the control"),
    ),
    Attack::new(
        "gain privileges on execution",
        "breach(LIBC.prctl(39, 0, 0, 0, 0) == 0)",
        Breaches,
    ),
    Attack::new(
        "adopt orphans",
        "breach(LIBC.prctl(36, 1, 0, 0, 0) == 0)",
        Breaches,
    ),
    Attack::new(
        "outlive the parent",
        "breach(LIBC.prctl(1, 0, 0, 0, 0) == 0)",
        Breaches,
    ),
    Attack::new(
        "rewrite its command line",
        "call('prctl', 35, 8, 0, 0, 0)",
        WOULD_HARM,
    ),
    Attack::new(
        "type into the terminal",
        "import fcntl; breach(fcntl.ioctl(1, 0x5412, b'x') == 0 or True)",
        Unchecked("a test has no terminal"),
    ),
    Attack::new(
        "be told of input by signal",
        "import fcntl; fcntl.fcntl(0, fcntl.F_SETOWN, VICTIM); breach('set')",
        Breaches,
    ),
    Attack::new(
        "execute a file of its own",
        "import shutil, sys; shutil.copy(sys.executable, 'py'); os.chmod('py', 0o755); breach(os.spawnv(os.P_WAIT, './py', ['py', '-S', '-c', '']) == 0)",
        Unchecked("a copied interpreter may not find its libraries"),
    ),
    Attack::new(
        "execute a script",
        "fd = os.open('s', os.O_CREAT | os.O_WRONLY, 0o755); os.write(fd, b'#!/bin/sh\\n'); os.close(fd); breach(os.spawnv(os.P_WAIT, './s', ['s']) == 0)",
        Breaches,
    ),
    Attack::new(
        "execute a shell",
        "breach(os.system('true') == 0)",
        Breaches,
    ),
    Attack::new(
        "become a shell",
        "os.execv('/bin/sh', ['sh', '-c', 'echo ' + TOKEN])",
        Breaches,
    ),
    Attack::new(
        "execute by descriptor",
        "call('execveat', -100, 0, 0, 0, 0x1000)",
        WOULD_HARM,
    ),
    Attack::new(
        "start a child",
        "p = os.fork()\nif p == 0: os._exit(0)\nos.waitpid(p, 0); breach(p)",
        Breaches,
    ),
    Attack::new(
        "start a child through a library",
        "import subprocess, sys; breach(subprocess.run([sys.executable, '-S', '-c', '']).returncode == 0)",
        Breaches,
    ),
    Attack::new(
        "start workers",
        "import multiprocessing as m; p = m.get_context('fork').Process(target=print); p.start(); p.join(); breach(p.exitcode == 0)",
        Breaches,
    ),
];
