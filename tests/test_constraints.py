"""docker/*.txt: exact versions that satisfy pyproject.toml; what is installed here; the command that writes them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PYTHONS = ("3.11.9", "3.12.9", "3.13.9")
FILES = ("constraints", "serve", "train")
CUDA = re.compile(r"triton|(nvidia|cuda)-.*")
"""What only a CUDA build of torch brings."""
ENGINES = {
    "backports-zstd",
    "chdb",
    "chdb-core",
    "clickhouse-connect",
    "lz4",
    "psycopg",
    "psycopg-binary",
    "py4j",
    "pyspark",
}
"""What only the extra `engines` brings; .ci/run installs these."""


def text_of(file: str) -> str:
    return (ROOT / "docker" / f"{file}.txt").read_text(encoding="utf-8")


def pinned(file: str, python: str) -> dict[NormalizedName, Version]:
    """Name -> the version for this Python on this system; two for one name are an error."""
    lines = re.sub(r" \\\n +--hash=\S+", "", text_of(file)).splitlines()
    environment = {
        "python_version": python.rpartition(".")[0],
        "python_full_version": python,
    }  # the rest: of this system
    versions: dict[NormalizedName, Version] = {}
    for requirement in (Requirement(line) for line in lines if not line.startswith("#")):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            (specifier,) = requirement.specifier
            name = canonicalize_name(requirement.name)
            assert specifier.operator == "==" and name not in versions, requirement
            versions[name] = Version(specifier.version)
    return versions


def required(*extras: str) -> list[Requirement]:
    """The project's own requirements and those of the extras, without its references to itself."""
    words = [*PROJECT["dependencies"], *(word for extra in extras for word in EXTRAS[extra])]
    return [r for r in map(Requirement, words) if r.name != PROJECT["name"]]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("file", "extras"), [("constraints", tuple(EXTRAS)), ("serve", ("serve", "text")), ("train", ("train", "workflow"))]
)
def test_every_requirement_has_a_version_that_satisfies_it(python: str, file: str, extras: tuple[str, ...]) -> None:
    """Otherwise: `python -m tools.constraints --keep`."""
    versions = pinned(file, python)
    for requirement in required(*extras):
        if file != "train" or requirement.name not in ("torch", "torchvision"):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement
    assert versions.items() <= pinned("constraints", python).items(), "one version of each, whoever installs it"


@pytest.mark.parametrize("file", FILES)
def test_it_holds_on_any_machine(file: str) -> None:
    """No address, no file of one machine, no build that only one index has."""
    assert not re.search(r"://|file:| @ |--index|--find|\d\+", text_of(file))


def test_hashes_are_for_the_images_alone() -> None:
    assert "--hash" not in text_of("constraints")
    for file in ("serve", "train"):
        entries = re.split(r"\n(?! )", text_of(file).strip())
        assert all("--hash=sha256:" in entry for entry in entries if not entry.startswith("#"))


@pytest.mark.parametrize("file", ["serve", "train"])
def test_torch_is_in_neither_image_file(file: str) -> None:
    """Its wheel differs between indexes, and with it the hash; the service has none at all, nor DVC and Prefect."""
    unwanted = {"torch", "torchvision", *({"dvc", "prefect"} if file == "serve" else set())}
    assert not [name for name in pinned(file, "3.11.9") if name in unwanted or CUDA.fullmatch(name)]


def needed(requirements: list[Requirement]) -> set[str]:
    """Names of these and of all that they require in turn, extras too, by what is installed here."""
    names: set[str] = set()
    visited: set[str] = set()
    while requirements:
        requirement = requirements.pop()
        if str(requirement) not in visited:
            visited.add(str(requirement))
            names.add(canonicalize_name(requirement.name))
            extras = ("", *requirement.extras)
            lines = map(Requirement, requires(requirement.name) or [])
            requirements += [r for r in lines if not r.marker or any(r.marker.evaluate({"extra": e}) for e in extras)]
    return names


@pytest.mark.parametrize(("file", "extras"), [("serve", ("serve", "text")), ("train", ("train", "workflow"))])
def test_an_image_file_lists_all_that_is_needed(file: str, extras: tuple[str, ...]) -> None:
    """The images install without looking for more."""
    requirements = [r for r in required(*extras) if r.name not in ("torch", "torchvision")]
    assert needed(requirements) <= pinned(file, ".".join(map(str, sys.version_info[:3]))).keys()


