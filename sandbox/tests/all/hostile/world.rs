//! What there is to attack: every target exists while the attacks run.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::libc;
use tempfile::TempDir;

use crate::support::python;

/// Said by `breach`. It is nowhere in the programs: they put it together.
pub(super) const TOKEN: &str = "got-through-7d1c";

const PRELUDE: &str = "\
import os, ctypes
TOKEN = '-'.join(['got', 'through', '7d1c'])
LIBC = ctypes.CDLL(None, use_errno=True)
def breach(evidence):
    if evidence: os.write(1, (TOKEN + ' ' + repr(evidence)[:200] + '\\n').encode())
def is_open(number):
    try: os.fstat(number)
    except OSError: return False
    return True
def call(name, *arguments):
    ctypes.set_errno(0)
    number = NUMBERS.get(name, name)
    result = LIBC.syscall(number, *(ctypes.c_long(a) for a in arguments))
    # EPERM and ENOSYS are the filter's answers; others mean that the kernel looked at the call.
    if result != -1 or ctypes.get_errno() not in (1, 38): breach((name, result, ctypes.get_errno()))
";

/// System calls by name, for this machine's architecture.
const NUMBERS: &[(&str, i64)] = &[
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("bpf", libc::SYS_bpf),
    ("capset", libc::SYS_capset),
    ("clock_settime", libc::SYS_clock_settime),
    ("clone", libc::SYS_clone),
    ("clone3", libc::SYS_clone3),
    ("execveat", libc::SYS_execveat),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("fsopen", libc::SYS_fsopen),
    ("init_module", libc::SYS_init_module),
    ("inotify_init1", libc::SYS_inotify_init1),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    #[cfg(target_arch = "x86_64")]
    ("iopl", libc::SYS_iopl),
    ("kcmp", libc::SYS_kcmp),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
    ("memfd_secret", 447),
    ("mount", libc::SYS_mount),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("mq_open", libc::SYS_mq_open),
    ("msgget", libc::SYS_msgget),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("personality", libc::SYS_personality),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("pivot_root", libc::SYS_pivot_root),
    ("prctl", libc::SYS_prctl),
    ("process_madvise", libc::SYS_process_madvise),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("ptrace", libc::SYS_ptrace),
    ("reboot", libc::SYS_reboot),
    ("request_key", libc::SYS_request_key),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
    ("seccomp", libc::SYS_seccomp),
    ("semget", libc::SYS_semget),
    ("sethostname", libc::SYS_sethostname),
    ("setns", libc::SYS_setns),
    ("shmget", libc::SYS_shmget),
    ("swapon", libc::SYS_swapon),
    ("syslog", libc::SYS_syslog),
    ("tgkill", libc::SYS_tgkill),
    ("tkill", libc::SYS_tkill),
    ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
];

/// Longest time that a program without a box gets.
const CONTROL_WALL: Duration = Duration::from_secs(30);

/// Files, sockets and a process that are none of a program's business.
pub(super) struct World {
    prelude: String,
    files: TempDir,
    victim: Child,
    connections: Arc<AtomicU32>,
    datagrams: UdpSocket,
    _local: [UnixListener; 2],
    _local_datagrams: UnixDatagram,
}

impl World {
    pub(super) fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        let at = |name: &str| files.path().join(name);
        std::fs::create_dir_all(at("victims/empty")).unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(at("victims").join(name), "intact").unwrap();
        }
        std::fs::create_dir(at("answers")).unwrap();
        std::fs::write(at("answers/gold.py"), "ANSWER = 42").unwrap();
        let create = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); \
                      c.execute('create table gold (answer)'); c.commit()";
        let database = at("run.db");
        let created = Command::new(python())
            .args(["-S", "-c", create])
            .arg(&database)
            .status();
        assert!(created.unwrap().success(), "this Python has no sqlite3");
        std::fs::write(at("run.db-wal"), "journal").unwrap();

        let connections = Arc::new(AtomicU32::new(0));
        let [port, port_any] = ["127.0.0.1:0", "127.9.9.9:0"].map(|address| {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            answer(listener, Arc::clone(&connections));
            port
        });
        let datagrams = UdpSocket::bind(("127.0.0.1", port)).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let name = format!("coharness-test-{}-{port}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        let datagram_address = SocketAddr::from_abstract_name(format!("{name}-d")).unwrap();
        let local = [
            UnixListener::bind(at("socket")).unwrap(),
            UnixListener::bind_addr(&abstract_address).unwrap(),
        ];
        // Without the test's output, which a victim that outlives it would keep open.
        let victim = Command::new("sleep")
            .arg("600")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let text = |path: std::path::PathBuf| format!("{:?}", path.to_str().unwrap());
        let numbers: String = NUMBERS
            .iter()
            .map(|(name, number)| format!("{name:?}: {number}, "))
            .collect();
        let prelude = format!(
            "{PRELUDE}NUMBERS = {{{numbers}}}\nGOLD = {}\nDATABASE = {}\nVICTIMS = {}\nUNIX = {}\n\
             ABSTRACT = {name:?}\nABSTRACT_DATAGRAM = {:?}\nPORT = PORT_HTTP = {port}\n\
             PORT_ANY = {port_any}\nVICTIM = {}\nSECRET = {:?}\nHOME = {:?}\nSOURCES = {:?}\n",
            text(at("answers/gold.py")),
            text(database),
            text(at("victims")),
            text(at("socket")),
            format!("{name}-d"),
            victim.id(),
            // Cargo gives tests this variable; a wrapper around Python may change others.
            std::env::var("CARGO_MANIFEST_DIR").unwrap(),
            std::env::var("HOME").unwrap(),
            env!("CARGO_MANIFEST_DIR"),
        );
        World {
            prelude,
            files,
            victim,
            connections,
            datagrams,
            _local: local,
            _local_datagrams: UnixDatagram::bind_addr(&datagram_address).unwrap(),
        }
    }

    /// The text of a program that knows its targets.
    pub(super) fn program(&self, code: &str) -> String {
        format!("{}{code}", self.prelude)
    }

    /// Runs a program as anybody could, in a directory of its own.
    pub(super) fn run_without_box(&self, code: &str) -> Output {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(interpreter())
            // Without `site`, which is most of the start of two hundred interpreters.
            .args(["-S", "-B", "-c", &self.program(code)])
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > CONTROL_WALL {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Whoever else holds the pipes is a child that sleeps for a second at most.
        child.wait_with_output().unwrap()
    }

    /// Asserts that nobody came.
    pub(super) fn assert_untouched(&self) {
        assert_eq!(self.connections.load(Ordering::SeqCst), 0);
        assert!(
            self.datagrams.recv(&mut [0; 16]).is_err(),
            "a datagram came"
        );
        let victims = self.files.path().join("victims");
        for name in ["a", "b", "c"] {
            assert_eq!(std::fs::read(victims.join(name)).unwrap(), b"intact");
        }
        assert_eq!(std::fs::read_dir(&victims).unwrap().count(), 4);
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.victim.id())).unwrap();
        assert!(state.contains(") S "), "{state}");
    }
}

/// The interpreter itself: what is on the path may be a script that looks for it each time.
fn interpreter() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let asked = Command::new(python())
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .unwrap();
        PathBuf::from(String::from_utf8(asked.stdout).unwrap().trim_end())
    })
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// Answers every connection like a web server, for as long as the test runs.
fn answer(listener: TcpListener, connections: Arc<AtomicU32>) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            connections.fetch_add(1, Ordering::SeqCst);
            if let Ok(mut stream) = stream {
                let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nreached");
            }
        }
    });
}
