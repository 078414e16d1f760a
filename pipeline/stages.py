"""One plain function per DVC stage: files in, files out. dvc.yaml is the graph; this file is what its nodes do.

Imports stand inside the functions so that a stage loads only what it needs, and so that its `deps` in dvc.yaml can
be held against what it really imports (tests/test_stages.py).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.config import Params

log = logging.getLogger("pipeline.stages")

ARTIFACTS = Path("artifacts")
DATA = ARTIFACTS / "data"
LABEL_COUNTS = DATA / "label_counts.npz"
MODEL = ARTIFACTS / "model"
PLAN = ARTIFACTS / "plan.json"
LOGITS = ARTIFACTS / "logits.npz"
SHIFT = ARTIFACTS / "shift"
CALIBRATOR = ARTIFACTS / "calibrator.json"
SELECTION = ARTIFACTS / "selection.json"
EVALUATION = ARTIFACTS / "evaluation"
BUNDLE = ARTIFACTS / "bundle"
CURVES = ARTIFACTS / "curves"
INT8 = ARTIFACTS / "bundle_int8"
FOLDED = ARTIFACTS / "model_calibrated.onnx"
CHECKPOINTS = Path(".checkpoints")


def fetch(params: Params) -> None:
    """Data set -> data/arrays.npz, card.json, checks.json, and label_counts.npz, which may be empty."""
    from pipeline import data
    from pipeline.data import label_counts
    from pipeline.data.splitting.sampling import OF_RECIPES

    DATA.mkdir(parents=True, exist_ok=True)
    dataset = data.load(params.data, OF_RECIPES.get(params.training.recipe), scratch=DATA)
    counts = None
    if (source := params.data.label_counts) is not None:
        counts = label_counts.load(source, dataset, Path(params.data.path), data.downloads())
    label_counts.write(LABEL_COUNTS, counts)
    data.save(dataset, DATA)


def plan(params: Params) -> None:
    """Parameters and code -> plan.json: what decides the net, so that nothing else trains it anew."""
    from trueodds.files import write_json

    start, watched = params.training.start, Path(params.data.path).resolve()
    if start is not None and Path(start).is_file() and not Path(start).resolve().is_relative_to(watched):
        log.warning("DVC does not watch %s: after changing it, run: dvc repro --force plan", start)
    ARTIFACTS.mkdir(exist_ok=True)
    write_json(PLAN, planned(params))


def fetched_card() -> dict[str, Any]:
    """The card of the data set that was fetched. Raises DataError where none was."""
    from pipeline import data

    return data.read_card(DATA)


def planned(params: Params, card: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The plan of a run as JSON: its settings as resolved, and the hashes of the code that it uses.

    card: of the data set that was fetched; None: the data set is what `params.data` names.
    """
    from pipeline import data

    kind = data.kind_of(params.data) if card is None else card["input"]["kind"]
    if params.training.model is not None:
        from pipeline.training import imported_model

        return imported_model.plan_of(params.training, params.data.path, kind)
    from pipeline.data.splitting.sampling import OF_RECIPES
    from pipeline.training.resolution import plan_of

    if card is not None:
        dataset, held_out = card["name"], data.HELD_OUT in card["splits"]
    else:
        dataset = params.data.dataset
        held_out = params.data.held_out_size is not None or params.training.recipe in OF_RECIPES
    return plan_of(params.training, dataset, kind, held_out=held_out).to_json()


def train(params: Params) -> None:
    """Arrays -> network, settings, epochs.csv, epoch_rows.npz, and logits.npz, which needs no torch to be read.

    Where `training.model` names an ONNX file, it is the network, and no epoch is run.
    """
    from pipeline import data

    dataset = data.read(DATA)
    if params.training.model is not None:
        from pipeline import foreign

        words = f"training.model = {params.training.model}"
        foreign.call("pipeline.training.imported_model:score_stored", params.training, DATA, MODEL, LOGITS, model=words)
        return
    from pipeline.training import loop
    from pipeline.training.machine.processes import join
    from pipeline.training.resolution import plan_of

    card = dataset.card
    held_out = data.HELD_OUT in card["splits"]
    resolved = plan_of(params.training, card["name"], card["input"]["kind"], held_out=held_out)
    with join(params.training.device) as processes:
        trained = loop.train(dataset, resolved, CHECKPOINTS, processes=processes)
        if processes.is_first:
            trained.write(MODEL, LOGITS, dataset)
        processes.wait()


