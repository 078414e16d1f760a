"""One function per DVC stage, which reads and writes files. The graph of the stages is dvc.yaml.

Imports stand inside the functions. A stage thus loads only what it needs, and tests/test_stages.py can compare its
`deps` in dvc.yaml with what it really imports.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
CONFORMAL = ARTIFACTS / "conformal.json"
EVALUATION = ARTIFACTS / "evaluation"
BUNDLE = ARTIFACTS / "bundle"
CURVES = ARTIFACTS / "curves"
INT8 = ARTIFACTS / "bundle_int8"
FOLDED = ARTIFACTS / "model_calibrated.onnx"
CHECKPOINTS = Path(".checkpoints")
CODE = ARTIFACTS / "code"
"""Hashes of the installed code, also of other distributions. Only the graph that `trueodds init` writes has them."""
UNWATCHED = "DVC does not watch %s in this graph; after a change of it, run: dvc repro --force %s"


def fetch(params: Params) -> None:
    """Load and split the data set; write arrays.npz, card.json, checks.json and label_counts.npz to artifacts/data.

    label_counts.npz is empty if `data.label_counts` is null.
    """
    from pipeline import data
    from pipeline.data import label_counts
    from pipeline.data.splitting.sampling import OF_RECIPES
    from trueodds.processes import extensions

    DATA.mkdir(parents=True, exist_ok=True)
    dataset = data.load(params.data, OF_RECIPES.get(params.training.recipe), scratch=DATA)
    for extension in () if CODE.is_dir() else extensions.lookup("datasets", [params.data.dataset]):
        log.warning(UNWATCHED, extension.distribution, "fetch")
    counts = None
    if (source := params.data.label_counts) is not None:
        counts = label_counts.load(source, dataset, Path(params.data.path), data.downloads())
    label_counts.write(LABEL_COUNTS, counts)
    data.save(dataset, DATA)


def plan(params: Params) -> None:
    """Write plan.json: the resolved settings and code hashes of the net. Only a changed plan trains it again."""
    from trueodds.files import write_json

    start, watched = params.training.start, Path(params.data.path).resolve()
    if start is not None and Path(start).is_file() and not Path(start).resolve().is_relative_to(watched):
        log.warning("DVC does not watch %s: after changing it, run: dvc repro --force plan", start)
    ARTIFACTS.mkdir(exist_ok=True)
    made = make_plan(params)
    if not CODE.is_dir():
        for distribution in made.get("distributions", []):
            log.warning(UNWATCHED, distribution, "plan")
    write_json(PLAN, made)


def fetched_card() -> dict[str, Any]:
    """Return the card of the fetched data set. Raises DataError if there is none."""
    from pipeline import data

    return data.read_card(DATA)


def make_plan(params: Params, card: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the plan of a run as JSON: its resolved settings, and the hashes of the code that it uses.

    Args:
        params: The parameters of the run.
        card: The card of the fetched data set; None: the plan relies on `params.data` alone.
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
    """Train the network; write it, its settings, epochs.csv and epoch_rows.npz to artifacts/model, and logits.npz.

    logits.npz can be read without torch. If `training.model` names an ONNX file, that file is the network and no epoch
    is run.
    """
    from pipeline import data

    dataset = data.read(DATA)
    if params.training.model is not None:
        from pipeline import foreign

        words = f"training.model = {params.training.model}"
        foreign.call("pipeline.training.imported_model:score_file", params.training, DATA, MODEL, LOGITS, model=words)
        return
    from pipeline.training import ensemble, loop
    from pipeline.training.machine.processes import join
    from pipeline.training.resolution import plan_of

    card = dataset.card
    held_out = data.HELD_OUT in card["splits"]
    resolved = plan_of(params.training, card["name"], card["input"]["kind"], held_out=held_out)
    with join(params.training.device) as processes:
        run = loop.train if resolved.recipe.members == 1 else ensemble.train
        trained = run(dataset, resolved, CHECKPOINTS, processes=processes)
        if processes.is_first:
            trained.write(MODEL, LOGITS, dataset)
        processes.wait()


def shift(params: Params) -> None:
    """Write the network's logits on corrupted test images to shift/; a note only, if `evaluation.shift` is null."""
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
    """Fit the calibrator on the validation logits; write calibrator.json, selection.json and conformal.json.

    selection.json is the table of candidates. It is empty if a calibrator was named. conformal.json has the conformal
    sets, fitted on other validation rows. It is null if there are none.
    """
    from pipeline.calibrate import check, fit, fit_conformal, fitting_rows, set_settings
    from trueodds import calibrators, logits
    from trueodds.files import write_json

    check(params.calibration)  # first, because a mistyped name matters more than a missing file
    validation, sets = logits.read(LOGITS, "val"), set_settings(params.calibration)
    calibrator, table = fit(params.calibration, fitting_rows(sets, validation), logits.notes(LOGITS))
    if (whose := calibrators.origin(calibrator)) is not None and not CODE.is_dir():
        log.warning(UNWATCHED, whose, "calibrate")
    write_json(CALIBRATOR, calibrator.to_json())
    write_json(SELECTION, [asdict(line) for line in table])
    write_json(CONFORMAL, fit_conformal(sets, calibrator, validation))


