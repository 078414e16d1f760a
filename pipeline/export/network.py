"""From a trained net to a bundle: an ONNX graph that stops at logits, the calibrator beside it, and a card."""

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
from trueodds.bundle import METRICS, MODEL, Bundle, Description, Reference, RiskCoverage
from trueodds.calibrators import Calibrator
from trueodds.errors import UserError
from trueodds.files import write_bytes
from trueodds.importing.onnx_file import without_metadata
from trueodds.inputs import SERVED, Input, InputKind
from trueodds.logits import Logits
from trueodds.metrics import CalibrationSums

TOLERANCE = 1e-4
"""Of the largest logit's size, or of 1 where that is less: float32 keeps seven digits, of 300 as of 3."""
CHECKED_ROWS = 256
OPSET = 18
OPEN: dict[Kind, tuple[str, ...]] = {"image": ("batch",), "vector": ("batch",), "text": ("batch", "tokens")}
"""The sizes of a graph's input that are not fixed, its first ones."""


class ExportError(UserError, RuntimeError):
    """The exported graph is not the trained net."""


class Servable(nn.Module):
    """Rows as the card's kind of input has them -> logits N x K, normalisation inside."""

    mean_C: Tensor
    std_C: Tensor

    def __init__(self, net: nn.Module, moments: dict[str, list[float]], kind: Kind) -> None:
        super().__init__()
        self.net, self.kind = net, kind
        normaliser = NORMALISERS[kind].of(moments, torch.device("cpu"))
        self.register_buffer("mean_C", normaliser.mean_C)
        self.register_buffer("std_C", normaliser.std_C)
        self._normalised = {"image": self._pixels, "vector": self._features, "text": self._words}[kind]

    def forward(self, rows: Tensor) -> Tensor:
        logits: Tensor = self.net(self._normalised(rows))
        return logits

    def _pixels(self, images_NHWC: Tensor) -> Tensor:
        # Channels first: onnxruntime takes 24 us to broadcast over rows of three floats what takes 2 over planes.
        planes_NCHW = images_NHWC.permute(0, 3, 1, 2).float() / 255
        return (planes_NCHW - self.mean_C[:, None, None]) / self.std_C[:, None, None]

    def _features(self, vectors_ND: Tensor) -> Tensor:
        return VectorNormaliser(self.mean_C, self.std_C)(vectors_ND)

    def _words(self, ids_NL: Tensor) -> Tensor:
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
    tokenizer: str = "",
) -> Bundle:
    """Export a net to the bundle `out`, after checking its graph on real validation rows.

    The card's reference is of the confidences of the `validation` rows, its risk and coverage of the `test` rows.
    tokenizer: of texts, their tokenizer.json.

    Raises:
        ExportError: rows of a kind that no service takes; onnxruntime and torch differ in any logit by more than 1e-4
            of the largest, or of 1.
    """
    if reason := unserved(data_card):
        raise ExportError(reason)
    card = describe(data_card, training, metrics, calibrator, test)
    if tokenizer:
        card = card.model_copy(
            update={"input": card.input.with_files(dict.fromkeys(card.input.beside, tokenizer.encode()))}
        )
    servable = Servable(net, training.get("normalise", data_card["normalise"]), card.input.kind).eval()
    rows = validation_rows[:CHECKED_ROWS]
    with tempfile.TemporaryDirectory(prefix="trueodds-export-") as folder:
        model = Path(folder) / MODEL
        write_onnx(servable, card.input.feed(rows[:2], [card.input.tensor]), model)
        logits_C = _checked(servable, rows, model, card.input)[0]
        return _write(model, logits_C, calibrator, card, rows[0], out, validation)


def unserved(data_card: dict[str, Any]) -> str:
    """The reason why no bundle is made of a net for these data; "" where one is."""
    kind = data_card["input"]["kind"]
    if kind in SERVED:
        return ""
    return (
        f"data set {data_card['name']!r} holds {kind}s, which no service takes as input: there is no bundle of such"
        " a net. It is trained, calibrated and evaluated; its figures are those of the evaluate stage"
    )


def export_imported(
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
) -> Bundle:
    """As `export`, of a graph that is servable already: what the train stage made of `training.model`."""
    logits_C = run(model, "logits", validation_rows[:1])[0]
    card = describe(data_card, training, metrics, calibrator, test)
    return _write(model, logits_C, calibrator, card, validation_rows[0], out, validation)


def describe(
    data_card: dict[str, Any],
    training: dict[str, Any],
    metrics: dict[str, Any],
    calibrator: Calibrator,
    test: Logits | None,
) -> Description:
    """The card's parts that data, training and evaluation state."""
    return Description(
        name=data_card["name"],
        classes=data_card["classes"],
        positive=data_card["positive"],
        input=TypeAdapter[Input](Input).validate_python(data_card["input"]),
        method=training["method"]["name"],
        training=training,
        metrics={key: metrics[key] for key in METRICS},
        risk_coverage=None if test is None else _risk_coverage(calibrator, test),
        notes=metrics["notes"],
        data_sha256=training["data_sha256"],
        code_sha256=training["code_sha256"],
    )


def _write(
    model: Path,
    logits_C: Any,
    calibrator: Calibrator,
    description: Description,
    golden: Inputs,
    out: Path,
    validation: Logits | None,
) -> Bundle:
    return Bundle.write(
        out,
        model,
        calibrator,
        description,
        golden_input=golden,
        golden_logits=logits_C,
        reference=None if validation is None else Reference.of(calibrator(validation.logits_NC).max(axis=1)),
    )


def _risk_coverage(calibrator: Calibrator, test: Logits) -> RiskCoverage:
    p_NC = calibrator(test.logits_NC)
    return RiskCoverage.of(CalibrationSums.from_probabilities(p_NC, test.labels_N, scores=False), "test")


def write_onnx(servable: Servable, example: Mapping[str, Inputs], path: Path) -> None:
    """The graph of a net for any number of rows, and of texts of any length; `example`: its input by name."""
    ((tensor, rows),) = example.items()
    dimensions = {axis: torch.export.Dim(name) for axis, name in enumerate(OPEN[servable.kind])}
    # The exporter prints its steps, and warns of deprecations inside torch and onnxscript that are not ours to mend.
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


def _checked(servable: nn.Module, rows: Inputs, path: Path, kind: InputKind) -> Any:
    """onnxruntime's logits for `rows`, after comparing them with torch's."""
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
