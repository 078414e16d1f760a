"""A terminal in which tests type what README.md and docs/**/*.md show, and the blocks of those pages."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, environment

README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ONE_FILE = "tests/metrics/test_entropy.py"
"""What `python -m pytest` runs in a walk: the whole suite would run the walk."""


@dataclass(frozen=True)
class Block:
    """A fenced block: `console` (commands after `$ `), `python`, or `text` (what they print)."""

    kind: str
    text: str

    def commands(self) -> list[str]:
        """The lines of a console block."""
        lines = self.text.splitlines()
        assert all(line.startswith("$ ") for line in lines), f"a line without `$ ` in a console block: {self.text}"
        return [line.removeprefix("$ ") for line in lines]

    def prints(self, printed: str) -> bool:
        """Whether a text block is part of what was printed: `...` stands for anything, a number for any number."""
        pattern = re.escape(self.text.strip()).replace(r"\.\.\.", ".*")
        return re.search(re.sub(r"\d[\d,]*(\\\.\d+)?", r"[\\d,.]+", pattern), printed, re.DOTALL) is not None


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(match[1], match[2]) for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def needs(page: Path) -> list[str]:
    """List the commands of the line "Needs: ..." under a page's title; none where there is no such line."""
    line = page.read_text(encoding="utf-8").splitlines()[2]
    return re.findall(r"`([^`]+)`", line) if line.startswith("Needs: ") else []


class Terminal:
    """A shell that keeps its variables from line to line, in a folder whose .venv is this interpreter's environment.

    It starts without that environment on its PATH. Differences from a reader's terminal: ports 8000 and 4200 become
    free ones, `make serve` goes on in the background, and `python -m pytest` runs one file
    in one process.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.serving: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
            self.port, prefect = first.getsockname()[1], second.getsockname()[1]
        plain = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if Path(p) != Path(sys.prefix, "bin"))
        self.environment = environment() | {
            "PATH": plain,
            "PREFECT_API_URL": f"http://127.0.0.1:{prefect}/api",
            "PREFECT_HOME": str(folder / ".prefect"),
            "TRUEODDS_SERVICE": f"http://127.0.0.1:{self.port}",
        }
        (folder / ".venv").symlink_to(sys.prefix)
        with (folder / ".git" / "info" / "exclude").open("a") as exclude:
            exclude.write(".venv\n")

    def type(self, line: str) -> str:
        """Run a line and return what it printed; the test fails where it fails."""
        line = line.replace(":8000", f":{self.port}")
        line = re.sub(r"^make\b", f"make -o .venv/.installed PORT={self.port}", line)
        line = line.replace("python -m pytest", f"python -m pytest {ONE_FILE}").replace(" -n 4 ", " -n 0 ")
        if line.endswith(" serve"):
            self._serve(line if line.startswith("make ") else f"{line} --port {self.port}")
            return ""
        state = self.folder / ".git" / "environment"
        printed = self._run(["bash", "-euo", "pipefail", "-c", f"{line}\nenv -0 > '{state}'"], line)
        pairs = (pair.partition("=") for pair in state.read_text().split("\0") if pair)
        self.environment = {name: value for name, _, value in pairs}
        return printed

    def python(self, code: str) -> str:
        """Run Python code with the environment's interpreter."""
        return self._run([".venv/bin/python", "-c", code.replace(":8000", f":{self.port}")], code)

    def walk(self, page: Path, *, skipping: tuple[str, ...] = ()) -> int:
        """Type every block of a page, check every text against what was printed before it; returns how many ran."""
        printed: str | None = None
        ran = 0
        for block in blocks(page):
            if block.kind == "text":
                assert printed is None or block.prints(printed), f"{page.name} shows\n{block.text}\nnot\n{printed}"
            elif block.kind == "python":
                printed = self.python(block.text)
                ran += 1
            elif commands := [line for line in block.commands() if line not in skipping]:
                printed = "\n".join(map(self.type, commands))
                ran += 1
            else:
                printed = None
        return ran

    def _run(self, command: list[str], shown: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=1800
        )
        assert done.returncode == 0, f"{shown}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _serve(self, line: str) -> None:
        self.serving = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self.folder, env=self.environment, start_new_session=True
        )
        for _ in range(1200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health/ready", timeout=5).close()
            except OSError:
                assert self.serving.poll() is None, f"{line} ended"
                time.sleep(0.1)
            else:
                return
        pytest.fail(f"{line} is not ready after two minutes")

    def close(self) -> None:
        """End what was started."""
        if self.serving:
            os.killpg(self.serving.pid, signal.SIGTERM)
            self.serving.wait(20)
        if (self.folder / ".prefect").is_dir():
            self.type("make prefect-stop")