def evaluate(params: Params) -> None:
    """Measure the calibrated test logits; write metrics.json, calibrators.csv and the diagrams.

    calibrators.csv holds every metric of every calibrator. Logits of corrupted rows, if there are any, are measured in
    shift/: shift.json, shift.csv and diagrams.
    """
    import shutil

    from pipeline import calibrate
    from pipeline.figures import evaluation as pictures
    from trueodds import logits
    from trueodds.evaluation import results, shifted_logits
    from trueodds.files import read_json, read_npz
    from trueodds.sums.positive import PositiveClass

    shifted = None if params.evaluation.shift is None else shifted_logits.read(SHIFT)  # fails before anything is drawn
    val, test = (logits.read(LOGITS, split) for split in ("val", "test"))
    names, positive = (read_json(DATA / "card.json")[key] for key in ("classes", "positive"))
    positive_class = None if positive is None else PositiveClass.of(positive, names)
    counts = read_npz(LABEL_COUNTS).get("counts")
    if (sets := calibrate.read_conformal(CONFORMAL)) is not None:
        val = calibrate.fitting_rows(sets[0], val)  # the compared calibrators are fitted on the same rows
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
    from pipeline.figures import shift_diagrams
    from trueodds.evaluation import shift

    under_shift = shift.evaluate(evaluated.calibrator, val, shifted, params.evaluation)
    under_shift.write(out)
    shift_diagrams.draw(under_shift, out, subject)
    log.info(shifted.description["note"])


def export(params: Params) -> None:
    """Write the bundle: model.onnx, calibrator.json and card.json. For trees, only a note is written."""
    from pipeline import calibrate, data
    from pipeline.export import to_bundle
    from pipeline.training.files import IMPORTED
    from pipeline.training.stored_network import read_net, read_settings
    from trueodds import logits
    from trueodds.bundle import write_none
    from trueodds.files import read_json

    dataset = data.read(DATA)
    if reason := to_bundle.reason_against_serving(dataset.card):
        write_none(BUNDLE, reason)
        log.info("no bundle: %s", reason)
        return
    training, imported = read_settings(MODEL, dataset), MODEL / IMPORTED
    metrics, rows = read_json(EVALUATION / "metrics.json"), dataset.arrays["val"][0]
    validation, test = (logits.read(LOGITS, split) for split in ("val", "test"))
    sets = calibrate.read_conformal(CONFORMAL)
    rest = (calibrate.read(CALIBRATOR), dataset.card, training, metrics, rows, BUNDLE)
    if imported.is_file():
        to_bundle.export_model_file(imported, *rest, validation=validation, test=test, sets=sets)
    else:
        net, tokenizer = read_net(MODEL, training, dataset), dataset.tokenizer
        to_bundle.export(net, *rest, validation=validation, test=test, sets=sets, tokenizer=tokenizer)


