"""Errors of an import. Each message says what was given, what is allowed, and what to do."""

from __future__ import annotations

from pathlib import Path

from trueodds.errors import UserError


class ModelFileError(UserError, ValueError):
    """The ONNX file cannot be imported."""


class LabelledRowsError(UserError, ValueError):
    """The labelled rows cannot be used, or not with this model."""


def no_file(path: Path) -> str:
    """Return what is wrong with a path that is no file's, and the cure."""
    if not path.is_dir():
        return "does not exist; give the path of an ONNX file"
    tensorflow = "; convert a SavedModel of TensorFlow with tf2onnx" if (path / "saved_model.pb").exists() else ""
    return f"is a folder; give the path of an ONNX file{tensorflow}"
