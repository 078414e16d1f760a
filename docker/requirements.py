"""What pyproject.toml beside this file requires, with the extras named, one a line: `python requirements.py serve`.

pip wants the whole source tree to install an extra; the images install before they take the code, so that a change of
code (or of pyproject.toml's other sections) installs nothing again.
"""

import sys
import tomllib
from pathlib import Path


def required(pyproject: Path, extras: list[str]) -> list[str]:
    """The project's own dependencies and those of the extras."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]


if __name__ == "__main__":
    print(*required(Path(__file__).with_name("pyproject.toml"), sys.argv[1:]), sep="\n")
