# The fork server: a Python that is confined like any program, has its imports done, and forks a
# child for each program. program.py stands above this. It never sees a program's text: the child
# reads that itself, so that nothing of one program is left for the next one to find.
#
# Arguments: the box's label, a JSON object (see `helper/server.rs`), directories of packages.
#
# The parent is at descriptor 1, a socket. It sends lines of JSON, and with each `run` three
# descriptors: the program's standard output, its standard error, and the program's own channel.
import atexit, bisect, builtins, cmath, collections, ctypes, datetime, decimal, fractions
import functools, gc, heapq, itertools, json, linecache, math, mmap, os, random, re, resource
import select, signal, socket, statistics, string, struct, sys, threading, traceback, types

SET_DEATH_SIGNAL, SET_SECCOMP, FILTER_MODE = 1, 22, 2
RESTRICT_SELF = 446  # landlock_restrict_self, on every architecture

# Stays open in a program that keeps its state; the last number its limit of descriptors allows.
CHANNEL = 63

# Room that a program needs at least beside what is loaded already.
ROOM_BYTES = 16 << 20

# Kept for a traceback when memory has run out.
RESERVE_BYTES = 1 << 18


class _Filter(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


class _Server:
    def __init__(self):
        config = json.loads(sys.argv[2])
        _prepare(sys.argv[3:])
        self.scratch = config["scratch"]
        self.ruleset = config["ruleset"]
        self.filter = bytearray.fromhex(config["filter"])
        # Where the filter names the process itself.
        self.own_pid_at = [
            at + 4
            for at in range(0, len(self.filter), 8)
            if struct.unpack_from("=I", self.filter, at + 4)[0] == config["own_pid"]
        ]
        instructions = (ctypes.c_char * len(self.filter)).from_buffer(self.filter)
        self.seccomp = _Filter(len(self.filter) // 8, ctypes.addressof(instructions))
        self.libc = ctypes.CDLL(None, use_errno=True)
        # Duplicates are closed on exec and, by the child, before a program starts.
        self.control = socket.socket(fileno=os.dup(1))
        self.scratch_keeper = config["scratch_keeper"]
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 1)
        os.close(null)
        self.pid = os.getpid()
        self.buffer = b""
        self.descriptors = []
        self.loaded = []
        for name in config["modules"]:
            try:
                __import__(name)
                self.loaded.append(name)
            except ImportError:
                pass
        # The first `compile` makes the types of syntax trees, a millisecond that each child would pay.
        compile("", "main.py", "exec", dont_inherit=True)
        # What is loaded by now is shared with all children; the collector would copy it by writing
        # to it.
        gc.collect()
        gc.disable()
        gc.freeze()

    def send(self, message):
        self.control.sendall(json.dumps(message).encode() + b"\n")

    def receive(self):
        """The next message. The parent's hanging up ends this process."""
        while b"\n" not in self.buffer:
            data, ancillary, _, _ = self.control.recvmsg(4096, socket.CMSG_SPACE(3 * 4))
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    self.descriptors += struct.unpack(f"{len(content) // 4}i", content)
            if not data:
                os._exit(0)
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def serve(self):
        self.send({"ready": {"modules": self.loaded}})
        while True:
            message = self.receive()
            # Anything else is late: it was for a program that has ended meanwhile.
            if isinstance(message, dict):
                self.run(message["run"])

    def run(self, request):
        descriptors, self.descriptors = self.descriptors[:3], self.descriptors[3:]
        child = os.fork()
        if child == 0:
            _Child(self, request, descriptors).main()
        for descriptor in descriptors:
            os.close(descriptor)
        self.watch(child)
        _, status, usage = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        self.send(
            {
                "ended": {
                    "code": code if code >= 0 else None,
                    "signal": -code if code < 0 else None,
                    "cpu_ms": int((usage.ru_utime + usage.ru_stime) * 1000),
                    "peak_kib": usage.ru_maxrss,
                }
            }
        )
        if self.scratch_keeper is not None:
            os.write(self.scratch_keeper, b"c")
            if os.read(self.scratch_keeper, 1) != b"c":
                os._exit(1)
        self.send({"ready": {"modules": self.loaded}})

    def watch(self, child):
        """Waits until the child is dead, and does to it what the parent asks for."""
        ended = os.pidfd_open(child)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(self.control, select.POLLIN)
        actions = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "thaw": signal.SIGCONT}
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if ended in ready:
                break
            # Not yet reaped, so the number is still its own.
            action = self.receive()
            os.kill(child, actions[action])
            if action == "freeze":
                # A stop is not yet one when it is sent: threads on other processors run on for a while.
                os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            self.send({"done": action})
        os.close(ended)


