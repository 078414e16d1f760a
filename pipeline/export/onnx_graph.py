"""Runs of an ONNX graph, for comparison with the net or calibrator that it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.data.raw import Inputs
from trueodds.inputs import InputKind


def run(path: Path, output: str, inputs: Inputs, kind: InputKind | None = None) -> Any:
    """Compute one output of a graph on the CPU.

    Args:
        path: The ONNX file.
        output: Name of the output.
        inputs: The rows.
        kind: Kind of the rows; None if they are already as the graph takes them.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [tensor.name for tensor in session.get_inputs()]
    return session.run([output], {names[0]: inputs} if kind is None else kind.feed(inputs, names))[0]
