"""Explains why onnxruntime refuses a graph, with a cure. Imports and services use the same messages."""

from __future__ import annotations

import re
from pathlib import Path

EXTENSIONS = ("ai.onnx.contrib", "com.microsoft.extensions")
"""Domains of the operators of the package onnxruntime-extensions."""
WITHOUT = "export the model without them, and do their preprocessing before rows are sent; texts are sent unchanged"


def why(path: Path, message: str, version: str) -> str:
    """Turn onnxruntime's message about the graph at `path` into an explanation with a cure.

    `version` is the installed one.
    """
    here = f"the installed onnxruntime {version}"
    upgrade = "pip install --upgrade onnxruntime, or export"
    if match := re.search(r"Opset (\d+) is under development.*till opset (\d+)", message, re.DOTALL):
        cure = f"{upgrade} with opset {match[2]} or earlier"
        return f"{path} has opset {match[1]}; {here} supports opsets up to {match[2]}: {cure}"
    if match := re.search(r"IR version: (\d+), max supported IR version: (\d+)", message):
        cure = f"{upgrade} with an older onnx, whose IR version is at most {match[2]}"
        return f"{path} has IR version {match[1]}; {here} supports versions up to {match[2]}: {cure}"
    if match := re.search(r"(\S+)\(-?\d+\) is not a registered function/op", message):
        domain, _, operator = match[1].rpartition(":")
        if domain in EXTENSIONS:
            return extensions(path, f"{domain}.{operator}")
        return f"{path} has the operator {match[1]}, which {here} does not have; {upgrade} without it"
    return f"{path}: {here} cannot load it: {' '.join(message.split())}"


def extensions(path: Path, operators: str) -> str:
    """Explain that a graph has operators of onnxruntime-extensions."""
    return f"{path} has operators of the package onnxruntime-extensions, which no service loads: {operators}; {WITHOUT}"
