"""What is wrong with an input: each message names the row, the value, what is allowed and the cure."""

from __future__ import annotations

from trueodds.errors import UserError


class InputError(UserError, ValueError):
    """An input that the model does not take; `code` names the reason in a word, for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnreadableError(InputError):
    """Bytes that are not of the format that they are said to be."""


class InputTooLargeError(InputError):
    """More than the limits of a call."""