def shift(params: Params) -> None:
    """Test images under corruptions, network -> shift/: their logits; without `evaluation.shift` only a word of it."""
    from trueodds.evaluation import shifted_logits

    if params.evaluation.shift is None:
        shifted_logits.write_none(SHIFT)
        return
    from functools import partial

    from pipeline import data
    from pipeline import shift as shifted
    from pipeline.export import onnx_graph
    from pipeline.training.batches import with_moments
    from pipeline.training.files import IMPORTED
    from pipeline.training.stored_network import read_net, read_settings, scorer
    from trueodds import logits

    dataset = data.read(DATA)
    settings, imported = read_settings(MODEL, dataset), MODEL / IMPORTED
    if imported.is_file():
        score: shifted.Score = partial(onnx_graph.run, imported, "logits")
    else:
        score = scorer(read_net(MODEL, settings, dataset), with_moments(dataset, settings))
    shifted.write(params.evaluation, params.data, dataset, logits.read(LOGITS, "test"), score, SHIFT)


def calibrate(params: Params) -> None:
    """Validation logits -> calibrator.json, and selection.json: the candidates' table, empty if one was named."""
    from pipeline.calibrate import check, fit
    from trueodds import logits
    from trueodds.files import write_json

    check(params.calibration)  # before a file is missed: the message of a mistyped name is the one to read
    calibrator, table = fit(params.calibration, logits.read(LOGITS, "val"), logits.notes(LOGITS))
    write_json(CALIBRATOR, calibrator.to_json())
    write_json(SELECTION, [asdict(line) for line in table])


def evaluate(params: Params) -> None:
    """Test logits and calibrator -> metrics.json, calibrators.csv (all calibrators, all metrics) and the pictures; and
    logits of corrupted rows, if there are any -> shift/: shift.json, shift.csv and pictures.
    """
    import shutil

    from pipeline import calibrate
    from pipeline.figures import evaluation as pictures
    from trueodds import logits
    from trueodds.evaluation import results, shifted_logits
    from trueodds.files import read_json, read_npz
    from trueodds.sums.positive import PositiveClass

    shifted = None if params.evaluation.shift is None else shifted_logits.read(SHIFT)  # before anything is drawn
    val, test = (logits.read(LOGITS, split) for split in ("val", "test"))
    names, positive = (read_json(DATA / "card.json")[key] for key in ("classes", "positive"))
    positive_class = None if positive is None else PositiveClass.of(positive, names)
    counts = read_npz(LABEL_COUNTS).get("counts")
    evaluated = results.evaluate(calibrate.read(CALIBRATOR), val, test, params.evaluation, positive_class, counts)
    evaluated.write(EVALUATION, logits.notes(LOGITS))
    model, method = params.training.model, params.training.method
    subject = f"{params.data.dataset}, {method if model is None else Path(model).name}"
    pictures.draw(evaluated, names, EVALUATION, subject)
    out = EVALUATION / "shift"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    if shifted is None:
        return
    from pipeline.figures import shift as shift_figures
    from trueodds.evaluation import shift

    under_shift = shift.evaluate(evaluated.calibrator, val, shifted, params.evaluation)
    under_shift.write(out)
    shift_figures.draw(under_shift, out, subject)
    log.info(shifted.description["note"])


def export(params: Params) -> None:
    """Network, calibrator, metrics -> bundle/: model.onnx, calibrator.json, card.json; of trees only a word of it."""
    from pipeline import calibrate, data
    from pipeline.export import to_bundle
    from pipeline.training.files import IMPORTED
    from pipeline.training.stored_network import read_net, read_settings
    from trueodds import logits
    from trueodds.bundle import write_none
    from trueodds.files import read_json

    dataset = data.read(DATA)
    if reason := to_bundle.reason_not_served(dataset.card):
        write_none(BUNDLE, reason)
        log.info("no bundle: %s", reason)
        return
    training, imported = read_settings(MODEL, dataset), MODEL / IMPORTED
    metrics, rows = read_json(EVALUATION / "metrics.json"), dataset.arrays["val"][0]
    validation, test = (logits.read(LOGITS, split) for split in ("val", "test"))
    rest = (calibrate.read(CALIBRATOR), dataset.card, training, metrics, rows, BUNDLE)
    if imported.is_file():
        to_bundle.export_imported(imported, *rest, validation=validation, test=test)
    else:
        net, tokenizer = read_net(MODEL, training, dataset), dataset.tokenizer
        to_bundle.export(net, *rest, validation=validation, test=test, tokenizer=tokenizer)


