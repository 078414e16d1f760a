"""Export of a trained net as a bundle: an ONNX graph that ends at the logits, its calibrator, and a card."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from pipeline.data.raw import Inputs, Kind
from pipeline.export.onnx_graph import run
from pipeline.training.batches import NORMALISERS, VectorNormaliser
from trueodds.bundle import METRICS, MODEL, Bundle, CardSets, Description, Reference, RiskCoverage
from trueodds.calibrators import Calibrator
from trueodds.calibrators.conformal import ConformalSets, SetSettings
from trueodds.errors import UserError
from trueodds.files import write_bytes
from trueodds.importing.onnx_file import without_metadata
from trueodds.inputs import SERVED, Input, InputKind
from trueodds.logits import Logits
from trueodds.metrics import CalibrationSums

TOLERANCE = 1e-4
"""Allowed difference of a logit, relative to the largest logit or to 1 if that is larger (float32 has seven digits)."""
CHECKED_ROWS = 256
Sets = tuple[SetSettings, ConformalSets]
"""Conformal sets with their settings."""
OPSET = 18
OPEN: dict[Kind, tuple[str, ...]] = {"image": ("batch",), "vector": ("batch",), "text": ("batch", "tokens")}
"""Dimensions of a graph's input that are variable, from the first one on."""


class ExportError(UserError, RuntimeError):
    """The exported graph does not compute what the trained net computes."""


class Servable(nn.Module):
    """A net with its normalisation: rows as the card's kind of input has them -> logits (N, K)."""

    mean_C: Tensor
    std_C: Tensor

    def __init__(self, net: nn.Module, moments: dict[str, list[float]], kind: Kind) -> None:
        super().__init__()
        self.net, self.kind = net, kind
        normaliser = NORMALISERS[kind].of(moments, torch.device("cpu"))
        self.register_buffer("mean_C", normaliser.mean_C)
        self.register_buffer("std_C", normaliser.std_C)
        self._normalise = {"image": self._pixels, "vector": self._features, "text": self._words}[kind]

    def forward(self, rows: Tensor) -> Tensor:
        """Return the logits (N, K) of rows."""
        logits: Tensor = self.net(self._normalise(rows))
        return logits

    def _pixels(self, images_NHWC: Tensor) -> Tensor:
        """Normalise images to N x C x H x W."""
        # Channels first: onnxruntime needs 24 us to broadcast over rows of three floats and 2 us over planes.
        planes_NCHW = images_NHWC.permute(0, 3, 1, 2).float() / 255
        return (planes_NCHW - self.mean_C[:, None, None]) / self.std_C[:, None, None]

    def _features(self, vectors_ND: Tensor) -> Tensor:
        """Standardise vectors."""
        return VectorNormaliser(self.mean_C, self.std_C)(vectors_ND)

    def _words(self, ids_NL: Tensor) -> Tensor:
        """Return the word ids unchanged."""
        return ids_NL


def export(
    net: nn.Module,
    calibrator: Calibrator,
    data_card: dict[str, Any],
    training: dict[str, Any],
    metrics: dict[str, Any],
    validation_rows: Inputs,
    out: Path,
    *,
    validation: Logits | None = None,
    test: Logits | None = None,
    sets: Sets | None = None,
    tokenizer: str = "",
) -> Bundle:
    """Export a net to the bundle `out`, after a check of its graph on real validation rows.

    Args:
        net: The trained net.
        calibrator: Its calibrator.
        data_card: Card of the data set.
        training: Content of training.json.
        metrics: Content of metrics.json.
        validation_rows: Rows for the check and for the golden row.
        out: Folder of the bundle.
        validation: Validation logits, from whose confidences the card's reference is computed.
        test: Test logits, from which the card's risk and coverage are computed.
        sets: Conformal sets with their settings.
        tokenizer: The tokenizer.json, for texts.

    Raises:
        ExportError: The service cannot take this kind of rows. Or onnxruntime and torch differ in a logit by more than
            1e-4 of the largest logit, or of 1 if that is larger.
    """
    if reason := reason_against_serving(data_card):
        raise ExportError(reason)
    card = describe(data_card, training, metrics, calibrator, test, sets)
    if tokenizer:
        card = card.model_copy(
            update={"input": card.input.with_files(dict.fromkeys(card.input.beside, tokenizer.encode()))}
        )
    servable = Servable(net, training.get("normalise", data_card["normalise"]), card.input.kind).eval()
    rows = validation_rows[:CHECKED_ROWS]
    with tempfile.TemporaryDirectory(prefix="trueodds-export-") as folder:
        model = Path(folder) / MODEL
        write_onnx(servable, card.input.feed(rows[:2], [card.input.tensor]), model)
        golden = {"golden_input": rows[0], "golden_logits": _check_graph(servable, rows, model, card.input)[0]}
        beside = _reference_and_sets(calibrator, validation, sets, card)
        return Bundle.write(out, model, calibrator, card, **golden, **beside)


