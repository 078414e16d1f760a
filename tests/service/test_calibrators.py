"""Every calibrator in a bundle: written, loaded, checked against its golden answer, served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from service.models.model import Model
from tests.service.app_client import Client
from tests.service.tiny_bundle import CLASSES, pictures, write_bundle
from trueodds import calibrators
from trueodds.bundle import Bundle


def fitted(name: str) -> calibrators.Calibrator:
    rng = np.random.default_rng(0)
    labels_N = np.arange(240) % len(CLASSES)
    logits_NC = rng.normal(0, 2, (240, len(CLASSES))) + 2.5 * np.eye(len(CLASSES))[labels_N]
    return calibrators.fit(logits_NC, labels_N, name)


@pytest.mark.parametrize("name", calibrators.names())
def test_a_bundle_of_every_calibrator_loads_and_answers_as_it_did(name: str, tmp_path: Path) -> None:
    calibrator = fitted(name)
    model = Model.load(write_bundle(tmp_path, calibrator=calibrator), 1)
    assert model.bundle.calibrator == calibrator
    images_NHWC = np.array(pictures(9), np.uint8)
    scores = model.score(images_NHWC)
    assert np.isfinite(scores.probabilities_NC).all() and (scores.probabilities_NC > 0).all()
    assert scores.probabilities_NC.sum(axis=1) == pytest.approx(np.ones(9), abs=1e-12)


@pytest.mark.parametrize("name", ["structured_matrix", "isotonic", "spline"])
def test_the_service_answers_with_it(name: str, serve: Callable[..., Client]) -> None:
    calibrator = fitted(name)
    answer = serve(calibrator=calibrator).post("/predict", json={"instances": pictures(2)})
    assert answer.status_code == 200
    for prediction in answer.json()["predictions"]:
        assert prediction["confidence"] == max(prediction["probabilities"])
        assert sum(prediction["probabilities"]) == pytest.approx(1)


def test_a_step_beside_the_golden_answer_does_not_refuse_the_bundle(tmp_path: Path) -> None:
    """Another processor's logits differ in their last bits, and isotonic steps lie at scores such as the golden one."""
    folder = write_bundle(tmp_path / "plain", calibrator=calibrators.Identity())
    scores = np.sort(Bundle.load(folder).card.golden.probabilities)
    step = calibrators.Histogram("pooled", [[float(scores[-1])]], [[0.1, 0.9]], 0.0)
    bundle = Bundle.load(write_bundle(tmp_path / "step", calibrator=step))
    golden = np.array([bundle.card.golden.logits])
    shifts = [np.abs(step(golden) - step(golden + np.eye(4) * d)).max() for d in (1e-6, -1e-6)]
    assert max(shifts) > 0.1, "the step is where the test wants it"
    for d in (1e-6, -1e-6):
        bundle.check_golden(lambda _, d=d: golden + np.eye(4)[:1] * d)  # type: ignore[misc]
