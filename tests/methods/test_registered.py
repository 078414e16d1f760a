"""Methods and nets of other distributions: lists, plans, training, and errors."""

from __future__ import annotations

import importlib
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch

from pipeline import config, data, methods, nets, starter
from pipeline.cli.nets import nets_table
from pipeline.cli.tables import methods_table
from pipeline.data import DataSet
from pipeline.training import loop
from pipeline.training.plan import Plan
from pipeline.training.resolution import plan_of
from pipeline.training.stored_network import read_net
from tests.conftest import ROOT
from tests.registered import install
from trueodds.errors import ConfigError
from trueodds.files import FileError, read_json
from trueodds.processes.extensions import ExtensionError, Group

LOSSES = """
import torch
from pipeline import methods
from pipeline.methods.targets import per_class


def poly1(logits_NC, targets, *, epsilon=1.0):
    log_p_NC = torch.log_softmax(logits_NC, 1)
    return per_class(-log_p_NC + epsilon * (1 - log_p_NC.exp()), targets)


POLY1 = methods.Part(poly1, "Leng et al. 2022", limits={"epsilon": (0, 10)})
SMOOTH = methods.Preset("poly1+mixup", "a preset", {"poly1.epsilon": 2.0, "mixup.alpha": 0.3})
"""
NETS = """
from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from pipeline.nets import Shape
from pipeline.nets.net import Net


class Linear(Net):
    def __init__(self, inside, classes, dropout):
        super().__init__()
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(inside, classes)

    def features(self, inputs):
        return self.dropout(inputs)


@dataclass(frozen=True)
class LinearShape(Shape):
    dropout: float
    kind: ClassVar = "vector"

    def build(self, inside, classes):
        return Linear(inside, classes, self.dropout)


LINEAR = LinearShape("linear", dropout=0.2)
"""
ENTRIES = {
    "trueodds.methods": {"poly1": "odds_own.losses:POLY1", "poly1_smooth": "odds_own.losses:SMOOTH"},
    "trueodds.nets": {"linear": "odds_own.nets:LINEAR"},
}


@pytest.fixture(autouse=True)
def forget_modules() -> Iterator[None]:
    yield
    for module in [name for name in sys.modules if name.partition(".")[0] == "odds_own"]:
        del sys.modules[module]
    importlib.invalidate_caches()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"odds_own/__init__.py": "", "odds_own/losses.py": LOSSES, "odds_own/nets.py": NETS}
    folder = install(tmp_path / "site", "odds-own", files, ENTRIES)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def wine() -> DataSet:
    return data.load(config.Data(dataset="wine"))


def plan(method: str = "poly1", net: str | None = "linear") -> Plan:
    training = config.Training(net=net, method=method, epochs=2)
    return plan_of(training, "wine", "vector", held_out=False)


@pytest.mark.full
def test_they_stand_in_every_list(own: Path) -> None:
    assert {"poly1", "poly1_smooth"} <= set(methods.names()) and nets.names("vector")[-1] == "linear"
    assert ("poly1", "epsilon=1.0", "Leng et al. 2022; from odds-own 1.0") in methods_table()
    assert any(row[0] == "poly1_smooth" and row[2] == "a preset; from odds-own 1.0" for row in methods_table())
    (row,) = (row for row in nets_table() if row[0] == "linear")
    assert row == ("linear", "3,100", "0.006", "vectors; dropout=0.2; from odds-own 1.0")


def test_a_method_combines_as_ours_do(own: Path) -> None:
    logits_NC, labels_N = torch.randn(8, 3), torch.arange(8) % 3
    p_N = torch.softmax(logits_NC, 1)[torch.arange(8), labels_N]
    expected = (-p_N.log() + 2 * (1 - p_N)).mean()
    assert torch.allclose(methods.build("poly1", epsilon=2.0).loss(logits_NC, labels_N), expected)
    preset = methods.resolve("poly1_smooth+mmce", {"beta": 0.5}).to_json()["parts"]
    assert preset["poly1"] == {"epsilon": 2.0} and preset["mixup"]["alpha"] == 0.3 and preset["mmce"]["beta"] == 0.5
    with pytest.raises(ConfigError, match=r"epsilon = 20.0 of method 'poly1': allowed is 0 to 10"):
        methods.resolve("poly1", {"epsilon": 20.0})


