"""Writes exact versions of everything that pyproject.toml's ranges admit; `make constraints` calls it.

python -m tools.constraints              the newest versions that satisfy pyproject.toml
python -m tools.constraints --keep       only what pyproject.toml's change asks for; other versions stay
python -m tools.constraints --diff       what the first would change; writes nothing

docker/constraints.txt    every extra, Python 3.11 to 3.13, any system: for `pip install -c`
docker/serve.txt          of that, the service's image, with hashes: for `pip install --no-deps --require-hashes`
docker/train.txt          the training image without torch, whose wheel is another in every index

Needs uv (in the extra `dev`) and a package index: PyPI, or that of UV_DEFAULT_INDEX.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import ROOT

CONSTRAINTS = "docker/constraints.txt"
IMAGES = {"docker/serve.txt": ("serve", "text", "s3"), "docker/train.txt": ("train", "workflow", "s3")}
TORCH = re.compile(r"torch|torchvision|triton|(nvidia|cuda)-.*")
"""Packages left out of train.txt: torch, and what only its CUDA build brings."""
PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)\s*(?:;\s*(?P<marker>[^\\\n]+))?", re.MULTILINE)

Pins = dict[tuple[str, str], str]


class ConstraintsError(RuntimeError):
    """uv is missing, or found no versions."""


def pins(text: str) -> Pins:
    """(name, marker) -> version, of a requirements file."""
    return {(m["name"], (m["marker"] or "").strip()): m["version"] for m in PIN.finditer(text)}


def difference(old: Pins, new: Pins) -> list[tuple[str, str, str]]:
    """(name, old version or -, new version or -) of what differs, by name; several versions of one name are joined."""

    def versions(found: Pins) -> dict[str, str]:
        table: dict[str, list[str]] = {}
        for (name, _), version in found.items():
            table.setdefault(name, []).append(version)
        return {name: ", ".join(several) for name, several in table.items()}

    before, after = versions(old), versions(new)
    names = sorted(before.keys() | after.keys())
    rows = [(name, before.get(name, "-"), after.get(name, "-")) for name in names]
    return [row for row in rows if row[1] != row[2]]


def resolve(folder: Path, *, upgrade: bool) -> None:
    """Write the three files below `folder`; what lies there already is kept where it fits, unless upgraded."""
    _compile(folder / CONSTRAINTS, ["--all-extras", *(["--upgrade"] if upgrade else [])])
    names = {name for name, _ in pins((folder / CONSTRAINTS).read_text(encoding="utf-8"))}
    for file, extras in IMAGES.items():
        options = [word for extra in extras for word in ("--extra", extra)]
        left_out = [word for name in sorted(names) if TORCH.fullmatch(name) for word in ("--no-emit-package", name)]
        hashed = ["--constraints", str(folder / CONSTRAINTS), "--generate-hashes"]
        _compile(folder / file, [*options, *left_out, *hashed, "--upgrade"])


def _compile(target: Path, options: list[str]) -> None:
    """uv's resolver; versions must not depend on what else this machine is told about packages."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if uv is None:
        raise ConstraintsError("uv is not here; it is in the extra `dev` (make setup)")
    # Found beside the index, a torch+cpu would hide the packages of the CUDA build, which others get.
    environment = {k: v for k, v in os.environ.items() if k not in ("UV_FIND_LINKS", "UV_TORCH_BACKEND", "UV_OVERRIDE")}
    command = [uv, "pip", "compile", "pyproject.toml", "--universal", "--python-version", "3.11", "--quiet"]
    command += ["--no-annotate", "--custom-compile-command", "make constraints", "--output-file", str(target)]
    done = subprocess.run([*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ConstraintsError(f"uv found no versions for {target.name}:\n{done.stderr.strip()}")


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 1 with uv's own words where no versions were found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--keep", action="store_true", help="keep versions that still satisfy pyproject.toml")
    choice.add_argument("--diff", action="store_true", help="say what would change; write nothing")
    arguments = parser.parse_args(argv)
    old = (ROOT / CONSTRAINTS).read_text(encoding="utf-8") if (ROOT / CONSTRAINTS).exists() else ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / CONSTRAINTS).parent.mkdir()
        (folder / CONSTRAINTS).write_text(old, encoding="utf-8")
        try:
            resolve(folder, upgrade=not arguments.keep)
        except ConstraintsError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        new = pins((folder / CONSTRAINTS).read_text(encoding="utf-8"))
        rows = difference(pins(old), new)
        for package, before, after in rows:
            print(f"{package:<28} {before} -> {after}")
        print(f"{'would change' if arguments.diff else 'changed'}: {len(rows)} of {len(new)} versions in {CONSTRAINTS}")
        if not arguments.diff:
            for file in (CONSTRAINTS, *IMAGES):
                shutil.copyfile(folder / file, ROOT / file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
