//! What lies outside the box stays out of reach. Every attack has a target that exists.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use sandbox::Isolation;

use crate::support::{every_kind, strongest};

/// Defines `refused(action)`, which prints what became of an attack.
const REFUSED: &str = "\
import os
def refused(name, action):
    try: result = action()
    except OSError as error: pass
    else: print(name, 'succeeded:', str(result)[:200])
";

fn literal(path: &Path) -> String {
    format!("{:?}", path.to_str().unwrap())
}

#[tokio::test]
async fn files_of_the_machine_are_unreadable() {
    let secret = tempfile::tempdir().unwrap();
    let planted = secret.path().join("planted");
    std::fs::write(&planted, "the answer is 42").unwrap();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let home = std::env::var("HOME").unwrap();
    let own_environment = format!("/proc/{}/environ", std::process::id());
    let files = [
        planted.as_path(),
        Path::new("/etc/passwd"),
        Path::new("/proc/1/status"),
        Path::new(&own_environment),
        Path::new("/proc/self/mountinfo"),
        &repository.join("Cargo.toml"),
    ];
    let directories = [
        secret.path(),
        Path::new("/"),
        Path::new("/proc"),
        Path::new(&home),
        repository,
    ];
    let mut code = REFUSED.to_owned();
    for file in files {
        assert!(
            std::fs::read(file).is_ok(),
            "{} is no target",
            file.display()
        );
        let path = literal(file);
        code.push_str(&format!(
            "refused({path}, lambda: open({path}, 'rb').read())\n"
        ));
        code.push_str(&format!(
            "refused('descriptor', lambda: os.open({path}, os.O_RDONLY))\n"
        ));
    }
    for directory in directories {
        assert!(
            std::fs::read_dir(directory).is_ok(),
            "{} is no target",
            directory.display()
        );
        let path = literal(directory);
        code.push_str(&format!("refused({path}, lambda: os.listdir({path}))\n"));
    }
    // Around the corner.
    let path = literal(&planted);
    code.push_str(&format!("os.symlink({path}, 'link')\n"));
    code.push_str("refused('symbolic link', lambda: open('link').read())\n");
    code.push_str(&format!(
        "refused('hard link', lambda: os.link({path}, 'hard'))\n"
    ));
    // A fork server's programs may list the directory that holds nothing but their own.
    code.push_str(
        "refused('parent', lambda: set(os.listdir('..')) - {os.path.basename(os.getcwd())} \
         or os.stat('/none'))\n",
    );
    for test in every_kind().await {
        assert_eq!(test.output(&code).await, "", "{:?}", test.isolation());
    }
}

#[tokio::test]
async fn a_planted_answer_is_found_nowhere() {
    let needle = format!("planted-answer-{}", std::process::id());
    let roots = [
        tempfile::tempdir().unwrap(),
        tempfile::tempdir_in("/var/tmp").unwrap(),
    ];
    for root in &roots {
        std::fs::write(root.path().join(&needle), &needle).unwrap();
    }
    let test = strongest().await;
    std::fs::write(test.root.path().join(&needle), &needle).unwrap();
    std::fs::write(test.root.path().join("scratch").join(&needle), &needle).unwrap();
    // The needle is put together inside, so that the program does not find its own source.
    let code = format!(
        "import os, sys\nneedle = 'planted-' + 'answer-{}'\nseen = 0\n\
         for top in ('/', '..', '/opt', '/srv', '/tmp', '/var/tmp', {}):\n\
         \x20   for directory, _, names in os.walk(top):\n\
         \x20       for name in names:\n\
         \x20           seen += 1\n\
         \x20           if needle in name: print('found', directory, name)\n\
         print(any(needle in text for text in [*os.environ.values(), *sys.orig_argv]))\n",
        std::process::id(),
        literal(test.root.path()),
    );
    assert_eq!(test.output(&code).await, "False\n");
}

#[tokio::test]
async fn existence_is_hidden_by_a_private_file_system() {
    let test = strongest().await;
    if !matches!(
        test.isolation(),
        Isolation::FreshUser | Isolation::UserNamespace
    ) {
        eprintln!("SKIPPED: no private file system here");
        return;
    }
    let code = "import os\nprint([p for p in ('/etc/passwd', '/proc', '/sys', '/home', '/root/.ssh', \
                '/var') if os.path.exists(p)])";
    assert_eq!(test.output(code).await, "[]\n");
}