def test_the_environment_is_the_pinned_one() -> None:
    """So `make setup` leaves it, and so CI must have it; elsewhere another choice is somebody's right.

    The extra `engines` is not part of it: its tests are skipped where its packages cannot be had.
    """
    versions = pinned("constraints", ".".join(map(str, sys.version_info[:3])))
    # Not of sys.path: setuptools adds the packages that it carries to it when it is imported.
    folders = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    packages = distributions(path=sorted(folders))
    installed = {canonicalize_name(package.metadata["Name"]): Version(package.version) for package in packages}
    installed = {name: version for name, version in installed.items() if name not in ("pip", PROJECT["name"])}
    differing = [
        f"{name} {installed.get(name, 'is missing')} ({versions.get(name, 'not pinned')})"
        for name in sorted(versions.keys() | installed.keys())
        # 2.13.0+cpu is torch 2.13.0.
        if not (name in installed and Version(installed[name].public) == versions.get(name))
        and not (name not in installed and (CUDA.fullmatch(name) or name in ENGINES))
    ]
    if differing and os.environ.get("CI") != "true":
        pytest.skip(f"not what docker/constraints.txt (in brackets) says: {', '.join(differing)}")
    assert not differing


def test_ci_installs_the_packages_of_the_engines() -> None:
    (names,) = re.findall(r"local names='(.*?)'", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert set(names.split("|")) == ENGINES <= pinned("constraints", "3.11.9").keys()
    own = {canonicalize_name(Requirement(word).name) for word in EXTRAS["engines"]}
    assert own - {"ibis-framework"} <= ENGINES


def wheel(folder: Path, name: str, version: str) -> None:
    """A package without content, where a package index lists it."""
    target = folder / name / f"{name}-{version}-py3-none-any.whl"
    target.parent.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    listed = "".join(f'<a href="{file.name}">{file.name}</a>' for file in sorted(target.parent.glob("*.whl")))
    (target.parent / "index.html").write_text(f"<html><body>{listed}</body></html>", encoding="utf-8")


def test_the_command_writes_keeps_and_compares(tmp_path: Path) -> None:
    """The real uv, on a project of two packages and an index in a folder."""
    index, pyproject = tmp_path / "simple", tmp_path / "pyproject.toml"
    extras = '[project.optional-dependencies]\nserve = []\ntext = []\ns3 = []\nworkflow = []\ntrain = ["torch"]\n'
    about = '[project]\nname = "small"\nversion = "1"\ndependencies = ["alpha>=1,<2"]\n'
    pyproject.write_text(about + extras, encoding="utf-8")
    (tmp_path / "docker").mkdir()
    (tmp_path / "tools").mkdir()
    for name in ("__init__.py", "constraints.py"):
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
    environment = {**os.environ, "UV_DEFAULT_INDEX": str(index), "UV_NO_CACHE": "1"}

    def command(*options: str, status: int = 0) -> str:
        words = [sys.executable, "-m", "tools.constraints", *options]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def written(file: str) -> str:
        return (tmp_path / "docker" / f"{file}.txt").read_text(encoding="utf-8")

    wheel(index, "alpha", "1.0")
    wheel(index, "torch", "2.0")
    assert "changed: 2 of 2" in command()
    assert re.findall(r"^\w.*", written("constraints"), re.MULTILINE) == ["alpha==1.0", "torch==2.0"]
    assert re.findall(r"^(\w+==\S+) \\\n +--hash=sha256:", written("train"), re.MULTILINE) == ["alpha==1.0"]

    wheel(index, "alpha", "1.1")
    wheel(index, "alpha", "2.0")  # pyproject.toml does not admit it
    before = written("constraints")
    assert "alpha" in (output := command("--diff")) and "1.0 -> 1.1" in output and "would change: 1 of 2" in output
    assert "changed: 0 of 2" in command("--keep")
    assert written("constraints") == before
    command()
    assert "alpha==1.1" in written("constraints") and "alpha==1.1" in written("serve")

    pyproject.write_text(pyproject.read_text(encoding="utf-8").replace("<2", "<1"), encoding="utf-8")
    assert "error: uv found no versions for constraints.txt" in command(status=1)
    assert "alpha==1.1" in written("constraints")
