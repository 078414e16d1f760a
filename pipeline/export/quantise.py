"""An int8 version of a bundle: quantised convolutions, a refitted calibrator, and metrics of its own in its card.

Quantisation by default also rounds softmax and preprocessing, which destroys calibration. Here only Conv, Relu, Add
and Gemm are quantised. The speed-up depends on the net and the processor: measure it before you serve the bundle.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pipeline.config import Calibration, Evaluation
from pipeline.data.dataset import DataSet
from pipeline.data.raw import Inputs
from pipeline.export.onnx_graph import run
from trueodds import calibrators
from trueodds.bundle import METRICS, MODEL, Bundle, Reference, RiskCoverage
from trueodds.calibrators import Calibrator, Identity
from trueodds.errors import UserError
from trueodds.evaluation.measurement import measure
from trueodds.evaluation.results import table_of
from trueodds.inputs import InputKind
from trueodds.logits import Logits

OPERATORS = ["Conv", "Relu", "Add", "Gemm"]
CALIBRATED_ON = 512
"""Number of validation rows from which the ranges of the activations are measured."""
ROWS = 256
Fit = Callable[[Logits], Calibrator]


class QuantisationError(UserError, RuntimeError):
    """The graph could not be quantised."""


def refit_with(name: str, settings: Calibration) -> Fit:
    """Return a function that fits a calibrator of this name.

    The options of `settings` are used if they belong to the same calibrator.
    """
    options = cast(dict[str, Any], settings.calibrator_options) if settings.calibrator == name else {}
    uses_groups = calibrators.get(name).uses_groups

    def fit(rows: Logits) -> Calibrator:
        """Fit the calibrator."""
        groups = rows.groups_N if uses_groups else None
        return calibrators.fit(rows.logits_NC, rows.labels_N, name, groups=groups, **options)

    return fit


def quantise(
    source: Bundle,
    data: DataSet,
    settings: Evaluation,
    fit: Fit,
    out: Path,
) -> dict[str, Any]:
    """Write the int8 version of `source` to `out`.

    Weights are int8 per channel, activations uint8 per tensor (QDQ). Ranges are the minima and maxima over up to 512
    validation rows. On processors with int8 dot products (VNNI) the speed-up over fp32 is 3.5 for ResNet-18, 1.9 for
    ResNet-20 and 1.3 for ResNet-8 (32 x 32, one thread). With signed activations the last two were slower than fp32.
    Older processors may saturate; the golden prediction then differs, and the bundle is refused.

    Args:
        source: The float32 bundle.
        data: The data set. The calibrator is fitted on its validation rows, and the metrics are of its test rows.
        settings: The section `evaluation` of params.yaml.
        fit: Function that fits the calibrator to the int8 validation logits.
        out: Folder of the int8 bundle.

    Returns:
        Its metrics.json; `before` are the metrics of its uncalibrated logits.

    Raises:
        QuantisationError: onnxruntime cannot quantise or run the graph.
    """
    with tempfile.TemporaryDirectory(prefix="trueodds-quantise-") as folder:
        model = Path(folder) / MODEL
        try:
            kind = source.card.input
            _quantise(source.model_path, model, data.arrays["val"][0][:CALIBRATED_ON], kind)
            val, test = (
                Logits(_logits(model, data.arrays[split][0], kind), data.arrays[split][1], data.tags.get(split))
                for split in ("val", "test")
            )
        except UserError:
            raise
        except Exception as error:  # from onnx, onnxruntime and its quantiser, which have no common base class
            raise QuantisationError(f"{source.model_path} cannot be quantised: {error}") from None
        calibrator = fit(val)
        positive = source.card.positive_class()
        before, after = (
            measure(c, test.logits_NC, test.labels_N, settings, positive, groups_N=test.groups_N)
            for c in (Identity(), calibrator)
        )
        table = table_of(before, after, [], calibrator, settings)
        origin = f"int8 ({', '.join(OPERATORS)}), made from version {source.version}; its calibrator was refitted."
        changes = {
            "metrics": {key: table[key] for key in METRICS},
            "risk_coverage": RiskCoverage.of(after.sums, "test"),
            "act_alone": None,  # the confidence threshold of a promise holds for one version's confidences only
            "sets": None,  # and so do the thresholds of conformal sets
            "notes": [origin, *table["notes"]],
        }
        golden = source.golden_input()
        Bundle.write(
            out,
            model,
            calibrator,
            source.card.model_copy(update=changes),
            golden_input=golden[0],
            golden_logits=run(model, "logits", golden, kind)[0],
            reference=Reference.of_probabilities(
                calibrator(val.logits_NC, groups=val.groups_N), positive, val.labels_N
            ),
        )
    return table


def _quantise(source: Path, out: Path, inputs: Inputs, kind: InputKind) -> None:
    """Quantise the graph in `source` and write it to `out`."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, names: list[str]) -> None:
            self._batches: Iterator[dict[str, Any]] = iter(
                [kind.feed(inputs[start : start + ROWS], names) for start in range(0, len(inputs), ROWS)]
            )

        def get_next(self) -> dict[str, Any] | None:
            return next(self._batches, None)

    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(out),
            Reader(_inputs_of(prepared)),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=OPERATORS,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )


def _inputs_of(path: Path) -> list[str]:
    """Return the names of a graph's inputs."""
    import onnx

    return [tensor.name for tensor in onnx.load(path).graph.input]


def _logits(path: Path, inputs: Inputs, kind: InputKind) -> npt.NDArray[np.float32]:
    """Return the logits of all rows."""
    blocks = (inputs[start : start + ROWS] for start in range(0, len(inputs), ROWS))
    return np.concatenate([run(path, "logits", block, kind) for block in blocks])
