# Becomes `__main__` inside the box, runs main.py in its place and leaves no trace of itself.
#
# `site` is not imported: it costs three quarters of the interpreter's start-up, and the .pth files
# it reads are code that belongs to the machine. What programs expect from it is supplied here.
def _run():
    import _sitebuiltins
    import builtins
    import sys

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    sys.path[:] = [entry for entry in sys.path if entry] + sys.argv[2:]
    sys.argv[:] = ["main.py"]
    # Line by line, so that what was printed before a kill is not lost in a buffer.
    sys.stdout.reconfigure(line_buffering=True)
    namespace = sys.modules["__main__"].__dict__
    del namespace["_run"]
    namespace["__file__"] = "main.py"
    # Given back before an out-of-memory traceback is printed, which needs memory itself.
    reserve = bytearray(1 << 18)
    try:
        with open("main.py", "rb") as source:
            code = compile(source.read(), "main.py", "exec", dont_inherit=True)
        exec(code, namespace)
        return
    except SystemExit:
        raise
    except BaseException as raised:
        error = raised
    # The traceback starts in the program, not in this function.
    trace = error.__traceback__.tb_next
    error.__traceback__ = trace
    if isinstance(error, MemoryError):
        del reserve
        namespace.clear()
        frame = trace
        while frame is not None:
            try:
                frame.tb_frame.clear()
            except RuntimeError:
                pass
            frame = frame.tb_next
    sys.excepthook(type(error), error, trace)
    sys.exit(1)


_run()
