# Becomes `__main__` inside the box, runs main.py in its place and leaves no trace of itself.
# program.py stands above this.
#
# `site` is not imported: it costs three quarters of the interpreter's start-up, and the .pth files
# it reads are code that belongs to the machine. What programs expect from it is supplied here.
def _start():
    import sys

    _prepare(sys.argv[2:])
    run, seed = _run, _seed
    namespace = sys.modules["__main__"].__dict__
    for name in ("_start", "_prepare", "_run", "_seed"):
        del namespace[name]
    namespace["__file__"] = "main.py"
    with open("main.py", "rb") as file:
        source = file.read()
    seed(source)
    if not run(source, "main.py", namespace):
        sys.exit(1)


_start()
