"""One plain function per DVC stage: files in, files out. dvc.yaml is the graph; this file is what its nodes do.

Imports stand inside the functions so that a stage loads only what it needs, and so that its `deps` in dvc.yaml can
be held against what it really imports (tests/test_stages.py).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config import Params

if TYPE_CHECKING:
    from pipeline.calibrators import Calibrator

log = logging.getLogger("pipeline.stages")

ARTIFACTS = Path("artifacts")
DATA = ARTIFACTS / "data"
MODEL = ARTIFACTS / "model"
LOGITS = ARTIFACTS / "logits.npz"
CALIBRATOR = ARTIFACTS / "calibrator.json"
EVALUATION = ARTIFACTS / "evaluation"
BUNDLE = ARTIFACTS / "bundle"
CHECKPOINTS = Path(".checkpoints")


def fetch(params: Params) -> None:
    """Data set -> data/arrays.npz, data/card.json."""
    from pipeline import data

    data.save(data.load(params.data), DATA)


def train(params: Params) -> None:
    """Arrays -> weights, settings, one row per epoch, and logits.npz: the waist between torch and numpy."""
    import csv

    from safetensors.torch import save_file

    from pipeline import data, logits
    from pipeline.files import write_json
    from pipeline.train import train as run

    dataset = data.read(DATA)
    result = run(dataset, params.training, CHECKPOINTS)
    MODEL.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in result.net.state_dict().items()}, MODEL / "weights.safetensors"
    )
    write_json(MODEL / "training.json", result.settings)
    with (MODEL / "epochs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(result.history[0]))
        writer.writeheader()
        writer.writerows(result.history)
    splits = {split: logits.Logits(values, dataset.arrays[split][1]) for split, values in result.logits.items()}
    logits.write(LOGITS, splits)
    result.checkpoint.remove()


def calibrate(params: Params) -> None:
    """Validation logits -> calibrator.json."""
    from pipeline import calibrators, logits
    from pipeline.files import write_json

    val = logits.read(LOGITS, "val")
    calibrator = calibrators.fit(params.calibration.calibrator, val.logits_NC, val.labels_N)
    for note in calibrator.notes():
        log.warning(note)
    write_json(CALIBRATOR, calibrator.to_json())


def evaluate(params: Params) -> None:
    """Test logits and calibrator -> metrics.json and the reliability diagram."""
    from pipeline import logits, report
    from pipeline.evaluate import evaluate as judge
    from pipeline.evaluate import sums_before_and_after
    from pipeline.files import write_json

    test, calibrator = logits.read(LOGITS, "test"), _calibrator()
    sums = sums_before_and_after(calibrator, test.logits_NC, test.labels_N)
    table = judge(sums, calibrator, params.evaluation)
    EVALUATION.mkdir(parents=True, exist_ok=True)
    write_json(EVALUATION / "metrics.json", table)
    title = f"{params.data.dataset}, {params.training.method}: top-label reliability on {table['n']:,} test rows"
    report.reliability_diagram(sums, table, EVALUATION / "reliability", title)


def export(params: Params) -> None:
    """Weights, calibrator, metrics -> bundle/: model.onnx, calibrator.json, card.json."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from pipeline import data, nets
    from pipeline.export import export as write
    from pipeline.files import FileError, read_json

    dataset, training = data.read(DATA), read_json(MODEL / "training.json")
    shape = training["net"]
    channels, classes = dataset.card["input"]["channels"], len(dataset.card["classes"])
    net = nets.build(shape["name"], channels, classes, width=shape["width"], depth=shape["depth"])
    if training["data_sha256"] != dataset.card["sha256"]:
        raise FileError(f"{MODEL} was trained on other data than {DATA} holds; run the stages in order: dvc repro")
    try:
        net.load_state_dict(load_file(MODEL / "weights.safetensors"))
    except (SafetensorError, RuntimeError) as error:
        raise FileError(
            f"{MODEL / 'weights.safetensors'} does not hold this net ({error}); run: dvc repro train"
        ) from None
    metrics, images = read_json(EVALUATION / "metrics.json"), dataset.arrays["val"][0]
    write(net, _calibrator(), dataset.card, training, metrics, images, BUNDLE)


STAGES = {stage.__name__: stage for stage in (fetch, train, calibrate, evaluate, export)}
"""In the order of the graph, for machines without DVC: `python -m pipeline all`."""


def check_names(params: Params) -> None:
    """Refuse an unknown recipe, net, method, option or calibrator before anything long starts.

    Raises:
        ConfigError: naming it, what is allowed and the nearest.
    """
    from pipeline import calibrators, methods, nets
    from pipeline.recipes import resolve

    nets.check(resolve(params.training, params.data.dataset).net)
    methods.build(params.training.method, **params.training.method_options)
    calibrators.get(params.calibration.calibrator)


def _calibrator() -> Calibrator:
    from pipeline import calibrators
    from pipeline.files import FileError, read_json

    try:
        return calibrators.from_json(read_json(CALIBRATOR))
    except FileNotFoundError:
        raise FileError(f"{CALIBRATOR} does not exist; run the calibrate stage first: dvc repro calibrate") from None
    except (TypeError, ValueError) as error:
        raise FileError(f"{CALIBRATOR}: {error}; run: dvc repro calibrate") from None
