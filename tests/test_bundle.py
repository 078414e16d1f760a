"""Bundles: loaded only whole and unaltered, published once, found by name and never outside MODELS."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from trueodds import calibrators
from trueodds.bundle import audit_log
from trueodds.bundle.audit_log import HistoryError
from trueodds.bundle.bundle import Bundle, BundleError, Reference
from trueodds.bundle.model_folder import find_default, role, standing
from trueodds.bundle.publishing import publish, rollback_default

CLASSES, SHAPE = ["cat", "dog", "owl"], (2, 3, 1)
PIXELS = np.arange(6, dtype=np.uint8).reshape(SHAPE) * 40


def make_model(path: Path, seed: int = 0, classes: int = 3) -> None:
    """logits = flatten(pixels) / 255 @ W, in ONNX."""
    weights = np.random.default_rng(seed).normal(0, 2, (6, classes)).astype(np.float32) / 255
    nodes = [
        helper.make_node("Cast", ["pixels"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["floats"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["N", *SHAPE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", classes])],
        [helper.make_tensor("weights", TensorProto.FLOAT, weights.shape, weights.tobytes(), raw=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def infer_with(path: Path) -> Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.floating]]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def infer(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.floating]:
        logits: npt.NDArray[np.float32] = session.run(["logits"], {"pixels": pixels})[0]
        return logits

    return infer


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_bundle(folder: Path, edit: Callable[[dict[str, Any]], object] = lambda card: None) -> Path:
    """A whole bundle; `edit` changes the card before it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    make_model(folder / "model.onnx")
    calibrator = calibrators.get("temperature")(temperature=1.5)  # type: ignore[call-arg]
    (folder / "calibrator.json").write_text(json.dumps(calibrator.to_json()))
    logits = infer_with(folder / "model.onnx")(PIXELS[None])
    card = {
        "name": "tiny",
        "classes": list(CLASSES),
        "input": {"kind": "image", "height": 2, "width": 3, "channels": 1},
        "method": "ce",
        "training": {"epochs": 1},
        "metrics": {},
        "data_sha256": "0" * 64,
        "code_sha256": "1" * 64,
        "files": {name: digest(folder / name) for name in ("model.onnx", "calibrator.json")},
        "golden": {
            "input_b64": base64.b64encode(PIXELS.tobytes()).decode(),
            "logits": logits[0].tolist(),
            "probabilities": calibrator(logits)[0].tolist(),
        },
    }
    edit(card)
    (folder / "card.json").write_text(json.dumps(card))
    return folder


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle")


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file's bytes and time of change."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_validation_confidences_are_kept_on_sixty_cells(tmp_path: Path) -> None:
    found = Reference.of([0.0, 1 / 60, 0.5, 0.5001, 1.0, 1 + 1e-9])
    assert (found.rows, found.counts[0], found.counts[29], found.counts[30], found.counts[59]) == (6, 2, 1, 1, 2)
    assert found.mean == pytest.approx((1 / 60 + 1.0001 + 2) / 6)
    for bad, words in (([], "no rows"), ([1.5], r"allowed is \[0, 1\]")):
        with pytest.raises(ValueError, match=words):
            Reference.of(bad)
    whole = make_bundle(tmp_path / "whole", lambda card: card.update(reference=found.model_dump()))
    assert Bundle.load(whole).card.reference == found
    assert Bundle.load(make_bundle(tmp_path / "without")).card.reference is None
    for change in ({"rows": 7}, {"counts": [1] * 59}):
        wrong = found.model_dump() | change
        broken = make_bundle(tmp_path / "broken", lambda card, wrong=wrong: card.update(reference=wrong))  # type: ignore[misc]
        with pytest.raises(BundleError, match=r"card\.json: reference"):
            Bundle.load(broken)


def test_load(good: Path) -> None:
    loaded = Bundle.load(str(good))
    assert loaded.card.classes == CLASSES
    assert loaded.calibrator == calibrators.Temperature(1.5)
    assert loaded.version == digest(good / "card.json")[:12]
    assert loaded.model_path == good / "model.onnx"
    assert loaded.card.input.shape == SHAPE
    assert np.array_equal(loaded.golden_input(), PIXELS[None])
    loaded.check_golden(infer_with(loaded.model_path))


@pytest.mark.parametrize("name", ["model.onnx", "calibrator.json", "card.json"])
def test_a_missing_file(good: Path, name: str) -> None:
    (good / name).unlink()
    with pytest.raises(BundleError, match=f"{name} is missing: .* is not a whole bundle"):
        Bundle.load(good)


def test_a_missing_folder(good: Path) -> None:
    for path in (good / "nowhere", good / "card.json"):
        with pytest.raises(BundleError, match="is not a whole bundle"):
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
    (lambda card: card["input"].update(channels=4), "input.channels: Input should be 1 or 3"),
    (lambda card: card["input"].update(height=0), "input.height: Input should be greater than or equal to 1"),
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
    make_model(good / "other.onnx", seed=1)
    with pytest.raises(BundleError, match=r"golden logits differ by .*: not the model that was exported"):
        loaded.check_golden(infer_with(good / "other.onnx"))
    make_model(good / "more.onnx", classes=4)
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


