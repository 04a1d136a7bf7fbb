# Run once, outside the box, by the interpreter that was configured: what does it need to run?
import json
import os
import site
import sys
import sysconfig

paths = sysconfig.get_paths()
prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
libraries = [paths["stdlib"], paths["platstdlib"], *(os.path.join(p, "lib") for p in prefixes)]
print(
    json.dumps(
        {
            "executable": getattr(sys, "_base_executable", None) or sys.executable,
            "version": list(sys.version_info[:3]),
            "libraries": libraries,
            "module_paths": site.getsitepackages(),
        }
    )
)
