"""Running an ONNX graph, to hold what was written against what it was made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.data.raw import Inputs
from trueodds.inputs import InputKind


def run(path: Path, output: str, inputs: Inputs, kind: InputKind | None = None) -> Any:
    """One output of a graph on the CPU, for rows of a kind; None: the graph takes them as they are."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [tensor.name for tensor in session.get_inputs()]
    return session.run([output], {names[0]: inputs} if kind is None else kind.feed(inputs, names))[0]
