"""What tests share: a copy of the repository to run things in, one trained digits model, and the development data."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from filelock import FileLock

from tests import memory
from tests.distribution import Distribution, begun_elsewhere, few_parameters, longest_first
from trueodds.processes import privacy

# Without a deadline: how long an example takes is the machine's affair.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

ROOT = Path(__file__).resolve().parent.parent
Run = Callable[..., subprocess.CompletedProcess[str]]
IDENTITY = ("-c", "user.name=test", "-c", "user.email=test@example.org")
"""git's options for a commit by nobody."""
NO_PART = ("benchmarks", "docs", "tests")
"""Folders that no stage reads. `dvc exp save` hashes every file of a workspace: without these in half the time."""


def pytest_configure(config: pytest.Config) -> None:
    if "not full" in str(config.getoption("markexpr")):  # the files of long tests may be larger than the memory
        memory.hold_temporary_files()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without the garbage collector, a sixth of the time; what the imports made is not walked again by the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(700, 10, 10)  # the environment's programs have a larger last one, for what they import


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, Any]:
    report = yield
    process = getattr(collector.config, "workerinput", None)
    if process and isinstance(collector, pytest.Directory) and report.passed:
        worker = int(process["workerid"].removeprefix("gw"))
        report.result = begun_elsewhere(list(report.result or ()), worker, process["workercount"])
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    distributed = hasattr(config, "workerinput")  # one of pytest-xdist's processes
    if distributed:
        items.sort(key=lambda item: item.path)  # they agree on one order, whichever file each began at
    few_parameters(items)
    yield
    if "containers" not in str(config.getoption("markexpr")):
        left_out = [item for item in items if item.get_closest_marker("containers")]
        items[:] = [item for item in items if not item.get_closest_marker("containers")]
        config.hook.pytest_deselected(items=left_out)
    if distributed:
        longest_first(items)


@pytest.hookimpl(tryfirst=True)  # before fixtures of it are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    long = item.get_closest_marker("full") or item.get_closest_marker("containers")
    if long and time.time() > float(os.environ.get("TEST_UNTIL", "inf")):
        pytest.skip("TEST_UNTIL is over: this machine is too slow for every long test in the time of .ci/run")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Distribution | None:
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # or files with many tests would begin before those that take long
    return Distribution(config, log)


def environment() -> dict[str, str]:
    """This process's environment with the interpreter's folder first, and nothing that reports to its vendor."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **privacy.SWITCHES}


def run(
    command: list[str], cwd: Path, *, check: bool = True, timeout: float = 1800
) -> subprocess.CompletedProcess[str]:
    """Run a command; on an unexpected exit status the test fails with all it printed."""
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=timeout)
    if check and done.returncode:
        pytest.fail(f"{' '.join(command)} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def copy_of_repository(target: Path, without: tuple[str, ...] = ()) -> Path:
    """The working tree as a git repository with one commit: tracked and new files, of ignored ones only bytecode.

    Args:
        target: The folder of the copy.
        without: Folders that the test has no use for.
    """
    listed = run(["git", "ls-files", "-co", "--exclude-standard"], ROOT).stdout.splitlines()
    listed = [name for name in listed if not name.startswith(tuple(f"{folder}/" for folder in without))]
    for name in listed:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    for package in ("pipeline", "service", "trueodds"):
        for cache in (ROOT / package).rglob("__pycache__"):
            folder = target / cache.parent.relative_to(ROOT)
            if folder.is_dir():  # a package that is no more may have left its bytecode
                shutil.copytree(cache, folder / cache.name, ignore=shutil.ignore_patterns("*.pyc.*"))
    run(["git", "init", "-q", "-b", "main"], target)
    run(["git", "add", "-A"], target)
    run(["git", *IDENTITY, "commit", "-q", "-m", "copy"], target)
    run(["git", "repack", "-adq"], target)  # it is copied often: one file instead of one for each object
    return target


def folder_of_run(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder that all of pytest-xdist's processes have in common, or that of the only one."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def copy_tree(source: Path, target: Path, ignore: Callable[[str, list[str]], set[str]] | None = None) -> Path:
    """A copy that shares what nobody may write, most of all bytes: git's packs, and the files of DVC's cache."""

    def copy(file: str, to: str) -> None:
        try:
            if Path(file).stat().st_mode & 0o222:
                raise PermissionError(f"{file} may be written")
            os.link(file, to)
        except OSError:  # or on another file system
            shutil.copy2(file, to)

    return Path(shutil.copytree(source, target, symlinks=True, ignore=ignore, copy_function=copy))


@contextmanager
def made_once(factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """A folder of this run of the tests, and whether it is still to be filled: one of pytest-xdist's processes does it.

    Nobody changes it afterwards.
    """
    folder = folder_of_run(factory) / name
    with FileLock(f"{folder}.lock"):
        done = folder.with_name(f"{name}.done")
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that failed in the middle
            folder.mkdir()
        yield folder, not done.exists()
        done.touch()


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository after `dvc repro`: the default run, done once for all tests. Leave its params alone.

    One of pytest-xdist's processes makes it; each has a copy of its own. Where TEST_REPRODUCED names a folder, the runs
    of pytest that name it share it.
    """
    made = Path(os.environ.get("TEST_REPRODUCED", folder_of_run(tmp_path_factory) / "reproduced"))
    with FileLock(f"{made}.lock"):
        if not made.is_dir():
            part = made.with_name(f"{made.name}.part")
            shutil.rmtree(part, ignore_errors=True)  # left by tests that were killed
            aside = copy_of_repository(part, NO_PART)
            run(["dvc", "repro"], aside)
            aside.rename(made)
    return copy_tree(made, tmp_path_factory.mktemp("reproduced") / "copy")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the repository's params.yaml and datasets/, made the current directory."""
    shutil.copy(ROOT / "params.yaml", tmp_path / "params.yaml")
    (tmp_path / "datasets").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRUEODDS_DATA", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def development_data() -> Path:
    """The folder that TRUEODDS_DATA names, holding cifar100.npz."""
    named = os.environ.get("TRUEODDS_DATA")
    if not named or not (Path(named) / "cifar100.npz").is_file():
        pytest.skip("TRUEODDS_DATA does not name a folder with cifar100.npz (50,000 + 10,000 images); bare clone")
    return Path(named)
