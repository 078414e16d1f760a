"""Why onnxruntime refuses a graph, in words with a cure: the same for an import and for a service."""

from __future__ import annotations

import re
from pathlib import Path

EXTENSIONS = ("ai.onnx.contrib", "com.microsoft.extensions")
"""Domains of the operators that the package onnxruntime-extensions brings."""
WITHOUT = "export the model without them, and do their work before rows are sent: a text is sent as it is"


def why(path: Path, message: str, version: str) -> str:
    """onnxruntime's own message of the graph at `path`, by the installed `version`, as what to do about it."""
    here = f"the installed onnxruntime {version}"
    upgrade = "pip install --upgrade onnxruntime, or export"
    if match := re.search(r"Opset (\d+) is under development.*till opset (\d+)", message, re.DOTALL):
        cure = f"{upgrade} with opset {match[2]} or earlier"
        return f"{path} is of opset {match[1]}; {here} knows opsets up to {match[2]}: {cure}"
    if match := re.search(r"IR version: (\d+), max supported IR version: (\d+)", message):
        cure = f"{upgrade} with an older onnx, whose IR version is {match[2]} at most"
        return f"{path} is of IR version {match[1]}; {here} knows versions up to {match[2]}: {cure}"
    if match := re.search(r"(\S+)\(-?\d+\) is not a registered function/op", message):
        domain, _, operator = match[1].rpartition(":")
        if domain in EXTENSIONS:
            return extensions(path, f"{domain}.{operator}")
        return f"{path} has the operator {match[1]}, which {here} does not bring; {upgrade} without it"
    return f"{path}: {here} cannot load it: {' '.join(message.split())}"


def extensions(path: Path, operators: str) -> str:
    """What to say of a graph with operators of onnxruntime-extensions."""
    return f"{path} has operators of the package onnxruntime-extensions, which no service loads: {operators}; {WITHOUT}"
