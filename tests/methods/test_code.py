"""Places of code: options read from the source, without an import, and errors that say what a place is."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import methods
from pipeline.methods import code
from tests.conftest import ROOT
from trueodds.errors import ConfigError

OWN = """
from pipeline.methods.labels.smoothing import ConfidenceSmoothing
from pipeline.methods.losses.mse import mse as theirs

LIMIT = 3


def loss(z, t, *, cap: int = LIMIT): ...
def needs(z, t, *, cap: int): ...
def all_kinds(z, t, moment=None, *, a: int = -2, b: float = 2 / 7, c: str = "x", d: bool = True, e: float = -1e-3): ...
class Base:
    def __init__(self, *, first: float = 0.5) -> None: ...
class Child(Base): ...
class GrandChild(ConfidenceSmoothing): ...
class Plain: ...
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of this test alone: a module that stays imported is looked for in a folder that is deleted."""
    (tmp_path / "odds_places.py").write_text(OWN)
    (tmp_path / "odds_package" / "inner").mkdir(parents=True)
    for init in ("odds_package/__init__.py", "odds_package/inner/__init__.py"):
        (tmp_path / init).write_text("def at_top(z, t, *, k: int = 1): ...\nraise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("odds_")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", methods.PARTS)
def test_the_source_says_what_the_signature_says(name: str) -> None:
    part = methods.PARTS[name]
    assert isinstance(part.code, str)
    parameters = inspect.signature(code.load(part.code)).parameters.values()
    assert part.options() == {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert code.load(part.code).__module__ == code.module_of(part.code), "its plan hashes this file"
    if part.learner is not None:
        assert code.load(part.learner).__module__ == code.module_of(part.learner)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("all_kinds", {"a": -2, "b": 2 / 7, "c": "x", "d": True, "e": -1e-3}),
        ("Base", {"first": 0.5}),
        ("Child", {"first": 0.5}),
        ("GrandChild", {"epsilon": 0.1}),
        ("Plain", {}),
        ("theirs", {}),
    ],
)
def test_options_of_a_place(name: str, options: dict[str, object], own: None) -> None:
    place = f"odds_places:{name}"
    assert code.options_of(place) == options
    loaded = code.load(place)
    parameters = inspect.signature(loaded).parameters.values()
    assert {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY} == options == code.options_of(loaded)


def test_no_package_is_imported_for_its_options(own: None) -> None:
    assert code.options_of("odds_package.inner:at_top") == code.options_of("odds_package:at_top") == {"k": 1}
    assert not {"odds_package", "odds_package.inner"} & sys.modules.keys()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("odds_places:loss", r"option cap of odds_places:loss has the default LIMIT; a default is a number"),
        ("odds_places:needs", r"option cap of odds_places:needs has no default; a default is a number"),
        ("odds_places:nothing", r"defines no function or class 'nothing'"),
        ("odds_places.deeper:loss", r"no file of module 'odds_places.deeper'\); give package.module:name"),
        ("no_such_package:loss", r"no file of module 'no_such_package'"),
        ("odds_places", r"'odds_places' is not a place of code; give package.module:name"),
        ("odds_places:a b", r"is not a place of code"),
    ],
)
def test_a_place_that_cannot_be_read_is_an_error(place: str, message: str, own: None) -> None:
    with pytest.raises(ConfigError, match=message):
        methods.Part(place, "this test").options()


@pytest.mark.parametrize("place", ["odds_places:nothing", "no_such_package:loss", "odds_places.deeper:loss"])
def test_a_place_that_cannot_be_imported_is_an_error(place: str, own: None) -> None:
    with pytest.raises(ConfigError, match="is not a place of code"):
        code.load(place)


@pytest.mark.full
def test_a_table_of_names_with_a_place_needs_no_torch() -> None:
    program = (
        "import sys; from pipeline import methods;"
        " made = methods.compose('own+mmce', {'gamma': 4.0}, {**methods.PARTS, 'own': methods.Part("
        "'pipeline.methods.losses.bsce:bsce', 'this test')}, {});"
        " modules = ['pipeline.methods.losses.bsce', 'pipeline.methods.penalties.kernels'];"
        " assert made.modules() == modules, made.modules();"
        " print('torch' in sys.modules, made.build().name, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "own+mmce", "True"], done.stderr