def fold() -> Path:
    """Write model_calibrated.onnx, from rows to calibrated probabilities, to serve the bundle with other software.

    Raises:
        BundleError: The bundle is missing or not complete.
        FoldError: The calibrator is not affine in the logits.
    """
    from pipeline import data
    from pipeline.export.fold import fold as write
    from trueodds.bundle import Bundle

    bundle = Bundle.load(BUNDLE)
    write(bundle.model_path, bundle.calibrator, FOLDED, data.read(DATA).arrays["val"][0], bundle.card.input)
    return FOLDED


def draw_curves() -> list[Path]:
    """Draw epochs.csv and epoch_rows.npz to curves/: diagrams of the training run, like those in the papers.

    Raises:
        FileError: The train stage has not run, or the model was imported.
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
    title, recipe = f"{dataset}, {settings['method']['name']}", settings["recipe"]
    if average := next((name.upper() for name in ("ema", "swa") if recipe[name]), None):
        title += f", {average} on validation and test rows"
    drawn = draw(MODEL / EPOCHS, MODEL / EPOCH_ROWS, CURVES, title)
    if not any(path.stem == "reliability" for path in drawn):
        log.info("for reliability and gradients name epochs in params.yaml, such as curves: [1, 10], and train again")
    return drawn


def draw_gamma_curve() -> list[Path]:
    """Draw g(p, gamma) of focal loss to curves/gamma. Needs no run."""
    from pipeline.figures.gamma_diagram import gamma_curve

    return [gamma_curve(CURVES / "gamma")]


def quantise(params: Params) -> Path:
    """Write the quantised bundle to bundle_int8/, with a calibrator of the same kind fitted anew, and measure it.

    Raises:
        BundleError: The bundle is missing or not complete.
        QuantisationError: onnxruntime cannot quantise the graph.
    """
    from pipeline import data
    from pipeline.export.quantise import quantise as write
    from pipeline.export.quantise import refit_with
    from trueodds.bundle import Bundle

    source = Bundle.load(BUNDLE)
    fit = refit_with(source.calibrator.name, params.calibration)
    table = write(source, data.read(DATA), params.evaluation, fit, INT8)
    for key in ("error_rate", "nll", "ece"):
        was, now = source.card.metrics["after"][key], table["after"][key]
        log.info("%s: %.4f, int8 %.4f", key, was, now)
    return INT8


STAGES = {stage.__name__: stage for stage in (fetch, plan, train, shift, calibrate, evaluate, export)}
"""The stages in the graph's order, for `trueodds all`, which runs them without DVC."""


def check_names(params: Params, card: Mapping[str, Any] | None = None) -> None:
    """Check, before anything long starts, all names in the parameters and whether the settings fit each other.

    Args:
        params: The parameters of the run.
        card: The card of the fetched data set; None: the check relies on `params.data` alone.

    Raises:
        ConfigError: An unknown recipe, net, method, option, calibrator or corruption, or settings that do not fit.
        DataError: `evaluation.shift` is set and the rows are not images.
    """
    from pipeline import calibrate
    from trueodds import calibrators
    from trueodds.evaluation.entries import ALL, check_entries, name_and_options

    make_plan(params, card)
    calibrate.check(params.calibration)
    check_entries(params.evaluation.compare)
    entries = [name_and_options(entry)[0] for entry in params.evaluation.compare]
    compared = calibrators.names(has_groups=True) if ALL in entries else entries
    calibrate.check_groups(params.data.groups, params.calibration, compared)
    if params.evaluation.shift is not None:
        from pipeline import data
        from pipeline import shift as shifted

        shifted.ShiftOptions.of(params.evaluation.shift_options)
        shifted.check_kind(data.kind_of(params.data) if card is None else card["input"]["kind"])
