# Attacks the box from inside. Prints one line for each attack: guarantee, held or broken, detail.
# CANARY (a file outside the box), MEMORY_BYTES, FILE_BYTES, VARIABLES and IS_FORKED (whether the
# parent process is a fork server) are defined above this.
import os
import sys


def report(guarantee, held, detail):
    print(guarantee, "held" if held else "broken", " ".join(str(detail).split()), sep="\t")


def attack(guarantee, what, action):
    try:
        result = action()
    except (OSError, RuntimeError, MemoryError) as refusal:
        reason = getattr(refusal, "strerror", None) or type(refusal).__name__
        report(guarantee, True, f"{what} refused ({reason})")
    else:
        report(guarantee, False, f"{what} succeeded: {str(result)[:80]}")


outside = os.path.dirname(CANARY)
attack("reading", "reading a file outside", lambda: open(CANARY).read())
attack("reading", "reading /etc/passwd", lambda: open("/etc/passwd").read())
attack("reading", "listing the processes", lambda: os.listdir("/proc"))
attack("reading", "listing a directory outside", lambda: os.listdir(outside))
attack("reading", "reading the environment of process 1", lambda: open("/proc/1/environ").read())
attack("writing", "creating a file outside", lambda: open(outside + "/created", "w"))
attack("writing", "truncating a file outside", lambda: os.truncate(CANARY, 0))
attack("writing", "opening a file outside for writing", lambda: open(CANARY, "r+"))
attack("writing", "removing a file outside", lambda: os.unlink(CANARY))
attack("writing", "renaming a file outside", lambda: os.rename(CANARY, CANARY + "2"))
attack("writing", "changing the mode of a file outside", lambda: os.chmod(CANARY, 0))
attack("writing", "setting the times of a file outside", lambda: os.utime(CANARY, (0, 0)))

try:
    import _socket as socket

    for family in ("AF_INET", "AF_INET6", "AF_UNIX"):
        for kind in ("SOCK_STREAM", "SOCK_DGRAM"):
            number = getattr(socket, family), getattr(socket, kind)
            attack("network", f"{family} {kind}", lambda: socket.socket(*number))
    attack("network", "resolving localhost", lambda: socket.getaddrinfo("example.com", 80))
except ImportError:
    report("network", True, "this interpreter has no sockets")


def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


attack("processes", "fork", fork)
attack("processes", "spawn", lambda: os.posix_spawn(sys.executable, ["python", "-V"], {}))

if IS_FORKED:
    server = os.getppid()
    attack("processes", "signalling the fork server", lambda: os.kill(server, 0))
    attack("processes", "signalling every process", lambda: os.kill(-1, 0))
    attack("processes", "the fork server's memory", lambda: open(f"/proc/{server}/mem", "rb"))
    inherited = []
    for number in range(3, 64):
        try:
            os.fstat(number)
            inherited.append(number)
        except OSError:
            pass
    report("processes", not inherited, f"descriptors {inherited}" if inherited else "no descriptors")

import _thread

_thread.stack_size(64 << 10)
finish = _thread.allocate_lock()
finish.acquire()
threads = 0
try:
    while threads < 100:
        _thread.start_new_thread(finish.acquire, (True, 10))
        threads += 1
except RuntimeError:
    pass
report("processes", threads <= 64, f"{threads} threads")
for _ in range(threads):
    try:
        finish.release()
    except RuntimeError:
        pass

try:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
except (ImportError, OSError):
    report("system_calls", True, "this interpreter cannot make arbitrary calls")
else:

    def call(name, *arguments):
        ctypes.set_errno(0)
        if getattr(libc, name)(*arguments) != -1:
            return "no error"
        # EPERM and ENOSYS are the filter's answers; others mean that the kernel looked at the call.
        if ctypes.get_errno() not in (1, 38):
            return os.strerror(ctypes.get_errno())
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    for name, *arguments in (
        ("ptrace", 16, 1, 0, 0),
        ("unshare", 0x10000000),
        ("setns", -1, 0),
        ("mount", None, None, None, 0, None),
        ("process_vm_readv", 1, None, 0, None, 0, 0),
        ("personality", 0),
        ("syscall", 425, 1, None),  # io_uring_setup
        ("memfd_create", b"memory", 0),
    ):
        if hasattr(libc, name):
            attack("system_calls", name, lambda: call(name, *arguments))

attack("memory", f"{MEMORY_BYTES >> 20} MiB", lambda: len(bytearray(MEMORY_BYTES)))

import resource

soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
report("cpu", 0 < soft <= hard < 60, f"{soft} s of CPU time")
core, _ = resource.getrlimit(resource.RLIMIT_CORE)
report("disk", core <= 1, "no core dumps" if core <= 1 else "core dumps")

foreign = sorted(set(os.environ) - set(VARIABLES))
report("environment", not foreign, f"{len(os.environ)} variables" if not foreign else foreign)

# Last, since outside a private file system it ends in a kill. Bounded, in case nothing stops it.
written = 0
chunk = bytes(1 << 16)
try:
    for number in range(1000):
        with open(f"flood-{number}", "wb", buffering=0) as file:
            for _ in range(16):
                written += file.write(chunk)
                if written > 64 * FILE_BYTES:
                    raise RuntimeError
except OSError as refusal:
    report("disk", written <= 2 * FILE_BYTES, f"full after {written >> 10} KiB ({refusal.strerror})")
except RuntimeError:
    import time

    time.sleep(0.5)  # time for the parent to notice
    report("disk", False, f"wrote {written >> 20} MiB")
