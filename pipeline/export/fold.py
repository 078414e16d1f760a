"""Export of a graph that contains its calibrator, for use without this package: rows in, probabilities out."""

from __future__ import annotations

from pathlib import Path

from pipeline.data.raw import Inputs
from pipeline.export.onnx_graph import run
from trueodds.calibrators import Calibrator
from trueodds.files import atomic_write
from trueodds.importing.folding import CHECKED_ROWS, PREFIX, PROBABILITIES, FoldError, check, fold_graph
from trueodds.inputs import InputKind


def fold(model: Path, calibrator: Calibrator, out: Path, inputs: Inputs, kind: InputKind | None = None) -> None:
    """Write to `out` the graph of `model` with the calibrator after its logits; its only output is `probabilities`.

    softmax(W z + b) is computed in float64 and returned as float32. The result is compared with the calibrator itself
    on up to 256 rows.

    Args:
        model: ONNX file of the net.
        calibrator: A calibrator that is affine in the logits.
        out: File to write.
        inputs: Rows for the comparison.
        kind: Kind of the rows; None if they are already as the graph takes them.

    Raises:
        FoldError: The calibrator is not affine in the logits, the graph does not have one output of C logits or has its
            calibrator already, there are no rows, or a probability differs by more than 1e-6.
    """
    if not len(inputs):
        raise FoldError("inputs is empty; the folded graph is checked on rows, so give at least one")
    graph = fold_graph(model, calibrator)
    logits = next(node for node in graph.graph.node if node.name.startswith(PREFIX)).input[0]
    some = inputs[:CHECKED_ROWS]
    logits_NC = run(model, logits, some, kind)
    with atomic_write(out) as aside:
        aside.write_bytes(graph.SerializeToString(deterministic=True))
        check(calibrator, logits_NC, run(aside, PROBABILITIES, some, kind))
