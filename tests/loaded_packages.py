"""Prints the packages that each piece of work loads, one line of JSON each. Every piece runs in a fork of this process.

Parts of a package are named as well, such as scipy.special.

`python -m tests.loaded_packages FIRST < cases` runs the code FIRST, whose packages all pieces have, and reads a JSON
object: name -> source code.
"""

from __future__ import annotations

import json
import os
import sys
import traceback


def loaded_by(code: str) -> tuple[list[str], int]:
    """Return the packages and their parts that the code loads, and the exit status that it ends with."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        status = 0
        try:
            exec(compile(code, "<case>", "exec"), {"__name__": "case"})
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
            status = 1
        with os.fdopen(writing, "w") as pipe:
            json.dump(sorted({".".join(name.split(".")[:depth]) for name in sys.modules for depth in (1, 2)}), pipe)
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        packages = json.load(pipe)
    return packages, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    exec(sys.argv[1])
    for name, code in json.load(sys.stdin).items():
        print(json.dumps([name, *loaded_by(code)]), flush=True)