#[tokio::test]
async fn nothing_outside_can_be_changed() {
    for test in every_kind().await {
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        std::fs::write(&victim, "intact").unwrap();
        let (path, directory) = (literal(&victim), literal(outside.path()));
        let before = std::fs::metadata(&victim).unwrap();
        let code = format!(
            "{REFUSED}v, d = {path}, {directory}\n\
             refused('write', lambda: open(v, 'w'))\n\
             refused('append', lambda: open(v, 'a'))\n\
             refused('create', lambda: open(d + '/new', 'x'))\n\
             refused('truncate', lambda: os.truncate(v, 0))\n\
             refused('unlink', lambda: os.unlink(v))\n\
             refused('rename', lambda: os.rename(v, d + '/other'))\n\
             refused('move in', lambda: os.rename(v, 'stolen'))\n\
             refused('mkdir', lambda: os.mkdir(d + '/new'))\n\
             refused('symlink', lambda: os.symlink('/', d + '/new'))\n\
             refused('chmod', lambda: os.chmod(v, 0))\n\
             refused('chown', lambda: os.chown(v, 0, 0))\n\
             refused('times', lambda: os.utime(v, (0, 0)))\n\
             refused('attribute', lambda: os.setxattr(v, 'user.x', b'1'))\n\
             for place in ('/', '/usr/lib', '/tmp/..', os.path.dirname(os.__file__)):\n\
             \x20   refused(place, lambda: open(place + '/planted', 'w'))\n"
        );
        assert_eq!(test.output(&code).await, "", "{:?}", test.isolation());
        let after = std::fs::metadata(&victim).unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "intact");
        assert_eq!(before.permissions(), after.permissions());
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}

#[tokio::test]
async fn the_network_is_out_of_reach() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    std::net::TcpStream::connect(("127.0.0.1", port)).expect("the target listens");
    let name = format!("box-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract_socket = UnixListener::bind_addr(&address).unwrap();
    let code = format!(
        "{REFUSED}import socket as s\n\
         refused('tcp', lambda: s.create_connection(('127.0.0.1', {port}), 2))\n\
         refused('udp', lambda: s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9)))\n\
         refused('tcp6', lambda: s.socket(s.AF_INET6, s.SOCK_STREAM).connect(('::1', {port})))\n\
         refused('listen', lambda: s.create_server(('127.0.0.1', 0)))\n\
         refused('dns', lambda: s.getaddrinfo('example.com', 80))\n\
         refused('localhost', lambda: s.gethostbyname('localhost'))\n\
         refused('abstract', lambda: s.socket(s.AF_UNIX).connect('\\0{name}'))\n\
         refused('netlink', lambda: s.socket(s.AF_NETLINK, s.SOCK_RAW))\n\
         refused('packet', lambda: s.socket(s.AF_PACKET, s.SOCK_RAW))\n\
         refused('pair', lambda: s.socketpair(s.AF_UNIX, s.SOCK_DGRAM))\n\
         a, b = s.socketpair()\n\
         a.send(b'own pair'); print(b.recv(20))\n\
         refused('rebind', lambda: a.bind('\\0other'))\n"
    );
    for test in every_kind().await {
        assert_eq!(
            test.output(&code).await,
            "b'own pair'\n",
            "{:?}",
            test.isolation()
        );
    }
}

