"""A run's code by what it computes: words about it change no key, a number does."""

from __future__ import annotations

import ast
import gc
import shutil
import threading
import time
from pathlib import Path

import pytest

from pipeline.training import provenance
from pipeline.training.provenance import LEFT_OUT, code_hash, code_hashes

CODE = """
from torch import Tensor

RATE = 0.5

class Part:
    size: int
    share: float = 0.1

def step(x, y):
    if x > 0:
        return x + RATE * y
    return x
"""


def changed(old: str, new: str) -> bool:
    assert CODE.count(old) >= 1, old
    return code_hash(ast.parse(CODE)) != code_hash(ast.parse(CODE.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE = 0.5", "# of the paper\nRATE = 0.50\n"),
        ("RATE = 0.5", 'RATE = 0.5\n"""Of the paper."""'),
        ("RATE = 0.5", "RATE: float = 0.5\nother: int"),
        ("    size: int", '    """A part."""\n\n    size: int\n    """Of it."""'),
        ("def step(x, y):\n", 'def step(x: "Tensor", y: Tensor,) -> Tensor:\n    """x + y / 2"""\n'),
        ("return x + RATE * y", "return (\n            x + (RATE * y)\n        )"),
        ("    return x\n", '    log.info("step %s", x)\n    return x\n'),
        ("from torch", "from __future__ import annotations\nimport logging\nfrom typing import Any\nfrom torch"),
        ("RATE =", "if TYPE_CHECKING:\n    from pipeline.data.raw import Kind\nRATE ="),
    ],
)
def test_words_change_no_key(old: str, new: str) -> None:
    assert not changed(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.5", "0.25"),
        ("x + RATE", "x - RATE"),
        ("RATE * y", "y * RATE"),
        ("x > 0", "x >= 0"),
        ("(x, y)", "(x, y=1)"),
        ("from torch", "from numpy"),
        ("share: float = 0.1", "share: float = 0.2"),
        ("share: float", "share: ClassVar[float]"),
        ("    size: int\n", ""),
        ("    return x\n", "    return x if y else None\n"),
        ("class Part", "@frozen\nclass Part"),
    ],
)
def test_code_changes_it(old: str, new: str) -> None:
    assert changed(old, new)


def test_progress_and_errors_are_no_code_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = provenance.ROOT
    for package in provenance.PACKAGES:
        shutil.copytree(root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    modules = ["pipeline.training.loop", "pipeline.data.sources"]
    before = code_hashes(modules)
    loop = tmp_path / "pipeline/training/loop.py"
    loop.write_text(f"# a remark\n{loop.read_text()}")
    for name in LEFT_OUT:
        module = tmp_path / name.replace(".", "/")
        path = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        path.write_text(f"{path.read_text()}\nOTHER = 1\n")
    assert code_hashes(modules) == before
    loop.write_text(loop.read_text().replace("* len(state.history)\n", "* len(state.history) + 1\n"))
    assert {name for name, value in code_hashes(modules).items() if value != before[name]} == {
        "pipeline/training/loop.py"
    }


def test_names_that_a_package_imports_at_first_use_count(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text("from trueodds.metrics import brier\n")
    assert "trueodds/metrics/scores.py" in code_hashes([], [user])
    user.write_text("from trueodds import logits_of\n")
    assert "trueodds/sums/rounding.py" in code_hashes([], [user])


def test_threads_parse_at_the_same_time() -> None:
    """A thread that collects garbage within `ast.parse` lets another one parse: SystemError in Python 3.11.7."""
    found: list[object] = []

    def scan() -> None:
        try:
            found.extend(provenance._scan.__wrapped__(Path(provenance.__file__), 0) for _ in range(20))
        except SystemError as error:
            found.append(error)

    def give_way(phase: str, _: object) -> None:
        time.sleep(0.0005)

    before = gc.get_threshold()
    threads = [threading.Thread(target=scan) for _ in range(3)]
    gc.callbacks.append(give_way)
    gc.set_threshold(700, 1000, 1000)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.callbacks.remove(give_way)
        gc.set_threshold(*before)
    assert len(found) == 60 and len(set(found)) == 1, found
