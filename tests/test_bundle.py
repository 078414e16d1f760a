"""Bundles: loaded only whole and unaltered, and written so."""

from __future__ import annotations

import doctest
import hashlib
import importlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from tests.service.tiny_bundle import change_card, write_bundle, write_model
from trueodds import calibrators
from trueodds.bundle import Bundle, BundleError, Infer, Reference
from trueodds.calibrators.conformal import SetSettings

CLASSES, SHAPE = ("cat", "dog", "owl"), (2, 3, 1)
PIXELS = np.arange(6, dtype=np.uint8).reshape(SHAPE) * 40


def infer_with(path: Path) -> Infer:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def infer(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.floating]:
        logits: npt.NDArray[np.float32] = session.run(["logits"], {"images": pixels})[0]
        return logits

    return infer


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_bundle(folder: Path, edit: Callable[[dict[str, Any]], object] = lambda card: None) -> Path:
    """A whole bundle, whose card `edit` changes after it was written."""
    write_bundle(folder, shape=SHAPE, classes=CLASSES, calibrator=calibrators.Temperature(1.5))
    card = json.loads((folder / "card.json").read_text())
    edit(card)
    (folder / "card.json").write_text(json.dumps(card))
    return folder


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle")


def test_validation_confidences_are_kept_on_sixty_cells(tmp_path: Path) -> None:
    reference = Reference.of([0.0, 1 / 60, 0.5, 0.5001, 1.0, 1 + 1e-9])
    assert (reference.rows, reference.counts[0], reference.counts[29], reference.counts[30], reference.counts[59]) == (
        6,
        2,
        1,
        1,
        2,
    )
    assert reference.mean == pytest.approx((1 / 60 + 1.0001 + 2) / 6)
    for bad, words in (([], "no rows"), ([1.5], r"allowed is \[0, 1\]")):
        with pytest.raises(ValueError, match=words):
            Reference.of(bad)
    whole = make_bundle(tmp_path / "whole", lambda card: card.update(reference=reference.model_dump()))
    assert Bundle.load(whole).card.reference == reference
    assert Bundle.load(make_bundle(tmp_path / "without")).card.reference is None
    for change in ({"rows": 7}, {"counts": [1] * 59}):
        wrong = reference.model_dump() | change
        broken = make_bundle(tmp_path / "broken", lambda card, wrong=wrong: card.update(reference=wrong))  # type: ignore[misc]
        with pytest.raises(BundleError, match=r"card\.json: reference"):
            Bundle.load(broken)


def test_load(good: Path) -> None:
    loaded = Bundle.load(str(good))
    assert loaded.card.classes == list(CLASSES)
    assert loaded.calibrator == calibrators.Temperature(1.5)
    assert loaded.version == digest(good / "card.json")[:12]
    assert loaded.model_path == good / "model.onnx"
    assert loaded.card.input.shape == SHAPE
    loaded.check_golden(infer_with(loaded.model_path))


def test_what_is_written_is_what_is_loaded(good: Path, tmp_path: Path) -> None:
    source = Bundle.load(good)
    logits_C = infer_with(source.model_path)(PIXELS[None])[0]
    reference = Reference.of([0.5, 0.9])

    def write(out: Path, classes: int = 3, pixels: npt.NDArray[np.uint8] = PIXELS) -> Bundle:
        calibrator = calibrators.Vector([0.5] * classes, [0.1] * classes)
        return Bundle.write(
            out,
            source.model_path,
            calibrator,
            source.card,
            golden_input=pixels,
            golden_logits=logits_C,
            reference=reference,
        )

    out = tmp_path / "deep" / "bundle"
    written = write(out)
    assert written == Bundle.load(out) and written.version != source.version
    assert np.array_equal(written.golden_input(), PIXELS[None])
    assert written.card.golden.logits == logits_C.tolist() and written.card.reference == reference
    assert written.card.files["model.onnx"] == digest(good / "model.onnx")
    written.check_golden(infer_with(written.model_path))
    assert write(tmp_path / "again").version == written.version, "equal arguments, equal cards"
    with pytest.raises(BundleError, match="the golden input does not have shape"):
        write(out, pixels=PIXELS[:1])
    with pytest.raises(ValueError, match="3"):
        write(out, classes=2)
    assert Bundle.load(out) == written, "a refused one replaces nothing"
    change_card(out, reference=None)
    assert write(out) == written
    assert [path.name for path in out.parent.iterdir()] == ["bundle"]