class _Child:
    def __init__(self, server, request, descriptors):
        self.server = server
        self.request = request
        self.output, self.error, self.channel = descriptors
        self.main_module = types.ModuleType("__main__")

    def main(self):
        """Never returns: nothing of the server's loop may run in a child."""
        status = 70
        try:
            self.confine()
            status = 1
            status = self.program()
        except SystemExit as request:
            status = self.exit_status(request.code)
        except BaseException as error:
            self.say({"failed": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(self.finish(status))

    def confine(self):
        server, request, libc = self.server, self.request, self.server.libc
        os.setsid()
        self.check(libc.prctl(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))
        if os.getppid() != server.pid:
            os._exit(1)
        if server.ruleset is not None:
            self.check(libc.syscall(RESTRICT_SELF, server.ruleset, 0))
        # Its own: flags of an open file are shared with whoever inherits it.
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(self.output, 1)
        os.dup2(self.error, 2)
        self.channel = os.dup2(self.channel, CHANNEL, inheritable=False)
        server.control.detach()
        os.closerange(3, CHANNEL)
        os.chdir(server.scratch)
        self.source = self.receive()
        if self.source is not None:
            _seed(self.source)
        sys.modules["__main__"] = self.main_module
        self.main_module.__builtins__ = builtins
        if not request["keeps_state"]:
            self.main_module.__file__ = "main.py"
            with open("main.py", "wb") as file:
                file.write(self.source)
        for kind, soft, hard in request["limits"]:
            ceiling = resource.getrlimit(kind)[1]
            if ceiling != resource.RLIM_INFINITY:
                soft, hard = min(soft, ceiling), min(hard, ceiling)
            resource.setrlimit(kind, (soft, hard))
        try:
            mmap.mmap(-1, ROOM_BYTES).close()
        except (OSError, MemoryError):
            self.say("too_small")
            os._exit(0)
        self.forbid()
        gc.enable()
        self.say("confined")

    def forbid(self):
        server = self.server
        for at in server.own_pid_at:
            struct.pack_into("=I", server.filter, at, os.getpid())
        self.check(
            server.libc.prctl(SET_SECCOMP, FILTER_MODE, ctypes.byref(server.seccomp), 0, 0)
        )

    @staticmethod
    def check(result):
        if result == -1:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def program(self):
        namespace = self.main_module.__dict__
        if self.request["keeps_state"]:
            return self.calls(namespace)
        os.close(self.channel)
        self.channel = None
        source, self.source = self.source, None
        return 0 if _run(source, "main.py", namespace, reserve=mmap.mmap(-1, RESERVE_BYTES)) else 1

    def calls(self, namespace):
        """Runs one text after the other in the same namespace until the parent hangs up."""
        sys.excepthook = traceback.print_exception
        number = 0
        while self.source is not None:
            number += 1
            name = f"call-{number}.py"
            # Tracebacks of later calls still find the line.
            lines = self.source.decode("utf-8", "replace").splitlines(keepends=True)
            linecache.cache[name] = (len(self.source), None, lines, name)
            reserve = mmap.mmap(-1, RESERVE_BYTES)
            succeeded = _run(self.source, name, namespace, keeps_state=True, reserve=reserve)
            reserve.close()
            self.flush()
            self.say({"returned": {"call": number, "succeeded": succeeded}})
            self.source = self.receive()
        return 0

    def receive(self):
        """One text: its length (4 bytes, little endian), then the text. None at the end."""
        header = self.read(4)
        if header is None:
            return None
        return self.read(int.from_bytes(header, "little"))

    def read(self, count):
        parts = []
        while count > 0:
            part = os.read(self.channel, min(count, 1 << 16))
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def say(self, message):
        if self.channel is not None:
            line = json.dumps(message).encode() + b"\n"
            while line:
                line = line[os.write(self.channel, line) :]

    @staticmethod
    def exit_status(code):
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xFF
        try:
            print(code, file=sys.stderr)
        except BaseException:
            pass
        return 1

    def finish(self, status):
        """What an interpreter does at its end, short of taking everything apart."""
        try:
            threading._shutdown()
        except BaseException:
            pass
        try:
            atexit._run_exitfuncs()
        except BaseException:
            pass
        self.flush()
        return status

    @staticmethod
    def flush():
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                pass


_Server().serve()