def test_the_plan_names_distribution_version_and_files(own: Path, tmp_path: Path) -> None:
    made = plan()
    titles = {"trueodds.methods: poly1 of odds-own==1.0", "trueodds.nets: linear of odds-own==1.0"}
    assert titles <= made.code.keys() and "pipeline/methods/targets.py" in made.code
    assert made.to_json()["distributions"] == ["odds-own==1.0"]
    ours = plan("ce", "mlp").to_json()
    assert "distributions" not in ours and not any("odds-own" in name for name in ours["code"])
    starter.write_code_hashes(tmp_path)
    watched = (tmp_path / starter.CODE / "plan").read_text()
    (own / "odds_own" / "losses.py").write_text(LOSSES + "# changed\n")
    changed = plan()
    assert {name for name in made.code if changed.code[name] != made.code[name]} == titles
    assert plan("ce", "mlp").to_json() == ours
    starter.write_code_hashes(tmp_path)
    assert (tmp_path / starter.CODE / "plan").read_text() != watched


def test_a_net_trains_with_a_loss_and_is_read_back(
    own: Path, wine: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    loop.train(wine, plan("poly1+smoothing"), tmp_path / "c").write(folder, tmp_path / "logits.npz", wine)
    settings = read_json(folder / "training.json")
    assert settings["distributions"] == ["odds-own==1.0"] and settings["net"]["name"] == "linear"
    assert type(read_net(folder, settings, wine)).__name__ == "Linear"
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(own)])
    with pytest.raises(FileError, match=r"holds the net 'linear', which is not .* pip install 'odds-own==1.0'"):
        read_net(folder, settings, wine)


@pytest.mark.parametrize(
    ("group", "entry", "value", "problem"),
    [
        ("methods", "focal", "odds_own.losses:POLY1", "trueodds and odds-own 1.0 both have the method 'focal'"),
        ("methods", "fl3", "odds_own.losses:POLY1", "trueodds and odds-own 1.0 both have the method 'fl3'"),
        (
            "methods",
            "poly1",
            "odds_own.losses:poly1",
            "of the distribution odds-own 1.0 is <function .*; allowed are",
        ),
        ("methods", "a+b", "odds_own.losses:POLY1", "allowed are letters, digits and underscores"),
        ("nets", "mlp", "odds_own.nets:LINEAR", "trueodds and odds-own 1.0 both have the net 'mlp'"),
        ("nets", "line", "odds_own.nets:LINEAR", "has the name 'linear' in its shape"),
        ("nets", "linear", "odds_own.nets:LinearShape", "allowed is an instance of a subclass of pipeline.nets.Shape"),
    ],
)
def test_an_object_that_cannot_be_used_is_an_error(
    group: str, entry: str, value: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"odds_own/__init__.py": "", "odds_own/losses.py": LOSSES, "odds_own/nets.py": NETS}
    folder = install(tmp_path, "odds-own", files, {f"trueodds.{group}": {entry: value}})
    monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(ExtensionError, match=problem.replace("+", r"\+")):
        methods.names() if group == "methods" else nets.names()


def test_the_page_shows_entry_points_that_the_library_reads() -> None:
    page = (ROOT / "docs" / "how-to" / "extend.md").read_text(encoding="utf-8")
    block = page[page.index("    [project]") : page.index("\nA name has")]
    project = tomllib.loads(textwrap.dedent(block))["project"]
    assert set(project["entry-points"]) == {f"trueodds.{group}" for group in get_args(Group)}
