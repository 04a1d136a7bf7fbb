//! What one program leaves for the next one in the same box, and what a forked program can do to
//! its server.

use super::Attack;
use super::Control::{Breaches, Unchecked};

/// A program that plants something, and one that looks for it afterwards.
pub(super) struct Leak {
    pub(super) name: &'static str,
    pub(super) plant: &'static str,
    pub(super) look: &'static str,
}

const fn leak(name: &'static str, plant: &'static str, look: &'static str) -> Leak {
    Leak { name, plant, look }
}

/// As one program each plants and finds; as two they must not.
pub(super) const LEAKS: &[Leak] = &[
    leak(
        "a file",
        "open('left', 'w').write('x')",
        "breach([n for n in os.listdir() if n != 'main.py'])",
    ),
    leak(
        "a hidden directory",
        "os.mkdir('.h'); os.mkdir('.h/i'); open('.h/i/f', 'w')",
        "breach(os.path.exists('.h'))",
    ),
    leak(
        "a directory without permissions",
        "os.mkdir('sealed', 0)",
        "breach(os.path.exists('sealed'))",
    ),
    leak(
        "a link",
        "os.symlink('/', 'root')",
        "breach(os.path.lexists('root'))",
    ),
    leak(
        "a file in the temporary directory",
        "import tempfile; open(tempfile.gettempdir() + '/left', 'w')",
        "import tempfile; breach([n for n in os.listdir(tempfile.gettempdir()) if n == 'left'])",
    ),
    leak(
        "an open file that was removed",
        "f = open('gone', 'w+'); f.write('x'); f.flush(); os.unlink('gone'); d = os.dup(f.fileno())",
        "breach([n for n in range(3, 64) if is_open(n)])",
    ),
    leak(
        "a variable",
        "planted = 1",
        "breach('planted' in globals())",
    ),
    leak(
        "a builtin",
        "import builtins; builtins.planted = 1",
        "import builtins; breach(hasattr(builtins, 'planted'))",
    ),
    leak(
        "a replaced builtin",
        "import builtins; builtins.len = lambda x: 42",
        "breach(len([]) == 42)",
    ),
    leak(
        "a changed module",
        "import math; math.pi = 3",
        "import math; breach(math.pi == 3)",
    ),
    leak(
        "a planted module",
        "import sys, types; sys.modules['planted'] = types.ModuleType('planted')",
        "import sys; breach('planted' in sys.modules)",
    ),
    leak(
        "the import path",
        "import sys; sys.path.insert(0, '/planted')",
        "import sys; breach('/planted' in sys.path)",
    ),
    leak(
        "an import hook",
        "import sys; sys.meta_path.insert(0, None)",
        "import sys; breach(None in sys.meta_path)",
    ),
    leak(
        "a variable of the environment",
        "os.environ['PLANTED'] = '1'",
        "breach('PLANTED' in os.environ)",
    ),
    leak(
        "the working directory",
        "os.mkdir('d'); os.chdir('d')",
        "breach(os.path.basename(os.getcwd()) == 'd')",
    ),
    leak(
        "the mode for new files",
        "os.umask(0o777)",
        "breach(os.umask(0o022) == 0o777)",
    ),
    leak(
        "a signal handler",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "import signal; breach(signal.getsignal(signal.SIGTERM) == signal.SIG_IGN)",
    ),
    leak(
        "a blocked signal",
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])",
        "import signal; breach(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    ),
    leak(
        "a timer",
        "import signal; signal.setitimer(signal.ITIMER_REAL, 60)",
        "import signal; breach(signal.getitimer(signal.ITIMER_REAL)[0] > 0)",
    ),
    leak(
        "a lower limit",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))",
        "import resource; breach(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 32)",
    ),
    leak(
        "the recursion limit",
        "import sys; sys.setrecursionlimit(200)",
        "import sys; breach(sys.getrecursionlimit() == 200)",
    ),
    leak(
        "a trace function",
        "import sys; sys.setprofile(lambda *a: None)",
        "import sys; breach(sys.getprofile() is not None)",
    ),
    leak(
        "arithmetic precision",
        "import decimal; decimal.getcontext().prec = 3",
        "import decimal; breach(decimal.getcontext().prec == 3)",
    ),
    leak(
        "the state of random numbers",
        "import random; random.seed(1)",
        "import random; breach(random.getrandbits(64) == random.Random(1).getrandbits(64))",
    ),
    leak(
        "a function at exit",
        "import atexit; atexit.register(breach, 'at exit')",
        "pass",
    ),
    leak(
        "a non-blocking output",
        "os.set_blocking(1, False)",
        "breach(not os.get_blocking(1))",
    ),
    leak(
        "a non-blocking input",
        "os.set_blocking(0, False)",
        "breach(not os.get_blocking(0))",
    ),
    leak(
        "a lock on a library",
        "import fcntl; f = open(os.__file__); fcntl.flock(f, fcntl.LOCK_EX)",
        "import fcntl; g = open(os.__file__)\ntry: fcntl.flock(g, fcntl.LOCK_SH | fcntl.LOCK_NB)\nexcept BlockingIOError: breach('locked')",
    ),
    leak(
        "a program's text",
        "text = 'PLANTED-NEEDLE-7f3a'",
        "\
import re
pattern = re.compile(b'PLANTED-NEEDL[E]-7f3a')
LIBC.sbrk.restype = ctypes.c_void_p
seen = ctypes.c_char()
for top, bytes_below, bytes_above in ((id(object()), 4 << 20, 4 << 20), (LIBC.sbrk(0), 8 << 20, 0)):
    top &= ~4095
    for page in range(top - bytes_below, top + bytes_above, 4096):
        if LIBC.mincore(ctypes.c_void_p(page), ctypes.c_size_t(4096), ctypes.byref(seen)) == 0:
            if pattern.search(ctypes.string_at(page, 4096)): breach(hex(page))",
    ),
    leak(
        "the mode of the scratch directory",
        "os.chmod('.', 0o711)",
        "breach(os.stat('.').st_mode & 0o777 == 0o711)",
    ),
];

