"""What an import refuses: each message names what stands there, what is allowed and the cure."""

from __future__ import annotations

from trueodds.errors import UserError


class ModelFileError(UserError, ValueError):
    """An ONNX file that cannot be imported."""


class LabelledRowsError(UserError, ValueError):
    """Labelled rows that cannot be used, or not with this model."""