#[tokio::test]
async fn dangerous_system_calls_fail_with_an_error() {
    // By number: the C library has no function for most. A call by its x32 number is another call
    // to the filter.
    let code = "import ctypes, errno\n\
                libc = ctypes.CDLL(None, use_errno=True)\n\
                for name, number, *arguments in CALLS:\n\
                \x20   ctypes.set_errno(0)\n\
                \x20   result = libc.syscall(number, *(ctypes.c_long(a) for a in arguments))\n\
                \x20   error = errno.errorcode.get(ctypes.get_errno(), 0)\n\
                \x20   if result != -1 or error not in ('EPERM', 'ENOSYS'):\n\
                \x20       print(name, result, error)\n";
    let calls: &[(&str, i64, &[i64])] = &[
        ("ptrace", nix::libc::SYS_ptrace, &[16, 1]),
        ("mount", nix::libc::SYS_mount, &[0, 0, 0, 0, 0]),
        ("umount", nix::libc::SYS_umount2, &[0, 2]),
        ("pivot_root", nix::libc::SYS_pivot_root, &[0, 0]),
        ("chroot", nix::libc::SYS_chroot, &[0]),
        (
            "unshare",
            nix::libc::SYS_unshare,
            &[nix::libc::CLONE_NEWUSER as i64],
        ),
        ("setns", nix::libc::SYS_setns, &[0, 0]),
        (
            "clone with namespaces",
            nix::libc::SYS_clone,
            &[nix::libc::CLONE_NEWUSER as i64 | 17],
        ),
        ("clone3", nix::libc::SYS_clone3, &[0, 0]),
        ("keyctl", nix::libc::SYS_keyctl, &[0, 0]),
        ("add_key", nix::libc::SYS_add_key, &[0, 0, 0, 0, 0]),
        ("io_uring_setup", nix::libc::SYS_io_uring_setup, &[1, 0]),
        ("bpf", nix::libc::SYS_bpf, &[0, 0, 0]),
        (
            "perf_event_open",
            nix::libc::SYS_perf_event_open,
            &[0, 0, -1, -1, 0],
        ),
        ("userfaultfd", nix::libc::SYS_userfaultfd, &[0]),
        ("kexec_load", nix::libc::SYS_kexec_load, &[0, 0, 0, 0]),
        ("reboot", nix::libc::SYS_reboot, &[0, 0, 0, 0]),
        (
            "process_vm_readv",
            nix::libc::SYS_process_vm_readv,
            &[1, 0, 0, 0, 0, 0],
        ),
        ("pidfd_open", nix::libc::SYS_pidfd_open, &[1, 0]),
        ("pidfd_getfd", nix::libc::SYS_pidfd_getfd, &[0, 0, 0]),
        (
            "open_by_handle_at",
            nix::libc::SYS_open_by_handle_at,
            &[0, 0, 0],
        ),
        ("personality", nix::libc::SYS_personality, &[0]),
        ("init_module", nix::libc::SYS_init_module, &[0, 0, 0]),
        ("seccomp", nix::libc::SYS_seccomp, &[0, 0, 0]),
        ("shmget", nix::libc::SYS_shmget, &[0, 4096, 0o1600]),
        ("mq_open", nix::libc::SYS_mq_open, &[0, 0, 0, 0]),
        ("setuid", nix::libc::SYS_setuid, &[0]),
        ("sethostname", nix::libc::SYS_sethostname, &[0, 0]),
        ("future call", 512, &[]),
        #[cfg(target_arch = "x86_64")]
        ("x32 ptrace", 0x4000_0000 + 521, &[16, 1]),
        #[cfg(target_arch = "x86_64")]
        ("x32 socket", 0x4000_0000 + 41, &[2, 1, 0]),
    ];
    let list: Vec<_> = calls
        .iter()
        .map(|(name, number, arguments)| {
            let arguments: String = arguments.iter().map(|a| format!(", {a}")).collect();
            format!("({name:?}, {number}{arguments})")
        })
        .collect();
    let code = code.replace("CALLS", &format!("[{}]", list.join(", ")));
    for test in every_kind().await {
        assert_eq!(test.output(&code).await, "", "{:?}", test.isolation());
    }
}

#[tokio::test]
async fn the_environment_holds_nothing_of_the_parents() {
    let code = "import os; print(sorted(os.environ)); print(os.environ['HOME'] == os.getcwd())";
    for test in every_kind().await {
        assert_eq!(
            test.output(code).await,
            "['HOME', 'LANG', 'MKL_NUM_THREADS', 'NUMEXPR_NUM_THREADS', 'OMP_NUM_THREADS', \
             'OPENBLAS_NUM_THREADS', 'PATH', 'PYTHONHASHSEED', 'TMPDIR']\nTrue\n"
        );
    }
}

#[tokio::test]
async fn open_files_of_the_parent_are_not_inherited() {
    let secret = tempfile::tempfile().unwrap();
    // As a careless C library would leave it.
    fcntl(&secret, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    assert!(secret.as_raw_fd() > 2);
    let code = "import os\nfor number in range(3, 64):\n    \
                try: print(number, os.fstat(number))\n    except OSError: pass";
    for test in every_kind().await {
        assert_eq!(test.output(code).await, "", "{:?}", test.isolation());
    }
}

#[tokio::test]
async fn nothing_in_scratch_can_be_executed() {
    let code = "import os, shutil, sys\n\
                data = open(sys.executable, 'rb').read()\n\
                fd = os.open('copy', os.O_CREAT | os.O_WRONLY, 0o755)\n\
                os.write(fd, data); os.close(fd)\n\
                try: os.execv('./copy', ['copy', '-V'])\n\
                except OSError as error: print(error.strerror)\n";
    for test in every_kind().await {
        assert_eq!(
            test.output(code).await,
            "Permission denied\n",
            "{:?}",
            test.isolation()
        );
    }
}

#[tokio::test]
async fn the_program_has_no_privileges() {
    let code = "import ctypes, os\n\
                libc = ctypes.CDLL(None, use_errno=True)\n\
                print(libc.prctl(39, 0, 0, 0, 0))\n\
                try: os.setuid(0)\nexcept OSError: print('refused')\n\
                try: os.nice(-5)\nexcept OSError: print('refused')\n";
    for test in every_kind().await {
        assert_eq!(
            test.output(code).await,
            "1\nrefused\nrefused\n",
            "{:?}",
            test.isolation()
        );
    }
}
