"""Calibrators of other distributions, and classes that no distribution registers."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trueodds
from pipeline import starter
from pipeline.cli.tables import calibrators_table
from tests.conftest import ROOT, environment
from tests.registered import BLEND, install, install_blend
from tests.service.tiny_bundle import write_bundle
from trueodds import calibrators
from trueodds.bundle import Bundle, BundleError
from trueodds.calibrators.selection import default_candidates, default_words
from trueodds.errors import ConfigError
from trueodds.evaluation.entries import check_entries
from trueodds.processes.extensions import ExtensionError

RNG = np.random.default_rng(0)
LOGITS_NC = RNG.normal(0, 4, (600, 3))
LABELS_N = np.where(RNG.random(600) < 0.7, LOGITS_NC.argmax(axis=1), RNG.integers(0, 3, 600))


@pytest.fixture(autouse=True)
def forget_modules() -> Iterator[None]:
    """Let no test find the modules of another's distribution."""
    yield
    for module in [name for name in sys.modules if name.partition(".")[0] in ("odds_blend", "other")]:
        del sys.modules[module]
    importlib.invalidate_caches()


@pytest.fixture
def blend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = install_blend(tmp_path / "site")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_it_stands_in_every_list(blend: Path) -> None:
    assert calibrators.names()[-1] == "blend"
    assert calibrators.options("blend") == {"steps": 20}
    row = next(row for row in calibrators_table() if row[0] == "blend")
    assert row[1] == "steps=20" and row[2].startswith("Blend with") and row[2].endswith("From odds-blend 1.0.")
    check_entries(["blend steps=10", "all"])
    calibrators.check("blend", {"steps": 5})
    with pytest.raises(ConfigError, match=r"unknown calibrator 'blent'.* Did you mean 'blend'"):
        calibrators.check("blent")
    with pytest.raises(ConfigError, match="unknown option of 'blend' 'step'; allowed: steps"):
        calibrators.check("blend", {"step": 5})


def test_it_is_fitted_by_its_name_and_restored_from_json(blend: Path) -> None:
    fitted = trueodds.fit(LOGITS_NC, LABELS_N, "blend", steps=10)
    tree = json.loads(json.dumps(fitted.to_json()))
    assert tree["calibrator"] == "blend" and tree["distribution"] == "odds-blend==1.0" and 0 < tree["weight"] < 1
    restored = calibrators.from_json(tree)
    assert restored == fitted and np.array_equal(restored(LOGITS_NC), fitted(LOGITS_NC))
    assert calibrators.origin(fitted) == ("odds-blend", "1.0")
    assert "distribution" not in trueodds.fit(LOGITS_NC, LABELS_N, "temperature").to_json()


def test_it_is_a_candidate_of_select_by_default_as_it_asks_to_be(blend: Path) -> None:
    assert default_candidates(3, 100)[-1] == default_candidates(2, 100)[-1] == "blend"
    assert default_words().endswith(". From other distributions: blend")
    chosen = calibrators.select(LOGITS_NC, LABELS_N)
    assert {line.name for line in chosen.table} == set(default_candidates(3, 600)) and chosen.table[-1].nll is not None
    (blend / "odds_blend" / "blend.py").write_text(BLEND.replace("joins_select: ClassVar[bool] = True", ""))
    code = "from trueodds.calibrators.selection import default_candidates; print(default_candidates(3, 100))"
    assert "blend" not in run_with(blend, "-c", code).stdout


def test_without_it_a_loader_says_what_to_install(blend: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = trueodds.fit(LOGITS_NC, LABELS_N, "blend")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(blend)])
    sentence = (
        "calibrator 'blend' belongs to the distribution odds-blend 1.0, which is not installed here; install it:"
        " pip install 'odds-blend==1.0'"
    )
    tree = {"calibrator": "blend", "distribution": "odds-blend==1.0", "weight": fitted.weight}  # type: ignore[attr-defined]
    with pytest.raises(ExtensionError, match=sentence):
        calibrators.from_json(tree)
    with pytest.raises(ExtensionError, match=r"its distribution is 'x; rm -rf \.'; allowed is NAME==VERSION"):
        calibrators.from_json({**tree, "distribution": "x; rm -rf ."})
    with pytest.raises(ConfigError, match="unknown calibrator 'blend'"):
        calibrators.from_json({"calibrator": "blend", "weight": 0.5})


def test_a_bundle_names_its_distribution_on_the_card(
    blend: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Bundle.load(write_bundle(tmp_path / "plain"))
    assert "calibrator_distribution" not in json.loads((plain.directory / "card.json").read_text())
    written = Bundle.write(
        tmp_path / "own",
        plain.model_path,
        calibrators.get("blend")(0.25),  # type: ignore[call-arg, arg-type]
        plain.card,
        golden_input=plain.golden_input()[0],
        golden_logits=plain.card.golden.logits,
    )
    stated = json.loads((written.directory / "card.json").read_text())["calibrator_distribution"]
    assert stated == {"name": "odds-blend", "version": "1.0"}
    text = (written.directory / "MODEL_CARD.md").read_text()
    assert "`blend` of the distribution odds-blend, version 1.0" in text and "pip install 'odds-blend==1.0'" in text
    assert Bundle.load(written.directory).calibrator == written.calibrator
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(blend)])
    with pytest.raises(BundleError, match=r"own/calibrator.json: .* pip install 'odds-blend==1.0'"):
        Bundle.load(written.directory)


