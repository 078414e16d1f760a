"""Writes exact versions of all packages within the ranges of pyproject.toml; `make constraints` calls it.

python -m tools.constraints              the newest versions that satisfy pyproject.toml
python -m tools.constraints --keep       only changes that pyproject.toml requires; other versions stay
python -m tools.constraints --diff       prints what the first form would change; writes nothing

docker/constraints.txt    every extra, Python 3.11 to 3.13, any system: for `pip install -c`
docker/serve.txt          the packages of the service's image, with hashes: for `pip install --no-deps --require-hashes`
docker/train.txt          the packages of the training image without torch, whose wheel differs between indexes

Needs uv (in the extra `dev`) and a package index: PyPI, or the index in UV_DEFAULT_INDEX.
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
"""Packages left out of train.txt: torch, and the packages that only its CUDA build needs."""
PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)\s*(?:;\s*(?P<marker>[^\\\n]+))?", re.MULTILINE)

Pins = dict[tuple[str, str], str]


class ConstraintsError(RuntimeError):
    """uv is missing, or found no versions."""


def pins(text: str) -> Pins:
    """Return the pins of a requirements file as (name, marker) -> version."""
    return {(m["name"], (m["marker"] or "").strip()): m["version"] for m in PIN.finditer(text)}


def difference(old: Pins, new: Pins) -> list[tuple[str, str, str]]:
    """Return (name, old version or -, new version or -) of each difference. Several versions of a name are joined."""

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
    """Write the three files in `folder`. Existing versions are kept if they fit, unless upgraded."""
    _compile(folder / CONSTRAINTS, ["--all-extras", *(["--upgrade"] if upgrade else [])])
    names = {name for name, _ in pins((folder / CONSTRAINTS).read_text(encoding="utf-8"))}
    for file, extras in IMAGES.items():
        options = [word for extra in extras for word in ("--extra", extra)]
        left_out = [word for name in sorted(names) if TORCH.fullmatch(name) for word in ("--no-emit-package", name)]
        hashed = ["--constraints", str(folder / CONSTRAINTS), "--generate-hashes"]
        _compile(folder / file, [*options, *left_out, *hashed, "--upgrade"])


def _compile(target: Path, options: list[str]) -> None:
    """Run uv's resolver. The versions must not depend on this machine's other settings for packages."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if uv is None:
        raise ConstraintsError("uv is not installed; it is in the extra `dev` (make setup)")
    # A torch+cpu beside the index would hide the packages of the CUDA build, which other machines get.
    environment = {k: v for k, v in os.environ.items() if k not in ("UV_FIND_LINKS", "UV_TORCH_BACKEND", "UV_OVERRIDE")}
    command = [uv, "pip", "compile", "pyproject.toml", "--universal", "--python-version", "3.11", "--quiet"]
    command += ["--no-annotate", "--custom-compile-command", "make constraints", "--output-file", str(target)]
    done = subprocess.run([*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ConstraintsError(f"uv found no versions for {target.name}:\n{done.stderr.strip()}")


def main(argv: list[str] | None = None) -> int:
    """Return the exit status: 1, with uv's message, if no versions were found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--keep", action="store_true", help="keep versions that still satisfy pyproject.toml")
    choice.add_argument("--diff", action="store_true", help="print what would change; write nothing")
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