def test_publish(good: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    target = publish(good, models)
    assert target == models / "tiny" / Bundle.load(good).version
    assert find_default(models) == target
    assert sorted(path.name for path in target.iterdir()) == ["calibrator.json", "card.json", "model.onnx"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert Bundle.load(target).card == Bundle.load(good).card


def test_publishing_again_changes_nothing(good: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    first = publish(good, models)
    before = tree(models)
    assert publish(good, models, None) == first
    assert publish(first, models, None) == first  # from the published folder itself
    assert tree(models) == before
    publish(good, models)
    assert {name: content for name, (content, _) in tree(models).items()} == {k: v[0] for k, v in before.items()}


def test_default_is_kept_or_moved(good: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    first = publish(good, models)
    other = make_bundle(tmp_path / "other", lambda card: card.update(method="focal"))
    second = publish(other, models, None)
    assert second != first
    assert find_default(models) == first
    publish(other, models)
    assert find_default(models) == second


def test_another_models_default_is_never_taken(good: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    first = publish(good, models, "shadow")
    assert find_default(models) == first, "a model's first version answers, and so does the first model"
    other = publish(make_bundle(tmp_path / "other", lambda card: card.update(name="other")), models)
    assert find_default(models) == first and role(models, "other", "default") == other.name
    newer = make_bundle(tmp_path / "newer", lambda card: card.update(method="focal"))
    second = publish(newer, models, "shadow")
    assert role(models, "tiny", "default") == first.name and role(models, "tiny", "shadow") == second.name
    assert "?model=other. Calls that name no model are answered by tiny" in standing(models, "other", other.name)
    publish(other, models, unnamed=True)
    assert find_default(models) == other
    publish(newer, models)
    assert find_default(models) == other and role(models, "tiny", "default") == second.name
    assert [(c.what, c.before, c.after) for c in audit_log.read(models)] == [
        ("default", None, "tiny"),
        ("default", "tiny", "other"),
    ]
    assert rollback_default(models) == "tiny"
    assert find_default(models) == second, "by the version that answers for it now"
    with pytest.raises(HistoryError, match="no other model is known to have answered"):
        rollback_default(models)


def test_publishing_over_a_damaged_folder(good: Path, tmp_path: Path) -> None:
    target = publish(good, tmp_path / "models")
    (target / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(BundleError, match="altered or damaged"):
        publish(good, tmp_path / "models")


def test_many_publishers_at_once(good: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            targets = {future.result() for future in [pool.submit(publish, good, models) for _ in range(16)]}
        assert len(targets) == 1
        assert find_default(models) == targets.pop()
        assert sorted(path.name for path in models.iterdir()) == [".id", "default", "history.jsonl", "tiny"]
        names = sorted(path.name for path in (models / "tiny").iterdir())
        assert len(names) == 3 and {"default", "history.jsonl"} < set(names), "what was written aside is left over"
        assert len((models / "tiny" / "history.jsonl").read_text().splitlines()) == 1
        assert len((models / "history.jsonl").read_text().splitlines()) == 1
        (models / "history.jsonl").unlink()
        (models / "default").unlink()
        for path in (models / "tiny").iterdir():
            path.rename(tmp_path / f"away-{len(list(tmp_path.iterdir()))}")


def test_a_broken_bundle_is_not_published(good: Path, tmp_path: Path) -> None:
    (good / "model.onnx").unlink()
    with pytest.raises(BundleError, match="is missing"):
        publish(good, tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_the_name_default_is_taken(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="the name 'default' is taken"):
        publish(make_bundle(tmp_path / "b", lambda card: card.update(name="default")), tmp_path / "models")


def test_no_default_yet(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no model yet: .*Publish one: python -m pipeline publish"):
        find_default(tmp_path)


@pytest.mark.parametrize("named", ["..", "../x", "x/..", "/etc", "/", "", "tiny", "tiny/a/b", "./tiny", "a/../tiny/v",
                                   "tiny/gone", ".tiny/v", "tiny/.aside"])  # fmt: skip
def test_default_never_leads_out(tmp_path: Path, named: str) -> None:
    models = tmp_path / "models"
    for folder in ("tiny/v", "tiny/a/b", "tiny/.aside", ".tiny/v", "a"):
        (models / folder).mkdir(parents=True)
    (tmp_path / "x").mkdir()
    (models / "default").write_text(named + "\n")
    with pytest.raises(BundleError, match="which is not a folder <name>/<version> in"):
        find_default(models)
    (models / "default").write_text("tiny/v\n")
    assert find_default(models) == models / "tiny/v"


def test_default_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "default").write_bytes(b"\xff\xfe")
    with pytest.raises(BundleError, match="which is not a folder"):
        find_default(tmp_path)


def test_a_class_that_stands_twice_is_refused(tmp_path: Path) -> None:
    def repeat(card: dict[str, Any]) -> None:
        card["classes"][1] = card["classes"][0]

    folder = make_bundle(tmp_path / "bundle", repeat)
    with pytest.raises(BundleError, match=r"classes: .*stands twice"):
        Bundle.load(folder)
