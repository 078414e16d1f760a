"""Installs packages into the environment of the Python that runs it, in the tested versions: with uv, or else with pip.

    python tools/install.py -e '.[dev]'

uv takes a quarter of pip's time, but does not read pip's configuration, which may name the index to use. So it gets
what that says. Pip installs if the configuration has an option that is unknown here, or if uv fails.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
UV = str(Path(sys.executable).parent / "uv")
TESTED = ("--constraint", "docker/constraints.txt")
SECTIONS = ("global", "install", ":env:")
"""Sections of pip's configuration that hold for an installation, the strongest last."""
SHARED = ("index-url", "extra-index-url", "find-links", "constraint")
"""Options that uv has too, each with one or more values."""
WITHOUT_EFFECT = (
    *("break-system-packages", "cache-dir", "default-timeout", "disable-pip-version-check", "no-color", "no-compile"),
    *("no-input", "no-python-version-warning", "no-warn-script-location", "progress-bar", "quiet", "retries"),
    *("require-virtualenv", "root-user-action", "timeout", "verbose"),
)
"""Options that change neither what is installed nor its source."""


def read_configuration(listed: str) -> dict[str, str]:
    """Read the output of `pip config list`: the options of an installation, each with its strongest value."""
    lines = re.findall(r"^(\S+?)\.([\w-]+)=(.+)$", listed, re.MULTILINE)
    return {
        option: str(ast.literal_eval(value))
        for wanted in SECTIONS
        for section, option, value in lines
        if section == wanted
    }


def uv_options(configuration: Mapping[str, str]) -> tuple[list[str], dict[str, str]] | None:
    """Return options of uv that do what pip's do, and environment variables; None if pip alone knows an option."""
    options = ["--index-strategy", "unsafe-best-match"]  # as pip does: the best version of all indexes
    environment: dict[str, str] = {}
    for name, value in configuration.items():
        if name in SHARED:
            options += [word for one in value.split() for word in (f"--{name}", one)]
        elif name == "cert":
            environment["SSL_CERT_FILE"] = value
        elif name not in WITHOUT_EFFECT:
            return None
    return options, environment


def run(command: list[str], **environment: str) -> bool:
    """Run a command and return whether it succeeded."""
    return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode == 0


def install_with_uv(words: list[str]) -> bool:
    """Install what `words` name, and return whether uv could do it as pip would."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False)
    translated = uv_options(read_configuration(listed.stdout))
    if listed.returncode or translated is None:
        return False
    options, environment = translated
    return run([*PIP, "install", "--quiet", "--no-compile", *TESTED, "uv"]) and run(
        [UV, "pip", "install", "--python", sys.executable, *options, *TESTED, *words], **environment
    )


def main(words: list[str]) -> int:
    """Install what `words` name, as for `pip install`, and return the exit status."""
    if install_with_uv(words):
        return 0
    print("Pip installs the packages, because uv cannot do it here.", file=sys.stderr)
    return int(not run([*PIP, "install", "--no-compile", *TESTED, *words]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
