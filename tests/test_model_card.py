"""MODEL_CARD.md: what the card knows, in Hugging Face's format, and no more than that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard, ModelCardData

from pipeline.config import Evaluation
from tests.service.tiny_bundle import write_bundle
from tests.test_evaluate import table
from trueodds import calibrators
from trueodds.bundle import MODEL_CARD, Bundle, BundleError, Description, Reference, RiskCoverage, open_models
from trueodds.evaluation.measurement import measure
from trueodds.metrics import CalibrationSums
from trueodds.sums.positive import PositiveClass

NOTE = "A note of whoever\nevaluated it."


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """With the numbers of 400 rows, as an evaluation writes them."""
    folder, draw = tmp_path_factory.mktemp("bundle"), np.random.default_rng(0)
    z, fit = draw.normal(0, 3, (400, 4)), calibrators.Temperature(1.7)
    y = np.array([draw.choice(4, p=p) for p in calibrators.Temperature(2.0)(z)])
    source = Bundle.load(write_bundle(folder / "source", metrics=table(fit, z, y, Evaluation()), positive=None))
    p = fit(z)
    return Bundle.write(
        folder / "bundle",
        source.model_path,
        fit,
        source.card.model_copy(
            update={
                "training": {"net": {"name": "resnet8"}, "seed": 3},
                "notes": [NOTE],
                "risk_coverage": RiskCoverage.of(CalibrationSums.from_probabilities(p, y), "test"),
            }
        ),
        golden_input=source.golden_input()[0],
        golden_logits=source.card.golden.logits,
        reference=Reference.of(p.max(axis=1)),
    )


def text_of(bundle: Bundle) -> str:
    return (bundle.directory / MODEL_CARD).read_text(encoding="utf-8")


def front_matter(text: str) -> ModelCardData:
    data = ModelCard(text).data
    assert isinstance(data, ModelCardData)
    return data


def test_its_numbers_are_those_of_the_card(bundle: Bundle) -> None:
    text, after = text_of(bundle), bundle.card.metrics["after"]
    for name, row in (("ece", "ECE"), ("nll", "NLL"), ("mce", "MCE"), ("classwise_ece", "class-wise ECE")):
        cell = f"{after[name]:.4f} ({after[f'{name}_lower']:.4f} to {after[f'{name}_upper']:.4f})"
        assert re.search(rf"^\| {row} \| [^|]+ \| {re.escape(cell)} \|$", text, re.MULTILINE), row
    lower, upper = 1 - after["error_rate_upper"], 1 - after["error_rate_lower"]
    assert lower < after["accuracy"] < upper
    assert f"| {after['accuracy']:.4f} ({lower:.4f} to {upper:.4f}) |" in text
    assert "Measured on 400 test rows with intervals of 95%. Binned errors have 15 bins." in text
    assert f"ECE of {after['floor_mean']:.4f} on average" in text and f"p = {after['calibration_p_value']:.3g}" in text
    curve = bundle.card.risk_coverage
    assert curve and (point := curve.at(0.9)).risk is not None
    assert f"| 0.90 | {point.coverage:.1%} of 400 | {point.risk:.2%} ({point.risk_lower:.2%} to" in text
    assert "- A note of whoever evaluated it.\n" in text and "name: resnet8" in text


def test_hugging_face_reads_it(bundle: Bundle) -> None:
    data = front_matter(text_of(bundle))
    assert (data.library_name, data.pipeline_tag) == ("trueodds", "image-classification")
    results = {result.metric_type: result.metric_value for result in data.eval_results or []}
    after = bundle.card.metrics["after"]
    assert results["ece"] == after["ece"] and results["accuracy"] == after["accuracy"]
    assert {(result.dataset_type, result.dataset_revision) for result in data.eval_results or []} == {
        (bundle.card.name, bundle.card.data_sha256)
    }
    titles = re.findall("^## (.+)$", text_of(bundle), re.MULTILINE)
    assert titles == [
        *("Intended use", "Training data and method", "Metrics", "Calibration", "Limitations", "How to load it")
    ]


def test_it_can_be_loaded_as_it_says(bundle: Bundle) -> None:
    (code,) = re.findall("^```python\n(.+?)^```", text_of(bundle), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("FOLDER", str(bundle.directory)), names)
    assert names["probabilities"][0] == pytest.approx(bundle.card.golden.probabilities, abs=1e-6)


def test_without_numbers_it_claims_none(tmp_path: Path) -> None:
    odd = ("a|b`c\nd", *(f"class {k}" for k in range(30)))
    vectors = write_bundle(tmp_path, features=["x", "y"], classes=odd, metrics={}, positive=None)
    text = text_of(Bundle.load(vectors))
    data = front_matter(text)
    assert data.pipeline_tag == "tabular-classification" and data.eval_results is None
    assert "No metrics were given when the bundle was written" in text and "ECE" not in text
    assert "`a|b'c d`, `class 0`" in text and "`class 18`, and 11 more" in text and "class 19" not in text
    assert Bundle.load(write_bundle(tmp_path / "two", classes=("no", "yes"), positive="yes"))
    assert "The positive class is `yes`." in text_of(Bundle.load(tmp_path / "two"))


def test_of_a_positive_class_each_error_is_named_with_its_quantity(tmp_path: Path) -> None:
    """p(fraud) twice too high: its figures come first, and the others are said to be of the more probable class."""
    rng, positive = np.random.default_rng(0), PositiveClass("fraud", 1)
    p_N = rng.beta(2, 18, 4000)
    y_N, fit = (rng.random(4000) < p_N / 2).astype(int), calibrators.Identity()
    logits_NC = np.column_stack([np.zeros(4000), np.log(p_N / (1 - p_N))])
    settings = Evaluation()
    measured = measure(fit, logits_NC, y_N, settings, positive)
    after = {**measured.values, "positive": measured.positive}
    metrics = {"after": after, "before": after, "n": 4000, "level": 0.95, "bins": 15}
    text = text_of(Bundle.load(write_bundle(tmp_path, classes=("ok", "fraud"), positive="fraud", metrics=metrics)))
    assert re.search(r"`p\(fraud\)` is (9|10)\.\d\d% on average, and [45]\.\d\d% of the rows are `fraud`\.", text)
    places = [text.index(f"would show an ECE of {name}") for name in ("`p(fraud)`", "the more probable class")]
    assert places == sorted(places) and "is above that." in text[places[0] : places[1]]
    assert "would show an ECE of 0." not in text


def test_it_is_hashed_and_published_like_the_others(bundle: Bundle, tmp_path: Path) -> None:
    assert bundle.files == ("model.onnx", "calibrator.json", MODEL_CARD, "card.json")
    published = open_models(tmp_path / "models").publish(bundle.directory)
    assert sorted(path.name for path in published.iterdir()) == sorted(bundle.files)
    with (published / MODEL_CARD).open("a", encoding="utf-8") as file:
        file.write("It is never wrong.\n")
    with pytest.raises(BundleError, match=r"MODEL_CARD\.md has sha256 .* altered or damaged"):
        Bundle.load(published)


def test_a_bundle_whose_card_lists_none_is_whole(bundle: Bundle, tmp_path: Path) -> None:
    """Bundles are published for years; those of before it must go on answering."""
    bare = tmp_path / "bare"
    bare.mkdir()
    card = bundle.card.model_copy(
        update={"files": {name: digest for name, digest in bundle.card.files.items() if name != MODEL_CARD}}
    )
    for name in ("model.onnx", "calibrator.json"):
        (bare / name).write_bytes((bundle.directory / name).read_bytes())
    (bare / "card.json").write_text(card.model_dump_json())
    assert Bundle.load(bare).files == ("model.onnx", "calibrator.json", "card.json")


def test_equal_descriptions_make_equal_cards(bundle: Bundle, tmp_path: Path) -> None:
    stated = {name: getattr(bundle.card, name) for name in Description.model_fields}
    again = Bundle.write(
        tmp_path / "again",
        bundle.model_path,
        bundle.calibrator,
        Description(**stated),
        golden_input=bundle.golden_input()[0],
        golden_logits=bundle.card.golden.logits,
        reference=bundle.card.reference,
    )
    assert text_of(again) == text_of(bundle) and again.version == bundle.version
