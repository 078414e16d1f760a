"""Packages that commands, stages and flows load before their work begins."""

from __future__ import annotations

import ast
import json
import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import pipeline.cli
import service.cli
import trueodds
from pipeline import recalibrate
from tests.conftest import ROOT
from tests.service.tiny_bundle import write_bundle
from trueodds import bundle, cli, metrics

HEAVY = {"torch", "torchvision", "sklearn", "matplotlib", "onnxruntime", "onnx", "fastapi", "uvicorn", "pyarrow"}
"""Packages that take long to import and belong to work, not to names, options and parameters."""
SCIPY = {"scipy.special", "scipy.optimize", "scipy.fft", "scipy.ndimage", "scipy.linalg"}
"""Parts of scipy that belong to work. Each takes longer to import than all of numpy."""
SCHEDULING = {"prefect", "dvc"}
LIBRARY = {"numpy", "scipy", "pydantic", "PIL", "httpx", "yaml"}
"""Packages of the library itself, which no help text needs."""
TABLES = {"trueodds": cli.COMMANDS, "pipeline": pipeline.cli.COMMANDS, "service": service.cli.COMMANDS}
IN_HELP = {
    "init": {"yaml"},
    "code": {"yaml"},
}
"""Command -> packages that its help text loads all the same."""
CHECKED = "stages.check_names(config.load(), None)"
IMPORTS = "from pipeline import config, stages\n"

HELP = {
    f"{command} --help": f"from trueodds import cli; import {package}.cli\n"
    f"raise SystemExit(cli.main('trueodds', {f'{package}.cli.COMMANDS'}, ['{command}', '--help']))"
    for package, table in TABLES.items()
    for command in table
}
LISTS = {
    words: f"from trueodds import cli; import {package}.cli\n"
    f"raise SystemExit(cli.main('trueodds', {package}.cli.COMMANDS, {words.split()}))"
    for package, words in (
        ("service", "key"),
        ("pipeline", "study --list"),
        ("pipeline", "methods"),
        ("pipeline", "versions"),
        ("pipeline", "default"),
        ("pipeline", "default tiny"),
    )
}
"""Commands that need no package beside Python's own. The models are those of `loaded`."""
OF_HELP = 2.5
"""Largest processor time of such a command, as a multiple of that of `trueodds --help`.

A list of versions takes 1.7 times as much. With numpy, pydantic and the calibrators it took 5 times as much.
"""
WORK = {
    **{
        words: f"from trueodds import cli; import pipeline.cli\n"
        f"raise SystemExit(cli.main('trueodds', pipeline.cli.COMMANDS, {words.split()}))"
        for words in ("params", "recipes", "calibrators")
    },
    "the stage fetch": f"{IMPORTS}{CHECKED}; stages.fetch(config.load())",
    "the stage plan": f"{IMPORTS}stages.plan(config.load())",
    "a plan for each method and net": (
        "import logging; logging.disable()\nfrom pipeline import methods, nets\nfrom pipeline.config import Training\n"
        "from pipeline.training.resolution import plan_of\n"
        "for name in methods.names():\n"
        "    plan_of(Training(method=name), 'digits', 'image', held_out=True)\n"
        "for kind in ('image', 'vector', 'text', 'tree'):\n"
        "    for name in nets.names(kind):\n"
        "        plan_of(Training(net=name), 'own', kind, held_out=False)\n"
    ),
    "the library's names": "from trueodds import calibrators, metrics",
    "the keys of a study's runs": (
        "from pathlib import Path\nfrom pipeline.studies import runs\nfrom pipeline.studies.format import Study\n"
        "study = Study.model_validate({'title': 't', 'vary': {'method': ['ce', 'focal'], 'seed': [1, 2]}})\n"
        "assert len(runs.places(Path.cwd(), runs.expand(study, Path('params.yaml')))) == 4"
    ),
}
FLOWS = {
    f"import {module}": f"import {module}"
    for module in (
        "pipeline.flows.train",
        "pipeline.flows.recalibrate",
        "pipeline.flows.worker",
        "pipeline.studies.flow",
    )
}