@pytest.fixture
def with_sets(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "sets", classes=CLASSES, sets=SetSettings.of("lac", {"levels": [0.9, 0.7]}))


def test_conformal_sets_travel_with_their_calibrator(with_sets: Path, tmp_path: Path) -> None:
    source = Bundle.load(with_sets)
    assert source.conformal is not None and source.card.sets is not None and "conformal.json" in source.files
    assert [source.conformal.at(rule.level) for rule in source.card.sets.rules] == list(source.card.sets.rules)
    assert source.promising(None, tmp_path / "copy").conformal == source.conformal
    assert "sets" not in json.loads((make_bundle(tmp_path / "none") / "card.json").read_text())

    def write(calibrator: calibrators.Calibrator, **other: Any) -> Bundle:
        golden = {"golden_input": source.golden_input()[0], "golden_logits": source.card.golden.logits}
        return Bundle.write(tmp_path / "out", source.model_path, calibrator, source.card, **golden, **other)

    with pytest.raises(BundleError, match=r"is of the probabilities of another calibrator than calibrator\.json"):
        write(calibrators.Temperature(1.2), conformal=source.conformal)
    with pytest.raises(BundleError, match=r"conformal\.json is missing; write the bundle with the sets"):
        write(source.calibrator)


def test_damaged_sets_are_refused(with_sets: Path) -> None:
    card = json.loads((with_sets / "card.json").read_text())
    change_card(with_sets, sets={**card["sets"], "rules": card["sets"]["rules"][:1] * 2})
    with pytest.raises(BundleError, match="two rules have the same level"):
        Bundle.load(with_sets)
    moved = {**card["sets"]["rules"][0], "thresholds": [0.5]}
    change_card(with_sets, sets={**card["sets"], "rules": [moved]})
    with pytest.raises(BundleError, match=r"the rule of level 0\.9 does not follow from the calibration scores"):
        Bundle.load(with_sets)
    change_card(with_sets, sets=card["sets"])
    (with_sets / "conformal.json").write_text("{}")
    with pytest.raises(BundleError, match=r"conformal\.json has sha256"):
        Bundle.load(with_sets)
    change_card(with_sets, files={**card["files"], "conformal.json": digest(with_sets / "conformal.json")})
    with pytest.raises(BundleError, match=r"conformal\.json: it does not hold conformal sets"):
        Bundle.load(with_sets)


def test_a_copied_card_keeps_nothing_of_other_files(good: Path, tmp_path: Path) -> None:
    change_card(good, reference=Reference.of([0.5]).model_dump(), notes=["kept"])
    source = Bundle.load(good)
    written = Bundle.write(
        tmp_path / "out",
        source.model_path,
        calibrators.Identity(),
        source.card,
        golden_input=source.golden_input()[0],
        golden_logits=source.card.golden.logits,
    )
    assert written.card.notes == ["kept"] and written.card.reference is None
    assert written.card.golden.probabilities != source.card.golden.probabilities
    assert written.card.files["calibrator.json"] == digest(tmp_path / "out" / "calibrator.json")


@pytest.mark.parametrize("name", ["model.onnx", "calibrator.json", "card.json"])
def test_a_missing_file(good: Path, name: str) -> None:
    (good / name).unlink()
    with pytest.raises(BundleError, match=f"{name} is missing: .* is not a complete bundle"):
        Bundle.load(good)


def test_a_missing_folder(good: Path) -> None:
    for path in (good / "nowhere", good / "card.json"):
        with pytest.raises(BundleError, match="is not a complete bundle; write it with trueodds export"):
            Bundle.load(path)


@pytest.mark.parametrize("name", ["model.onnx", "calibrator.json"])
def test_one_altered_byte(good: Path, name: str) -> None:
    data = bytearray((good / name).read_bytes())
    data[-2] ^= 1
    (good / name).write_bytes(data)
    with pytest.raises(BundleError, match=f"{name} has sha256 .* its card says .*: altered or damaged"):
        Bundle.load(good)


CARDS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda card: card.update(name="../up"), "name: String should match pattern"),
    (lambda card: card.update(name=""), "name: String should match pattern"),
    (lambda card: card.update(classes=[]), "classes: List should have at least 1 item"),
    (lambda card: card.update(format=2), "format: Input should be 1"),
    (lambda card: card.update(date="today"), "date: Extra inputs are not permitted"),
    (lambda card: card.pop("method"), "method: Field required"),
    (lambda card: card["input"].update(channels=4), "input.image.channels: Input should be 1 or 3"),
    (lambda card: card["input"].update(height=0), "input.image.height: Input should be greater than or equal to 1"),
    (lambda card: card.update(positive="lion"), "unknown positive class 'lion'"),
    (lambda card: card["files"].pop("model.onnx"), "its card says None"),
]


