"""The wheel: what it installs, and TrueOdds beside another package named `pipeline`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from PIL import Image

import pipeline.cli
import service.cli
from tests.conftest import ROOT, environment, run
from trueodds import cli

PACKAGES = ("trueodds", "pipeline", "service")

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing but the wheel: none of the packages that it depends on."""
    pytest.importorskip("setuptools", minversion="77", reason="builds the wheel, without a network")
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", ".", "./source"], folder)
    run([sys.executable, "-m", "venv", "--without-pip", "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    run([*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], folder)
    return folder / "venv"


def site(installed: Path) -> Path:
    (folder,) = installed.glob("lib/python*/site-packages")
    return folder


def trueodds(
    installed: Path, *words: str, pythonpath: tuple[Path, ...] = (), python: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The console script in an empty folder; with `python`, the same under that interpreter."""
    command = [str(python), "-m", "trueodds"] if python else [str(installed / "bin" / "trueodds")]
    env = environment() | {"PYTHONPATH": os.pathsep.join(map(str, pythonpath))}
    return subprocess.run([*command, *words], cwd=installed, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder with somebody else's package `pipeline`."""
    (tmp_path / "foreign" / "pipeline").mkdir(parents=True)
    (tmp_path / "foreign" / "pipeline" / "__init__.py").write_text("raise SystemExit('not to be run')")
    return tmp_path / "foreign"


def test_it_holds_the_three_packages_and_what_is_no_code(installed: Path) -> None:
    files = {path.relative_to(site(installed)) for path in site(installed).rglob("*") if path.suffix != ".pyc"}
    assert {path.parts[0] for path in files if path.suffix == ".py"} == set(PACKAGES)
    tracked = run(["git", "ls-files", *PACKAGES], ROOT).stdout.splitlines()
    assert {Path(name) for name in tracked if (ROOT / name).is_file()} <= files


def test_every_command_is_listed_where_nothing_else_is_installed(installed: Path) -> None:
    done = trueodds(installed, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    assert listed >= {*cli.COMMANDS, *pipeline.cli.COMMANDS, *service.cli.COMMANDS}


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("train", "train"),
        ("serve", "serve"),
        ("import model.onnx --labelled rows.npz", "import"),
        ("consume --kafka localhost:9092 --answers answers", "kafka"),
        ("repro", "train,workflow"),
    ],
)
def test_a_command_whose_packages_are_missing_says_what_to_install(installed: Path, words: str, extra: str) -> None:
    name, *rest = words.split()
    done = trueodds(installed, name, *rest)
    assert done.returncode == 1 and done.stderr.startswith(f"error: {name} needs the package ")
    assert done.stderr.endswith(f"pip install 'trueodds[{extra}]'\n")


def test_pip_adds_an_extra_to_the_installed_trueodds(installed: Path) -> None:
    """TrueOdds is on no index: pip takes the installed one, and asks the index for the extra's packages alone."""
    python = str(installed / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "trueodds[client]"]
    done = subprocess.run(command, cwd=installed, env=environment(), capture_output=True, text=True, timeout=300)
    assert "Requirement already satisfied: trueodds[client]" in done.stdout
    assert "No matching distribution found for trueodds" not in done.stderr


def test_beside_another_pipeline_the_rest_works(installed: Path, foreign: Path) -> None:
    done = trueodds(installed, "key", pythonpath=(foreign, site(installed)), python=Path(sys.executable))
    assert done.returncode == 0 and done.stdout.startswith("key     "), done.stderr
    code = "import trueodds; print(trueodds.__file__, trueodds.fit.__name__)"
    env = environment() | {"PYTHONPATH": f"{foreign}{os.pathsep}{site(installed)}"}
    library = subprocess.run([sys.executable, "-c", code], cwd=installed, env=env, capture_output=True, text=True)
    assert library.stdout == f"{site(installed) / 'trueodds' / '__init__.py'} fit\n", library.stderr
    helped = trueodds(installed, "--help", pythonpath=(foreign,))
    assert helped.returncode == 0 and "  serve " in helped.stdout and "  train " not in helped.stdout
    assert str(foreign) in helped.stderr


def test_beside_another_pipeline_its_commands_name_the_clash(installed: Path, foreign: Path) -> None:
    done = trueodds(installed, "train", pythonpath=(foreign,))
    assert (done.returncode, done.stdout) == (1, "")
    ours, theirs = site(installed) / "pipeline", foreign / "pipeline" / "__init__.py"
    message = f"error: the commands of {ours} are not available: `import pipeline` takes {theirs}. Give TrueOdds an"
    assert done.stderr.startswith(message) and len(done.stderr.splitlines()) == 1


def test_without_an_installation_there_is_no_command(installed: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(installed, tmp_path / "venv", symlinks=True))
    for about in site(copy).glob("trueodds-*.dist-info"):
        shutil.rmtree(about)
    done = trueodds(copy, "train", python=copy / "bin" / "python")
    assert done.returncode == 1 and done.stderr == (
        f"error: {site(copy)} is not installed, so no command is registered: pip install -e {site(copy)}\n"
    )


def test_a_package_installed_over_ours_is_named_with_its_distribution(installed: Path, tmp_path: Path) -> None:
    """pip does not mind: the files of the later one stay."""
    copy = Path(shutil.copytree(installed, tmp_path / "venv", symlinks=True))
    (site(copy) / "pipeline" / "cli" / "__init__.py").write_text("")
    about = site(copy) / "builders-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: builders\nVersion: 1.0\n")
    (about / "RECORD").write_text("pipeline/__init__.py,,\npipeline/cli/__init__.py,,\n")
    done = trueodds(copy, "train", pythonpath=(site(copy),), python=copy / "bin" / "python")
    assert done.returncode == 1 and "pipeline/__init__.py of builders. Give TrueOdds an environment" in done.stderr


def required(names: set[str]) -> Iterator[metadata.Distribution]:
    """The distributions of these names and all that they require in turn, without extras."""
    seen: set[str] = set()
    while names - seen:
        name = (names - seen).pop()
        seen.add(name)
        distribution = metadata.distribution(name)
        yield distribution
        needs = (Requirement(line) for line in distribution.requires or ())
        names = names | {need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})}