def fold() -> Path:
    """The bundle -> model_calibrated.onnx: rows in, calibrated probabilities out, for those who serve elsewhere.

    Raises:
        BundleError: no whole bundle.
        FoldError: a calibrator that is not affine in the logits.
    """
    from pipeline import data
    from pipeline.export.fold import fold as write
    from trueodds.bundle import Bundle

    bundle = Bundle.load(BUNDLE)
    write(bundle.model_path, bundle.calibrator, FOLDED, data.read(DATA).arrays["val"][0], bundle.card.input)
    return FOLDED


def draw_curves() -> list[Path]:
    """epochs.csv and epoch_rows.npz -> curves/: pictures of the run, as the papers draw theirs.

    Raises:
        FileError: the train stage has not run.
    """
    from pipeline.figures.training import draw
    from pipeline.training.files import EPOCH_ROWS, EPOCHS, IMPORTED, SETTINGS
    from trueodds.files import FileError, read_json

    try:
        settings, dataset = read_json(MODEL / SETTINGS), read_json(DATA / "card.json")["name"]
    except FileNotFoundError as error:
        raise FileError(f"{error.filename} does not exist; run the train stage first: dvc repro train") from None
    if (MODEL / IMPORTED).is_file():
        raise FileError(f"{MODEL} holds a model that was imported (training.model): there are no epochs to draw")
    drawn = draw(MODEL / EPOCHS, MODEL / EPOCH_ROWS, CURVES, f"{dataset}, {settings['method']['name']}")
    if not any(path.stem == "reliability" for path in drawn):
        log.info("for reliability and gradients name epochs in params.yaml, such as curves: [1, 10], and train again")
    return drawn


def draw_gamma_curve() -> list[Path]:
    """curves/gamma: g(p, gamma) of focal loss; needs no run."""
    from pipeline.figures.gamma import gamma_curve

    return [gamma_curve(CURVES / "gamma")]


def quantise(params: Params) -> Path:
    """The bundle -> bundle_int8/: quantised, calibrated anew by the same kind of calibrator, measured.

    Raises:
        BundleError: no whole bundle.
        QuantisationError: a graph that onnxruntime cannot quantise.
    """
    from pipeline import data
    from pipeline.export.quantise import quantise as write
    from pipeline.export.quantise import refit_with
    from trueodds.bundle import Bundle

    source, arrays = Bundle.load(BUNDLE), data.read(DATA).arrays
    fit = refit_with(source.calibrator.name, params.calibration)
    table = write(source, arrays["val"], arrays["test"], params.evaluation, fit, INT8)
    for key in ("error_rate", "nll", "ece"):
        was, now = source.card.metrics["after"][key], table["after"][key]
        log.info("%s: %.4f, int8 %.4f", key, was, now)
    return INT8


STAGES = {stage.__name__: stage for stage in (fetch, plan, train, shift, calibrate, evaluate, export)}
"""In the order of the graph, for machines without DVC: `trueodds all`."""


def check_names(params: Params, card: Mapping[str, Any] | None = None) -> None:
    """Refuse an unknown recipe, net, method, option, calibrator or corruption, and settings that do not fit, before
    anything long.

    card: as `planned` has it.

    Raises:
        ConfigError: naming it, what is allowed and the nearest.
        DataError: a shift of rows that are no images.
    """
    from pipeline import calibrate
    from trueodds.evaluation.entries import check_compared

    planned(params, card)
    calibrate.check(params.calibration)
    check_compared(params.evaluation.compare)
    if params.evaluation.shift is not None:
        from pipeline import data
        from pipeline import shift as shifted

        shifted.Options.of(params.evaluation.shift_options)
        shifted.check_kind(data.kind_of(params.data) if card is None else card["input"]["kind"])