@pytest.mark.parametrize(("edit", "message"), CARDS, ids=[message for _, message in CARDS])
def test_cards_that_do_not_validate(tmp_path: Path, edit: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(BundleError, match=message):
        Bundle.load(make_bundle(tmp_path, edit))


def test_a_card_that_is_not_json(good: Path) -> None:
    (good / "card.json").write_text("{")
    with pytest.raises(BundleError, match=r"card.json: the file: Invalid JSON"):
        Bundle.load(good)


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"calibrator": "tempratur"}', '{"calibrator": "temperature"}'])
def test_a_calibrator_that_cannot_be_restored(good: Path, text: str) -> None:
    (good / "calibrator.json").write_text(text)
    card = json.loads((good / "card.json").read_text())
    card["files"]["calibrator.json"] = digest(good / "calibrator.json")
    (good / "card.json").write_text(json.dumps(card))
    with pytest.raises(BundleError, match=r"calibrator.json: "):
        Bundle.load(good)


def test_another_model_is_noticed(good: Path) -> None:
    loaded = Bundle.load(good)
    write_model(good / "other.onnx", SHAPE, 3, seed=1)
    with pytest.raises(BundleError, match=r"golden logits differ by .*: not the model that was exported"):
        loaded.check_golden(infer_with(good / "other.onnx"))
    write_model(good / "more.onnx", SHAPE, 4)
    with pytest.raises(BundleError, match=r"answers with shape \(1, 4\), expected \(1, 3\), one logit per class"):
        loaded.check_golden(infer_with(good / "more.onnx"))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_infinite_answer_is_noticed(good: Path, bad: float) -> None:
    with pytest.raises(BundleError, match=r"golden logits differ by (nan|inf)"):
        Bundle.load(good).check_golden(lambda pixels: np.full((1, 3), bad))


def test_last_bits_may_differ(good: Path) -> None:
    loaded, infer = Bundle.load(good), infer_with(good / "model.onnx")
    loaded.check_golden(lambda pixels: infer(pixels) + 5e-4)
    with pytest.raises(BundleError, match=r"golden logits differ by 0.01"):
        loaded.check_golden(lambda pixels: infer(pixels) + 0.01)


GOLDENS: list[tuple[dict[str, Any], str]] = [
    ({"probabilities": [0.2, 0.3, 0.5]}, "golden probabilities differ by"),
    ({"logits": [0.0]}, "1 golden logits, expected 3"),
    ({"probabilities": [0.5, 0.5]}, "2 golden probabilities, expected 3"),
    ({"input_b64": "AAAA"}, r"the golden input does not have shape \(2, 3, 1\)"),
    ({"input_b64": "A"}, "the golden input is not base64"),
    ({"input_b64": "!!!!"}, "the golden input is not base64"),
]


@pytest.mark.parametrize(("golden", "message"), GOLDENS, ids=[message for _, message in GOLDENS])
def test_goldens_that_do_not_agree(tmp_path: Path, golden: dict[str, Any], message: str) -> None:
    loaded = Bundle.load(make_bundle(tmp_path, lambda card: card["golden"].update(golden)))
    with pytest.raises(BundleError, match=message):
        loaded.check_golden(infer_with(loaded.model_path))


def test_a_class_that_stands_twice_is_refused(tmp_path: Path) -> None:
    def repeat(card: dict[str, Any]) -> None:
        card["classes"][1] = card["classes"][0]

    folder = make_bundle(tmp_path / "bundle", repeat)
    with pytest.raises(BundleError, match=r"classes: .*occurs twice"):
        Bundle.load(folder)


@pytest.mark.parametrize("module", ["trueodds.bundle", "trueodds.bundle.card"])
def test_the_examples_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted and not results.failed


def test_a_calibrator_of_other_classes(good: Path) -> None:
    (good / "calibrator.json").write_text('{"calibrator": "temperature", "temperature": 2.0, "fitted_classes": 7}')
    card = json.loads((good / "card.json").read_text())
    card["files"]["calibrator.json"] = digest(good / "calibrator.json")
    (good / "card.json").write_text(json.dumps(card))
    with pytest.raises(BundleError, match=r"calibrator.json was fitted on 7 classes, but card.json names 3: put back"):
        Bundle.load(good)
