"""Summaries of versions: what the hashes vouch for is read as it stands, and all else is checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.label_bundle import write_labels
from tests.service.tiny_bundle import change_card, write_bundle
from trueodds.bundle import ActAlone, BundleError, Card, PublishedModels, open_models
from trueodds.bundle.contents import ENTRIES, VersionSummary, version_of
from trueodds.calibrators import Platt
from trueodds.calibrators.conformal import SetSettings
from trueodds.texts import promise_text

PROMISE = ActAlone.of_text("threshold=.93,risk=.05,confidence=.95")
BY_TAGS = PROMISE.model_copy(update={"threshold": None, "tags": {"a": 0.9}})
POOLED = {"after": {"whole": {"ece": 0.03, "nll": 0.4}, "labels": []}}
BUNDLES: dict[str, Callable[[Path], Path]] = {
    "image": write_bundle,
    "vector": lambda folder: write_bundle(folder, features=("a", "b")),
    "text": lambda folder: write_bundle(folder, words=("good", "bad")),
    "two classes": lambda folder: write_bundle(
        folder, classes=("no", "yes"), positive="yes", calibrator=Platt([0.1, -0.1], [1.0, 1.1], fitted_classes=2)
    ),
    "promise": lambda folder: write_bundle(folder, act_alone=PROMISE),
    "promise by tags": lambda folder: write_bundle(folder, act_alone=BY_TAGS),
    "sets": lambda folder: write_bundle(folder, sets=SetSettings(method="lac")),
    "labels": lambda folder: write_labels(folder, metrics=POOLED).directory,
    "no numbers": lambda folder: write_bundle(folder, metrics={}),
}


def published(folder: Path, write: Callable[[Path], Path] = write_bundle) -> tuple[PublishedModels, Path, str]:
    """A place with one version, its folder, and its name."""
    models = open_models(folder / "models")
    version = models.publish(write(folder / "bundle"))
    return models, version, version.parent.name


@pytest.mark.parametrize("kind", BUNDLES)
def test_the_summary_by_hashes_is_that_of_the_checked_bundle(kind: str, tmp_path: Path) -> None:
    models, folder, name = published(tmp_path, BUNDLES[kind])
    by_hashes = VersionSummary.of_files(folder, folder.name)
    card, calibrator = models.summary(name, folder.name)
    assert by_hashes is not None and by_hashes == VersionSummary.of(card.model_dump(), calibrator.name)
    numbers = card.metrics.get("after", {})
    shown = numbers.get("whole", numbers)
    assert by_hashes.numbers == ({"ECE": shown["ece"], "NLL": shown["nll"]} if shown else {})
    assert by_hashes.act_alone == ("" if card.act_alone is None else card.act_alone.short)
    assert models.version_summary(name, folder.name) == by_hashes


@pytest.mark.parametrize("promise", [PROMISE, BY_TAGS])
def test_a_promise_has_the_same_words(promise: ActAlone) -> None:
    assert promise_text(promise.threshold, promise.risk) == promise.short


@pytest.mark.parametrize("file", ["card.json", "calibrator.json", "model.onnx", "MODEL_CARD.md"])
@pytest.mark.parametrize("change", ["altered", "gone"])
def test_a_damaged_version_is_refused(file: str, change: str, tmp_path: Path) -> None:
    models, folder, name = published(tmp_path)
    if change == "gone":
        (folder / file).unlink()
    else:
        (folder / file).write_bytes((folder / file).read_bytes() + b"{")
    assert VersionSummary.of_files(folder, folder.name) is None
    with pytest.raises(BundleError, match=file.replace(".", r"\.")):
        models.version_summary(name, folder.name)


def test_a_card_of_another_release_is_left_to_the_whole_check(tmp_path: Path) -> None:
    """An entry that this release does not know, in a folder with the card's own hash."""
    models, folder, name = published(tmp_path)
    change_card(folder, of_tomorrow=1)
    other = renamed(folder)
    assert VersionSummary.of_files(other, other.name) is None
    with pytest.raises(BundleError, match="of_tomorrow"):
        models.version_summary(name, other.name)


@pytest.mark.parametrize("wrong", [[], 3, {"files": []}, {"files": {"calibrator.json": 3}}, {"files": {}}])
def test_a_card_that_is_none_is_left_to_the_whole_check(wrong: Any, tmp_path: Path) -> None:
    models, folder, name = published(tmp_path)
    (folder / "card.json").write_text(json.dumps(wrong))
    other = renamed(folder)
    assert VersionSummary.of_files(other, other.name) is None
    with pytest.raises(BundleError):
        models.version_summary(name, other.name)


def test_the_known_entries_are_those_of_a_card() -> None:
    assert ENTRIES | {"calibrator_distribution"} == Card.model_fields.keys()


def renamed(folder: Path) -> Path:
    """Name a version by its card's hash."""
    return folder.rename(folder.with_name(version_of((folder / "card.json").read_bytes())))
