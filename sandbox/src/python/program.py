# What cold starts and forks of the server have in common: running one program as `__main__`.
def _run(source, name, namespace, keeps_state=False, reserve=None):
    """Runs a program, prints the traceback of what it raises, and says whether it succeeded."""
    import sys

    # Given back before an out-of-memory traceback is printed, which needs memory itself. A mapping
    # costs less than bytes, which are touched.
    free = bytearray(1 << 18).clear if reserve is None else reserve.close
    try:
        exec(compile(source, name, "exec", dont_inherit=True), namespace)
        return True
    except SystemExit:
        raise
    except BaseException as raised:
        error = raised
    # The traceback starts in the program, not in this function.
    trace = error.__traceback__.tb_next
    error.__traceback__ = trace
    if isinstance(error, MemoryError):
        free()
        if not keeps_state:
            namespace.clear()
        frame = trace
        while frame is not None:
            try:
                frame.tb_frame.clear()
            except RuntimeError:
                pass
            frame = frame.tb_next
    sys.excepthook(type(error), error, trace)
    return False


def _seed(source):
    """Lets what a program draws follow from its text, so that a repeated run draws the same."""
    import sys

    # What the program is going to import, imported now, since seeding needs it.
    for name in ("random", "numpy.random"):
        if name.split(".")[0].encode() in source:
            try:
                __import__(name)
            except Exception:
                pass
    for name, seed in (
        ("random", lambda module: module.seed(source)),
        ("numpy.random", lambda module: module.seed(__import__("zlib").crc32(source))),
        ("sympy.core.random", lambda module: module.rng.seed(source)),
    ):
        if name in sys.modules:
            seed(sys.modules[name])


def _prepare(module_paths):
    """What programs expect of an interpreter's start-up and `-S` leaves out."""
    import _sitebuiltins
    import builtins
    import sys

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    sys.path[:] = [entry for entry in sys.path if entry] + module_paths
    sys.argv[:] = ["main.py"]
    # Line by line, so that what was printed before a kill is not lost in a buffer.
    sys.stdout.reconfigure(line_buffering=True)