@pytest.fixture(scope="module")
def alone(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's environment with the library's own dependencies, and no extra's."""
    copy = Path(shutil.copytree(installed, tmp_path_factory.mktemp("alone") / "venv", symlinks=True))
    wheel = next(iter(metadata.distributions(name="trueodds", path=[str(site(copy))])))
    own = {Requirement(line) for line in wheel.requires or ()}
    names = {need.name for need in own if not need.marker or need.marker.evaluate({"extra": ""})}
    assert names == {"numpy", "scipy", "pydantic", "pyyaml", "pillow"}
    for distribution in required(names):
        for part in {file.parts[0] for file in distribution.files or () if not file.parts[0].startswith("..")}:
            if part != "__pycache__":
                (site(copy) / part).symlink_to(Path(str(distribution.locate_file(part))))
    return copy


def test_without_extras_the_library_and_calibrate_work(alone: Path, tmp_path: Path) -> None:
    rng, python = np.random.default_rng(0), alone / "bin" / "python"
    np.savez(tmp_path / "logits.npz", logits=rng.normal(0, 2, (300, 3)), labels=rng.integers(0, 3, 300))
    done = trueodds(alone, "calibrate", f"{tmp_path}/logits.npz", "--out", f"{tmp_path}/out", python=python)
    assert done.returncode == 0 and "Chosen: " in done.stdout, done.stderr
    assert (tmp_path / "out" / "reliability-after.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("import", "from trueodds import cli; cli.main('', cli.COMMANDS, ['calibrate', 'rows.npz', '--onnx', 'm'])"),
        ("table", "from trueodds import cli; cli.main('', cli.COMMANDS, ['calibrate', 'rows.parquet'])"),
        ("plot", "import trueodds; trueodds.report([[0.9, 0.1]], [0]).plot()"),
        ("sklearn", "import trueodds; trueodds.Calibrated"),
        ("serve", "from trueodds.inputs.image.pictures import Path, read; read(Path('picture.jpg'), 1)"),
    ],
)
def test_what_belongs_to_an_extra_names_it(alone: Path, tmp_path: Path, extra: str, code: str) -> None:
    np.savez(tmp_path / "rows.npz", logits=np.eye(3)[[0, 1, 2] * 9] * 2, labels=[0, 1, 2] * 9)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    Image.new("L", (4, 4)).save(tmp_path / "picture.jpg")
    command, env = [str(alone / "bin" / "python"), "-c", code], environment() | {"PYTHONPATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert f"pip install 'trueodds[{extra}]'" in done.stderr


def test_importing_it_takes_little_time(alone: Path) -> None:
    """The least of three, processor time: other tests run beside this one."""
    code = "import time; t = time.process_time(); import trueodds; print(time.process_time() - t)"
    python = str(alone / "bin" / "python")
    assert min(float(run([python, "-c", code], alone).stdout) for _ in range(3)) < 0.3
