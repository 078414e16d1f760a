"""The library as `import trueodds` offers it."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest

import trueodds
from tests.conftest import ROOT


def test_the_example_runs() -> None:
    assert doctest.testmod(trueodds) == (0, 9)


def test_every_public_name_is_there_and_described() -> None:
    assert trueodds.__doc__
    table = trueodds.__doc__.rpartition("\n\n")[2]
    for name in trueodds.__all__:
        assert getattr(trueodds, name).__doc__ and name in table
    with pytest.raises(AttributeError, match="module 'trueodds' has no attribute 'ece'"):
        trueodds.ece  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_is_cheap() -> None:
    code = "import sys, trueodds; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy", "pydantic", "torch", "fastapi", "httpx", "onnxruntime"} & set(done.stdout.split())
