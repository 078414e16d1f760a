"""A graph with its calibrator folded in: rows in, calibrated probabilities out, for those who serve elsewhere."""

from __future__ import annotations

from pathlib import Path

from pipeline.data.raw import Inputs
from pipeline.export.onnx_graph import run
from trueodds.calibrators import Calibrator
from trueodds.files import written
from trueodds.importing.folding import CHECKED_ROWS, PREFIX, PROBABILITIES, FoldError, check, fold_graph
from trueodds.inputs import InputKind


def fold(model: Path, calibrator: Calibrator, out: Path, inputs: Inputs, kind: InputKind | None = None) -> None:
    """Write `out`: the graph of `model` with the calibrator behind its logits; its one output is `probabilities`.

    softmax(W z + b) is computed in float64 and given as float32, for people who serve without this package. The result
    is compared with the calibrator itself on up to 256 of the rows `inputs`, of this kind (None: as the graph takes
    them).

    Raises:
        FoldError: a calibrator that is not affine in the logits, a graph without one output of C logits or folded
            already, no rows, or a probability that differs by more than 1e-6.
    """
    if not len(inputs):
        raise FoldError("inputs is empty; the folded graph is checked on rows: give at least one")
    graph = fold_graph(model, calibrator)
    logits = next(node for node in graph.graph.node if node.name.startswith(PREFIX)).input[0]
    some = inputs[:CHECKED_ROWS]
    logits_NC = run(model, logits, some, kind)
    with written(out) as aside:
        aside.write_bytes(graph.SerializeToString(deterministic=True))
        check(calibrator, logits_NC, run(aside, PROBABILITIES, some, kind))