def test_a_changed_file_or_version_changes_the_hashes_that_dvc_watches(
    blend: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hashes(folder: str) -> dict[str, str]:
        starter.write_code_hashes(tmp_path / folder)
        return {path.name: path.read_text() for path in (tmp_path / folder / starter.CODE).iterdir()}

    before = hashes("before")
    assert "  trueodds.calibrators: blend of odds-blend==1.0\n" in before["calibrate"]
    assert "blend" not in before["fetch"]
    assert hashes("same") == before
    with (blend / "odds_blend" / "__init__.py").open("a") as file:
        file.write("# changed\n")
    changed = hashes("changed")
    assert {stage for stage in before if changed[stage] != before[stage]} == {"calibrate", "evaluate", "export"}
    newer = install(
        tmp_path / "newer", "odds-blend", {}, {"trueodds.calibrators": {"blend": "odds_blend.blend:Blend"}}, "2.0"
    )
    monkeypatch.syspath_prepend(str(newer))
    assert "blend of odds-blend==2.0\n" in hashes("newer")["calibrate"]


def test_a_clash_with_our_name_is_an_error_that_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(install_blend(tmp_path, entry="temperature")))
    for ask in (calibrators.names, lambda: calibrators.get("temperature"), lambda: calibrators.check("temperature")):
        with pytest.raises(
            ExtensionError, match=r"trueodds and odds-blend 1.0 both have the calibrator 'temperature'.*pip uninstall"
        ):
            ask()
    assert calibrators.get("vector") is calibrators.Vector


def test_two_distributions_with_one_name_are_an_error_that_names_both(
    blend: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(install_blend(tmp_path / "second", name="other-blend")))
    with pytest.raises(
        ExtensionError, match=r"other-blend 1.0 and odds-blend 1.0 both register the calibrator 'blend'"
    ):
        trueodds.fit(LOGITS_NC, LABELS_N, "blend")


@pytest.mark.parametrize(
    ("entry", "value", "text", "problem"),
    [
        ("blend", "other.place:Blend", "", "has no attribute 'Blend'"),
        ("blend", "nowhere.place:Blend", "", "No module named 'nowhere'"),
        ("blend", "other.place:Blend", "1 / 0", "ZeroDivisionError"),
        ("blend", "other.place:Blend", "Blend = 3", "is 3; allowed is a subclass of trueodds.Calibrator"),
        ("mixed", "other.place:Blend", BLEND, "has the name 'blend' in its class"),
        ("my-blend", "other.place:Blend", BLEND, "allowed are letters, digits and underscores"),
    ],
)
def test_an_object_that_cannot_be_used_is_an_error_that_names_its_distribution(
    entry: str, value: str, text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"other/__init__.py": "", "other/place.py": text}
    monkeypatch.syspath_prepend(str(install(tmp_path, "other", files, {"trueodds.calibrators": {entry: value}})))
    sentence = f"calibrator '{entry}' of the distribution other 1.0.*{problem}"
    with pytest.raises(ExtensionError, match=sentence) as raised:
        calibrators.get(entry)
    assert str(raised.value).endswith("pip uninstall other")


def test_the_command_lists_it_and_nothing_is_imported_before_it_is_used(blend: Path) -> None:
    listed = run_with(blend, "-m", "trueodds", "calibrators")
    assert any(line.startswith("blend ") for line in listed.stdout.splitlines())
    code = (
        "import sys, trueodds; print('importlib.metadata' in sys.modules);"
        " trueodds.calibrators.names(); print('odds_blend' in sys.modules)"
    )
    assert run_with(blend, "-c", code).stdout.split() == ["False", "False"]


def run_with(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = environment() | {"PYTHONPATH": f"{ROOT}:{folder}"}
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, check=True)


@pytest.fixture
def own_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[calibrators.Calibrator]:
    """A class of a module that belongs to no distribution."""
    (tmp_path / "odds_blend.py").write_text(BLEND)
    monkeypatch.syspath_prepend(str(tmp_path))
    kind: type[calibrators.Calibrator] = importlib.import_module("odds_blend").Blend
    return kind


def test_fit_and_select_take_a_class(own_class: type[calibrators.Calibrator]) -> None:
    fitted = trueodds.fit(LOGITS_NC, LABELS_N, own_class, steps=10)
    assert type(fitted) is own_class and fitted == own_class.fit(LOGITS_NC, LABELS_N, steps=10)  # type: ignore[call-arg]
    by_name = trueodds.fit(LOGITS_NC, LABELS_N, "temperature")
    assert trueodds.fit(LOGITS_NC, LABELS_N, calibrators.Temperature) == by_name
    table = calibrators.select(LOGITS_NC, LABELS_N, candidates=["identity", own_class, (own_class, {"steps": 3})]).table
    assert [(line.name, line.options) for line in table] == [("identity", {}), ("blend", {}), ("blend", {"steps": 3})]
    assert all(line.nll is not None for line in table)
    with pytest.raises(ConfigError, match="unknown option of 'blend' 'step'"):
        trueodds.fit(LOGITS_NC, LABELS_N, own_class, step=10)
    assert "distribution" not in fitted.to_json()


@pytest.mark.parametrize("kind", [int, calibrators.Calibrator])
def test_a_class_that_is_not_a_calibrator_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="is not a calibrator; allowed are a name, and a subclass"):
        trueodds.fit(LOGITS_NC, LABELS_N, kind)


def test_a_class_with_a_name_of_ours_is_refused(own_class: Any) -> None:
    own_class.name = "temperature"
    with pytest.raises(ConfigError, match="Blend has the name 'temperature', which belongs to TrueOdds"):
        trueodds.fit(LOGITS_NC, LABELS_N, own_class)
