"""Every public function and class of the library has a docstring with an example, and every example runs."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import trueodds
from tests.conftest import ROOT
from trueodds import calibrators, metrics
from trueodds.calibrators import conformal

ASK_A_SERVICE = ROOT / "trueodds/client/calls.py"
"""Its examples run in tests/client, which has one."""
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for folder in ("trueodds", "pipeline", "service")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != ASK_A_SERVICE and ">>> " in path.read_text(encoding="utf-8")
]
PUBLIC = [
    pytest.param(module, name, id=name)
    for module in (metrics, calibrators, conformal)
    for name in module.__all__
    if callable(getattr(module, name))
]


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_it_has_an_example(module: ModuleType, name: str) -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(module, name), name, globs={})
    assert example.examples, f"{name} has no example in its docstring"


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    names = {"np": np, "trueodds": trueodds, "metrics": metrics, "calibrators": calibrators, "conformal": conformal}
    known = {**vars(module), **names}
    printed: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name, globs=known):
        runner.run(example, out=printed.append)
    assert runner.tries and not runner.failures, "".join(printed)