/// Only where the parent process is a fork server; elsewhere these have another meaning.
pub(super) const ON_THE_SERVER: &[Attack] = &[
    Attack::new(
        "signal the server",
        "os.kill(os.getppid(), 0); breach('reached')",
        Breaches,
    ),
    Attack::new(
        "stop the server",
        "import signal; os.kill(os.getppid(), signal.SIGSTOP); breach('sent')",
        Unchecked("it would stop the test"),
    ),
    Attack::new(
        "kill the server",
        "os.kill(os.getppid(), 9); breach('sent')",
        Unchecked("it would end the test"),
    ),
    Attack::new(
        "kill the server's group",
        "os.killpg(os.getpgid(os.getppid()), 9); breach('sent')",
        Unchecked("it would end the test"),
    ),
    Attack::new(
        "kill everybody",
        "os.kill(-1, 9); breach('sent')",
        Unchecked("it would end the test"),
    ),
    Attack::new(
        "signal the server's thread",
        "call('tgkill', os.getppid(), os.getppid(), 0)",
        Breaches,
    ),
    Attack::new(
        "signal the server by another call",
        "call('tkill', os.getppid(), 0)",
        Breaches,
    ),
    Attack::new(
        "trace the server",
        "call('ptrace', 0x4206, os.getppid(), 0, 0)",
        Unchecked("it would stop the test"),
    ),
    Attack::new(
        "open the server's memory",
        "breach(open(f'/proc/{os.getppid()}/mem', 'rb'))",
        Breaches,
    ),
    Attack::new(
        "read the server's memory by call",
        "call('process_vm_readv', os.getppid(), 0, 0, 0, 0, 0)",
        Breaches,
    ),
    Attack::new(
        "open the server by descriptor",
        "breach(os.pidfd_open(os.getppid()))",
        Breaches,
    ),
    Attack::new(
        "limit the server",
        "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE); breach('read')",
        Breaches,
    ),
    Attack::new(
        "slow the server down",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19); breach('changed')",
        Unchecked("it would slow the test down"),
    ),
    Attack::new(
        "join the server's group",
        "os.setpgid(0, os.getpgid(os.getppid())); breach('joined')",
        Unchecked("it depends on the test's session"),
    ),
    Attack::new(
        "share the server's session",
        "breach(os.getsid(0) != os.getpid())",
        Breaches,
    ),
    Attack::new(
        "use an inherited descriptor",
        "breach([n for n in range(3, 64) if is_open(n)])",
        Unchecked("a control inherits none"),
    ),
    Attack::new(
        "take the filter off before it is on",
        "import gc; breach([o for o in gc.get_objects() if type(o).__name__ == '_Server' and is_open(o.control.fileno() if o.control.fileno() >= 0 else 999)])",
        Unchecked("there is no server outside"),
    ),
    Attack::new(
        "fork like the server",
        "import sys; sys._getframe(); p = os.fork()\nif p == 0: os._exit(0)\nbreach(p)",
        Breaches,
    ),
    Attack::new(
        "stack another filter",
        "call('prctl', 22, 2, 0, 0, 0)",
        Unchecked("without a filter the call fails everywhere"),
    ),
    Attack::new(
        "enter another domain",
        "call('landlock_restrict_self', 0, 0)",
        Unchecked("without a domain the call fails everywhere"),
    ),
    Attack::new(
        "run on in the server's loop",
        "\
import sys
f = sys._getframe()
while f is not None:
    s = f.f_locals.get('self')
    if hasattr(s, 'server'): s.server.send({'ready': {'modules': []}}); breach('sent')
    f = f.f_back",
        Unchecked("there is no server outside"),
    ),
];
