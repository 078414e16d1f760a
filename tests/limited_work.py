"""The function that tests of limited processes call there; it imports little."""

from __future__ import annotations

import os
import time
from pathlib import Path

from trueodds.processes import limited


def work(what: str, file: str = "") -> int:
    """Does what its name says; `file` gets the id of the process."""
    limited.step(f"doing {what}")
    if file:
        Path(file).write_text(str(os.getpid()))
    if what == "loop":
        while True:
            pass
    if what == "allocate":
        held = []
        while True:
            held.append(bytearray(b"x") * 10**7)
    if what == "abort":
        os.abort()
    if what == "exit":
        os._exit(7)
    if what == "go on":
        for _ in range(5):
            time.sleep(0.1)
            limited.progress()
        limited.step("")
        time.sleep(0.5)
    return 3
