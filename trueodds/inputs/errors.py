"""Errors of inputs. Each message names the row and the value, and states what is allowed and what to do."""

from __future__ import annotations

from trueodds.errors import UserError


class InputError(UserError, ValueError):
    """Error for an input that the model does not accept. `code` is a word for programs that names the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnreadableError(InputError):
    """Error for bytes that do not have their stated format."""


class InputTooLargeError(InputError):
    """Error for input beyond the limits of a call."""