FIRST = {"from trueodds import cli; import pipeline.cli, service.cli": HELP | LISTS | WORK, "import prefect": FLOWS}
"""What all cases of a group load -> the cases: their process loads it once."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What each case loads; all of a group run in forks of one process, in a folder with params.yaml."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    models = bundle.open_models(folder / "models")
    models.publish(write_bundle(folder / "served"))
    models.publish(write_bundle(folder / "net", seed=1), "shadow")
    models.publish(write_bundle(folder / "waiting", seed=2), "shadow")
    results: dict[str, set[str]] = {}
    for first, cases in FIRST.items():
        done = subprocess.run(
            [sys.executable, "-m", "tests.loaded_packages", first],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            input=json.dumps(cases),
            capture_output=True,
            text=True,
        )
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert {name: status for name, _, status in found if status} == {}, done.stderr
        results |= {name: set(packages) for name, packages, _ in found}
    assert results.keys() == {name for cases in FIRST.values() for name in cases}
    assert (folder / "artifacts" / "plan.json").is_file() and Path(folder / "artifacts/data/arrays.npz").is_file()
    return results


@pytest.mark.full
@pytest.mark.parametrize("case", HELP | LISTS)
def test_a_help_text_and_a_list_load_nothing_heavy(case: str, loaded: dict[str, set[str]]) -> None:
    allowed = IN_HELP.get(case.split()[0], set())
    assert (HEAVY | SCHEDULING | LIBRARY) & loaded[case] == allowed


@pytest.mark.full
@pytest.mark.parametrize("words", ["versions", "default"])
def test_a_list_of_versions_takes_little_more_time_than_a_help_text(words: str, tmp_path: Path) -> None:
    bundle.open_models(tmp_path / "models").publish(write_bundle(tmp_path / "served"))
    of_help, of_list = (min(seconds_of(case, tmp_path) for _ in range(3)) for case in ("--help", words))
    assert of_list < OF_HELP * of_help


def seconds_of(words: str, folder: Path) -> float:
    """Processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command, environment = [sys.executable, "-m", "trueodds", *words.split()], {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.full
@pytest.mark.parametrize("case", WORK)
def test_names_and_plans_need_no_torch(case: str, loaded: dict[str, set[str]]) -> None:
    assert (HEAVY | SCIPY | SCHEDULING) & loaded[case] == set()


@pytest.mark.full
@pytest.mark.parametrize("case", ["params", "recipes"])
def test_names_alone_need_no_numpy(case: str, loaded: dict[str, set[str]]) -> None:
    assert "pydantic" in loaded[case] and "numpy" not in loaded[case]


@pytest.mark.full
@pytest.mark.parametrize("case", FLOWS)
def test_a_flow_starts_without_torch(case: str, loaded: dict[str, set[str]]) -> None:
    assert HEAVY & loaded[case] == set()


@pytest.mark.full
def test_registering_a_study_measures_and_draws_nothing(loaded: dict[str, set[str]]) -> None:
    assert SCIPY & loaded["import pipeline.studies.flow"] == set()


@pytest.mark.parametrize("package", [trueodds, metrics, bundle, recalibrate], ids=lambda package: package.__name__)
def test_first_use_gives_what_a_type_checker_sees(package: ModuleType) -> None:
    text = Path(package.__file__ or "").read_text(encoding="utf-8")
    lazy = next(node for node in ast.parse(text).body if isinstance(node, ast.If))
    seen: dict[str, object] = {}
    for node in lazy.body:
        assert isinstance(node, ast.ImportFrom) and node.module
        seen |= {alias.name: getattr(import_module(node.module), alias.name) for alias in node.names}
    given = {name: getattr(package, name) for name in seen}
    assert all(given[name] is value for name, value in seen.items()) and seen.keys() == set(package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'calibration'"):
        package.calibration  # noqa: B018


def test_a_command_leaves_what_was_imported_in_peace() -> None:
    """Old objects are not walked by the garbage collector, also not at the end; young cycles are collected."""
    code = """
import atexit, gc, os, weakref
from trueodds import cli
held = False
atexit.register(lambda: os._exit(0 if held and gc.get_freeze_count() > 10_000 else 1))  # the first one comes last
cli.main("trueodds", cli.COMMANDS, ["--version"])
before = gc.get_stats()[2]["collections"]
import pandas
class Node: pass
ring = Node(); ring.itself = ring; died = weakref.ref(ring); del ring
kept = [[] for _ in range(10_000)]
assert died() is None, "of the youngest"
assert gc.get_stats()[2]["collections"] == before, "of the oldest"
held = True
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
