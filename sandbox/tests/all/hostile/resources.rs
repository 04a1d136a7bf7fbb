//! Using up the machine: processes, threads, memory, disk, descriptors, time, output.

use sandbox::{Execution, Exit};

use super::Attack;
use super::Control::{Breaches, Unchecked};

const TOO_MUCH: super::Control = Unchecked("outside the box it would use up the machine");

pub(super) const ATTACKS: &[Attack] = &[
    Attack::new(
        "fork bomb",
        "\
n = 0
while n < 100:
    try: p = os.fork()
    except OSError: break
    if p == 0:
        import time; time.sleep(1); os._exit(0)
    n += 1
breach(n > 64)",
        Breaches,
    ),
    Attack::new(
        "fork bomb in shell style",
        "import subprocess\nsubprocess.Popen(['/bin/sh', '-c', ':(){ :|:& };:'])\nbreach('started')",
        TOO_MUCH,
    ),
    Attack::new(
        "thread bomb",
        "\
import threading, time
threading.stack_size(1 << 16)
n = 0
try:
    while n < 100:
        threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start(); n += 1
except RuntimeError: pass
breach(n > 64)",
        Breaches,
    ),
    Attack::new("memory bomb", "breach(len(bytearray(600 << 20)))", Breaches),
    Attack::new(
        "memory bomb in small pieces",
        "x = []\nfor n in range(700): x.append(bytes(1 << 20))\nbreach(len(x))",
        Breaches,
    ),
    Attack::new(
        "memory bomb by doubling",
        "x = 'a'\nwhile len(x) < 1 << 30: x += x\nbreach(len(x))",
        Breaches,
    ),
    Attack::new(
        "memory bomb by mapping",
        "import mmap; breach(len(mmap.mmap(-1, 1 << 30)))",
        Breaches,
    ),
    Attack::new(
        "memory bomb by number",
        "breach((1 << (1 << 33)).bit_length())",
        Breaches,
    ),
    Attack::new(
        "locked memory",
        "breach(LIBC.mlockall(3) == 0)",
        Unchecked("the control may not be allowed to lock memory either"),
    ),
    Attack::new(
        "memory in pipes",
        "\
pipes = []
try:
    while len(pipes) < 500:
        r, w = os.pipe(); os.set_blocking(w, False); os.write(w, b'x' * 65536); pipes.append(w)
except OSError: pass
breach(len(pipes) > 64)",
        Breaches,
    ),
    Attack::new(
        "larger pipes",
        "import fcntl; r, w = os.pipe(); breach(fcntl.fcntl(w, 1031, 1 << 20) >= 1 << 20)",
        Breaches,
    ),
    Attack::new(
        "disk fill with one file",
        "\
f = open('f', 'wb', buffering=0); b = bytes(1 << 20)
for n in range(32):
    if f.write(b) < len(b): break
breach(os.path.getsize('f') > 20 << 20)",
        Breaches,
    ),
    Attack::new(
        "disk fill with many files",
        "\
import time
b = bytes(1 << 16); n = 0
try:
    while n < 600:
        with open(f'f{n}', 'wb', buffering=0) as f:
            if f.write(b) < len(b): break
        n += 1
except OSError: pass
time.sleep(2)
breach(n > 500)",
        Breaches,
    ),
    Attack::new(
        "disk fill with directories",
        "\
import time
n = 0
try:
    while n < 1200: os.mkdir(f'd{n}'); n += 1
except OSError: pass
time.sleep(2)
breach(n > 1100)",
        Breaches,
    ),
    Attack::new(
        "disk fill with a hole",
        "f = open('f', 'wb'); f.truncate(1 << 40); breach(os.path.getsize('f'))",
        Breaches,
    ),
    Attack::new(
        "disk fill in the kernel",
        "f = os.open('f', os.O_CREAT | os.O_RDWR); os.posix_fallocate(f, 0, 64 << 20); breach(os.path.getsize('f'))",
        Breaches,
    ),
    Attack::new(
        "core dump",
        "import resource; breach(resource.getrlimit(resource.RLIMIT_CORE)[1] > 1)",
        Unchecked("the machine may forbid core dumps"),
    ),
    Attack::new(
        "raise the memory limit",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); breach('raised')",
        Breaches,
    ),
    Attack::new(
        "raise the file limit",
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1)); breach('raised')",
        Breaches,
    ),
    Attack::new(
        "raise the time limit",
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (-1, -1)); breach('raised')",
        Breaches,
    ),
    Attack::new(
        "raise the task limit",
        "import resource; s, h = resource.getrlimit(resource.RLIMIT_NPROC); resource.setrlimit(resource.RLIMIT_NPROC, (h + 1 if h > 0 else -1,) * 2); breach(h < 0 or h > 65)",
        Unchecked("where tasks are not counted, threads are refused altogether"),
    ),
    Attack::new(
        "descriptor flood",
        "\
n = 0
try:
    while n < 500: os.dup(1); n += 1
except OSError: pass
breach(n > 64)",
        Breaches,
    ),
    Attack::new(
        "deep directories",
        "\
n = 0
try:
    while n < 1200: os.mkdir('d'); os.chdir('d'); n += 1
except OSError: pass
import time; time.sleep(2)
breach(n > 1100)",
        Breaches,
    ),
    Attack::checked(
        "output flood",
        "b = b'x' * 65536\nwhile True: os.write(1, b)",
        is_cut,
        TOO_MUCH,
    ),
    Attack::checked(
        "error flood",
        "b = b'x' * 65536\nwhile True: os.write(2, b)",
        is_cut,
        TOO_MUCH,
    ),
    Attack::checked(
        "output flood by print",
        "while True: print('x' * 5000)",
        is_cut,
        TOO_MUCH,
    ),
    Attack::checked(
        "a flood that turns its pipe non-blocking",
        "os.set_blocking(1, False)\nwhile True:\n    try: os.write(1, b'x' * 65536)\n    except BlockingIOError: pass",
        is_cut,
        TOO_MUCH,
    ),
    Attack::endless("endless loop", "while True: pass"),
    Attack::endless(
        "endless sleep",
        "import time\nwhile True:\n    try: time.sleep(600)\n    except BaseException: pass",
    ),
    Attack::endless(
        "endless loop that ignores signals",
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass",
    ),
    Attack::endless(
        "endless loop that catches everything",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ),
    Attack::endless(
        "stopping itself",
        "import signal; os.kill(os.getpid(), signal.SIGSTOP)",
    ),
    Attack::endless(
        "endless exit",
        "import atexit\n@atexit.register\ndef f():\n    while True: pass",
    ),
    Attack::endless(
        "a thread that never ends",
        "import threading, time\ndef f():\n    while True: time.sleep(1)\ntry: threading.Thread(target=f).start()\nexcept RuntimeError:\n    while True: pass",
    ),
    Attack::endless(
        "catastrophic pattern",
        "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
    ),
    Attack::checked(
        "endless recursion",
        "def f(): f()\nf()",
        |e| e.exit == Exit::Code(1) && e.stderr.contains("RecursionError"),
        TOO_MUCH,
    ),
    Attack::checked(
        "crash",
        "import ctypes; ctypes.string_at(0)",
        |e| e.exit == Exit::Signal(11),
        TOO_MUCH,
    ),
    Attack::checked(
        "deep stack crash",
        "import sys; sys.setrecursionlimit(10 ** 9)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())",
        |e| e.exit != Exit::Code(0),
        TOO_MUCH,
    ),
];

fn is_cut(execution: &Execution) -> bool {
    let longest = execution.stdout.len().max(execution.stderr.len());
    execution.is_truncated && execution.exit == Exit::Signal(9) && longest <= 1 << 20
}
