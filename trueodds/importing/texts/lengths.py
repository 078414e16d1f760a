"""How many tokens a model of texts reads: as its files say, and as its graph answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from trueodds.importing.errors import ModelFileError
from trueodds.importing.texts.hub_files import CONFIG, TOKENIZER_CONFIG, HubFiles
from trueodds.inputs import Inputs, TextInput
from trueodds.inputs.text.kind import MOST, MOST_CHARACTERS

OPTION, CHARACTERS_OPTION = "--max-tokens", "--max-characters"
Run = Callable[[Inputs], object]
"""Runs a graph on rows; it raises where that fails."""


def max_tokens(stated: int | None, tokenizer: Path, cut: int | None, files: HubFiles) -> tuple[int, tuple[str, ...]]:
    """The number of tokens that a model reads, and notes for the user.

    Args:
        stated: The user's number.
        tokenizer: The tokenizer's file.
        cut: The length at which that file cuts texts.
        files: The files beside the model.

    Raises:
        ModelFileError: a number beyond what the files allow; no file has one; they contradict each other.
    """
    positions = f"{CONFIG} gives the model positions for {files.positions:,} tokens" if files.positions else ""
    if stated is not None:
        if not 1 <= stated <= MOST:
            raise ModelFileError(f"{OPTION} is {stated}; allowed are 1 to {MOST:,}")
        if files.positions is not None and stated > files.positions:
            raise ModelFileError(f"{OPTION} is {stated:,}, and {positions}; say {files.positions} or fewer")
        return stated, ()
    cuts = f"{tokenizer.name} cuts texts at {cut:,} tokens" if cut else ""
    length = f"{TOKENIZER_CONFIG} says model_max_length {files.max_length:,}" if files.max_length else ""
    known = [number for number in (files.max_length, files.positions) if number is not None]
    if cut is None and not known:
        beside = f"neither {tokenizer.name} nor a {TOKENIZER_CONFIG} or {CONFIG} beside it says"
        raise ModelFileError(f"{beside} how many tokens the model reads; say it: {OPTION} N, such as {OPTION} 512")
    limit = min([*known, MOST])
    if (cut or 0) > limit or (files.max_length or 0) > (files.positions or MOST):
        problem = "; ".join(filter(None, (cuts, length, positions)))
        raise ModelFileError(f"{problem}: these contradict each other. Say how many tokens it reads: {OPTION} {limit}")
    if cut is None:
        return limit, ()
    more = f"{cuts}, and the model may read {limit:,} ({OPTION})."
    return cut, (more,) if known and cut < limit else ()


def check_characters(stated: int | None) -> None:
    """Raises ModelFileError for a limit of characters that no card may have."""
    if stated is not None and not 1 <= stated <= MOST_CHARACTERS:
        raise ModelFileError(f"{CHARACTERS_OPTION} is {stated:,}; allowed are 1 to {MOST_CHARACTERS:,}")


def check(kind: TextInput, run: Run, path: Path) -> None:
    """Checks that a graph answers texts of as many tokens as its kind allows, and one without tokens.

    Raises:
        ModelFileError: it does not; the message names the greatest number that it answers.
    """
    for what, row, _ in kind.extremes():
        if not (message := _failure(run, row)):
            continue
        count = int(min(row[0, 0], kind.max_tokens))
        least, most = 0, count  # it answers `least` tokens, and not `most`
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (least, middle) if _failure(run, _cut(row, middle)) else (middle, most)
        cure = f"it answers up to {least:,}: say {OPTION} {least}" if least else "export the model again"
        raise ModelFileError(f"{path} cannot be run on {what}: {message}; {cure}")


def _failure(run: Run, row: Inputs) -> str:
    try:
        run(row)
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        return " ".join(str(error).split())
    return ""


def _cut(row: Inputs, tokens: int) -> Inputs:
    return np.concatenate([np.full_like(row[:, :1], tokens), row[:, 1:]], axis=1)
