"""Errors of an import. Each message says what was given, what is allowed, and what to do."""

from __future__ import annotations

from trueodds.errors import UserError


class ModelFileError(UserError, ValueError):
    """The ONNX file cannot be imported."""


class LabelledRowsError(UserError, ValueError):
    """The labelled rows cannot be used, or not with this model."""
