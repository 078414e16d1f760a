"""The library as `import trueodds` offers it."""

from __future__ import annotations

import doctest
import subprocess
import sys

import numpy as np
import pytest

import trueodds
from tests.conftest import ROOT


def test_the_example_runs() -> None:
    assert doctest.testmod(trueodds) == (0, 10)


@pytest.mark.parametrize("name", trueodds.__all__)
def test_every_public_name_is_listed_and_has_an_example_that_runs(name: str) -> None:
    table = (trueodds.__doc__ or "").rpartition("\n\n")[2]
    assert name in {line.split()[0] for line in table.splitlines()}
    known = {"np": np, "trueodds": trueodds, "metrics": trueodds.metrics, "calibrators": trueodds.calibrators}
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(trueodds, name), name, globs=known)
    printed: list[str] = []
    assert example.examples, f"{name} has no example in its docstring"
    assert doctest.DocTestRunner(verbose=False).run(example, out=printed.append).failed == 0, "".join(printed)


def test_other_names_are_not_there() -> None:
    assert len(trueodds.__all__) <= 16 and dir(trueodds) == sorted(trueodds.__all__)
    with pytest.raises(AttributeError, match="module 'trueodds' has no attribute 'ece'"):
        trueodds.ece  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_is_cheap() -> None:
    code = "import sys, trueodds; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy", "pydantic", "torch", "fastapi", "httpx", "onnxruntime"} & set(done.stdout.split())
