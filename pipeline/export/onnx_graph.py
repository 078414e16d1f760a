"""Running an ONNX graph, to hold what was written against what it was made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.data.raw import Inputs


def run(path: Path, output: str, inputs: Inputs) -> Any:
    """One output of a graph on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run([output], {session.get_inputs()[0].name: inputs})[0]
