# Runs a program with its input at descriptor 0, where every way of reading finds it: input(),
# sys.stdin, open(0). With `code`, the program is a module that has been loaded silently, and the code
# runs in it and prints what counts.
def _test(given, program, code):
    import io
    import os
    import sys

    space = sys.modules["__main__"].__dict__
    del space["_test"]
    name = ".input"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(file, "wb", closefd=False) as target:
        target.write(given.encode("utf-8", "surrogatepass"))
    os.unlink(name)
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)
    os.close(file)
    if code:
        module = type(sys)("solution")
        sys.modules["solution"] = module
        space = module.__dict__
        printed, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    exec(compile(program, "main.py", "exec", dont_inherit=True), space)
    if code:
        sys.stdout = printed
        exec(compile(code, "test.py", "exec", dont_inherit=True), space)
