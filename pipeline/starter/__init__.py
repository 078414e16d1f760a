"""A folder of one's own for `dvc repro`: the graph and the parameters that `trueodds init` writes.

`python -m tools.starter` makes the YAML files of this folder from the repository's `params.yaml` and `dvc.yaml`. There,
stages depend on source files. A user's folder has none, so a stage `code` writes the hashes of the installed source
files to `artifacts/code/STAGE`, and each stage depends on its file. An upgrade then runs the stages that it changes.
The same holds for the objects that other distributions register (`trueodds.processes.extensions`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from trueodds.errors import UserError
from trueodds.processes import extensions

HOME = Path(__file__).resolve().parent.parent.parent
"""Folder of the installed packages: a checkout, or site-packages."""
FILES = {"params.yaml": "parameters.yaml", "dvc.yaml": "graph.yaml"}
"""Files in the user's folder -> their templates here. DVC would take a template named `dvc.yaml` for a second graph."""
CODE = Path("artifacts/code")
SOURCES = "sources.yaml"
"""Stage -> the source files and packages that it uses, in place of the dependencies that `dvc.yaml` has lost."""
DATA = Path("datasets")
"""The folder that `data.path` of `params.yaml` names, and a dependency of three stages."""
EXTENSIONS: dict[str, tuple[extensions.Group, ...]] = {
    "fetch": ("datasets",),
    "plan": ("methods", "nets", "datasets"),
    "shift": ("nets",),
    "calibrate": ("calibrators",),
    "evaluate": ("calibrators",),
    "export": ("calibrators", "nets"),
}
"""Stage -> kinds of registered objects that it uses."""
IGNORED = ".checkpoints/\n.run/\n"
"""Lines of `.gitignore` and `.dvcignore`: files that a run leaves beside its results."""


class StarterError(UserError, FileExistsError):
    """A file that `trueodds init` would overwrite."""


def write(folder: Path) -> list[Path]:
    """Write `params.yaml`, `dvc.yaml`, the data folder and, where they are missing, both ignore files.

    Returns:
        The files written.

    Raises:
        StarterError: one of FILES exists already. Nothing is written then.
    """
    there = [name for name in FILES if (folder / name).exists()]
    if there:
        raise StarterError(
            f"{' and '.join(there)} exist{'s' * (len(there) == 1)} in {folder.resolve()}; init overwrites no file."
            " Run it in another folder, or move what is there away"
        )
    templates = Path(__file__).parent
    texts = {name: (templates / template).read_text(encoding="utf-8") for name, template in FILES.items()}
    readme = DATA / "README.md"
    texts[str(readme)] = "Your own data go here: docs/how-to/use-your-data.md of TrueOdds describes the formats.\n"
    texts |= {".gitignore": IGNORED, ".dvcignore": IGNORED}
    written = [folder / name for name in texts if not (folder / name).exists()]
    (folder / DATA).mkdir(parents=True, exist_ok=True)
    for path in written:
        path.write_text(texts[str(path.relative_to(folder))], encoding="utf-8")
    return written


def write_code_hashes(folder: Path) -> None:
    """Write `artifacts/code/STAGE` for each stage: lines of SHA-256 and path, as `sha256sum` prints them.

    A registered object has a line with the hash of its package, its name, its distribution and version.
    """
    sources: dict[str, list[str]] = yaml.safe_load((Path(__file__).parent / SOURCES).read_text(encoding="utf-8"))
    (folder / CODE).mkdir(parents=True, exist_ok=True)
    for stage, names in sources.items():
        files = sorted({file for name in names for file in _files(HOME / name)})
        lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(HOME)}\n" for file in files]
        registered = extensions.hashes(*EXTENSIONS.get(stage, ()))
        lines += [f"{digest}  {title}\n" for title, digest in registered.items()]
        (folder / CODE / stage).write_text("".join(lines), encoding="utf-8")


def _files(path: Path) -> Iterator[Path]:
    """Yield a file, or the files of a package; bytecode is left out."""
    if path.is_file():
        yield path
    for file in path.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file
