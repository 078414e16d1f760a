"""Every public function and class of the library has a docstring with an example, and the example runs."""

from __future__ import annotations

import doctest
from types import ModuleType

import numpy as np
import pytest

from trueodds import calibrators, metrics

PUBLIC = [
    pytest.param(module, name, id=name)
    for module in (metrics, calibrators)
    for name in module.__all__
    if callable(getattr(module, name))
]


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_it_has_an_example_that_runs(module: ModuleType, name: str) -> None:
    known = {"np": np, "metrics": metrics, "calibrators": calibrators}
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(module, name), name, globs=known)
    assert example.examples, f"{name} has no example in its docstring"
    printed: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(example, out=printed.append).failed == 0, "".join(printed)