def reason_against_serving(data_card: dict[str, Any]) -> str:
    """Return the reason why the service cannot take these data; "" if it can."""
    kind = data_card["input"]["kind"]
    if kind in SERVED:
        return ""
    return (
        f"data set {data_card['name']!r} holds {kind}s, which the service does not take, so the net has no bundle."
        " It is trained, calibrated and evaluated; its results are those of the evaluate stage"
    )


def export_model_file(
    model: Path,
    calibrator: Calibrator,
    data_card: dict[str, Any],
    training: dict[str, Any],
    metrics: dict[str, Any],
    validation_rows: Inputs,
    out: Path,
    *,
    validation: Logits | None = None,
    test: Logits | None = None,
    sets: Sets | None = None,
) -> Bundle:
    """Export a graph that is servable already: the imported file that the train stage wrote for `training.model`.

    See `export` for the arguments.
    """
    golden = {"golden_input": validation_rows[0], "golden_logits": run(model, "logits", validation_rows[:1])[0]}
    card = describe(data_card, training, metrics, calibrator, test, sets)
    beside = _reference_and_sets(calibrator, validation, sets, card)
    return Bundle.write(out, model, calibrator, card, **golden, **beside)


def describe(
    data_card: dict[str, Any],
    training: dict[str, Any],
    metrics: dict[str, Any],
    calibrator: Calibrator,
    test: Logits | None,
    sets: Sets | None = None,
) -> Description:
    """Return the parts of the card that come from data, training and evaluation."""
    return Description(
        name=data_card["name"],
        classes=data_card["classes"],
        positive=data_card["positive"],
        input=TypeAdapter[Input](Input).validate_python(data_card["input"]),
        method=training["method"]["name"],
        training=training,
        metrics={key: metrics[key] for key in METRICS},
        risk_coverage=None if test is None else _risk_coverage(calibrator, test),
        sets=None if sets is None else _card_sets(sets, calibrator, test),
        notes=metrics["notes"],
        data_sha256=training["data_sha256"],
        code_sha256=training["code_sha256"],
    )


def _reference_and_sets(
    calibrator: Calibrator, validation: Logits | None, sets: Sets | None, card: Description
) -> dict[str, Any]:
    """Return what the bundle holds of the validation rows: the reference of their confidences, and the sets."""
    reference = None
    if validation is not None:
        reference = Reference.of_probabilities(
            calibrator(validation.logits_NC, groups=validation.groups_N), card.positive_class(), validation.labels_N
        )
    return {"reference": reference, "conformal": None if sets is None else sets[1]}


def _card_sets(sets: Sets, calibrator: Calibrator, test: Logits | None) -> CardSets:
    """Return the card's entry about conformal sets."""
    settings, fitted = sets
    if test is None:
        return CardSets.of(fitted, settings, calibrator, None)
    return CardSets.of(fitted, settings, calibrator, (test.logits_NC, test.labels_N), test.groups_N)


def _risk_coverage(calibrator: Calibrator, test: Logits) -> RiskCoverage:
    """Return risk and coverage of the calibrated test rows."""
    p_NC = calibrator(test.logits_NC, groups=test.groups_N)
    return RiskCoverage.of(CalibrationSums.from_probabilities(p_NC, test.labels_N, scores=False), "test")


def write_onnx(servable: Servable, example: Mapping[str, Inputs], path: Path) -> None:
    """Write the graph of a net for any number of rows, and for texts of any length.

    Args:
        servable: The net with its normalisation.
        example: The graph's input by name.
        path: File to write.
    """
    ((tensor, rows),) = example.items()
    dimensions = {axis: torch.export.Dim(name) for axis, name in enumerate(OPEN[servable.kind])}
    # The exporter prints its steps, and warns of deprecations inside torch and onnxscript that we cannot fix.
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        quiet.setLevel(logging.ERROR)
        try:
            program = torch.onnx.export(
                servable,
                (torch.from_numpy(rows),),
                input_names=[tensor],
                output_names=["logits"],
                dynamic_shapes={"rows": dimensions},
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        finally:
            quiet.setLevel(level)
    if program is None:
        raise ExportError("torch.onnx.export returned no program")
    write_bytes(path, without_metadata(program.model_proto).SerializeToString(deterministic=True))


def _check_graph(servable: nn.Module, rows: Inputs, path: Path, kind: InputKind) -> Any:
    """Return onnxruntime's logits for `rows`; raise ExportError if torch's differ."""
    logits_NC = run(path, "logits", rows, kind)
    with torch.inference_mode():
        expected_NC = servable(*map(torch.from_numpy, kind.feed(rows, [kind.tensor]).values())).numpy()
    off = float(np.abs(logits_NC - expected_NC).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(expected_NC).max()))
    if not off <= allowed:
        raise ExportError(
            f"onnxruntime and torch differ by {off:.2g} in a logit on {len(rows)} validation rows;"
            f" allowed is {allowed:.2g}"
        )
    return logits_NC
