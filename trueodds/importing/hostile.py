"""Trial of a tokenizer on hostile texts, before a text model is published.

A tokenizer.json may contain regular expressions. Some of them need quadratic or exponential time for a run of equal
characters. The tokenizer then panics or does not return. Every caller of a service could send such a text.
"""

from __future__ import annotations

import string
import sys
import time
import unicodedata
from collections.abc import Iterator

from trueodds.importing.errors import ModelFileError
from trueodds.inputs import InputError, Limits, TextInput
from trueodds.inputs.text.tokens import TokenizerError
from trueodds.processes.limited import progress

SECONDS = 2.0
"""Largest processor time of one text."""
SHORTEST, GROWTH = 40, 8
"""Number of characters of the first texts, and the factor to the next longer ones.

It makes a quadratic expression visible.
"""
USABLE = 256
"""Number of characters from which on a limit is worth proposing."""
CHUNK = 4096
"""Number of characters of a text with a part of Unicode."""
OPTION = "--max-characters"
RUNS = (*string.printable, "é", "ß", "я", "中", "あ", "ع", "👍", "\u0301", "\u200d", "\u202e", "\0", "\ufffd")
"""Characters that the shortest texts repeat."""
LONG_RUNS = ("a", "0", ".", "中")
"""Characters that longer texts repeat."""
FAMILY = "👨\u200d👩\u200d👧\u200d👦"


def check(kind: TextInput, name: str, seconds: float = SECONDS) -> None:
    """Try a tokenizer on hostile texts, up to the number of characters that its kind allows.

    Raises:
        ModelFileError: It fails on a text, or takes more than `seconds`. The message says which text, and up to which
            number of characters it read every text.
    """
    for what, text in _of_unicode(min(CHUNK, kind.characters)):
        if problem := _problem(kind, what, text, seconds):
            raise _refusal(name, problem, 0)
    safe = 0
    for size in _sizes(kind.characters):
        for what, text in _of_size(size):
            if problem := _problem(kind, what, text, seconds):
                raise _refusal(name, problem, safe)
        safe = size
    for what, text in (("half a surrogate pair", "a\ud800"), ("a megabyte of text", "a" * 2**20)):
        try:
            kind.from_json([text], Limits())
        except InputError:
            continue
        raise ModelFileError(f"{name} accepts {what}, which the service must refuse; save the tokenizer again")


def _sizes(most: int) -> Iterator[int]:
    size = SHORTEST
    while size < most:
        yield size
        size *= GROWTH
    yield most


def _of_size(size: int) -> Iterator[tuple[str, str]]:
    """Yield texts of `size` characters, each with its description."""
    for character in RUNS if size <= SHORTEST else LONG_RUNS:
        name = unicodedata.name(character, f"character {ord(character)}")
        yield f"{size:,} times {name}", character * size
    yield f"{size - 1:,} spaces and a letter", " " * (size - 1) + "a"
    yield f"{size - 1:,} line feeds and a letter", "\n" * (size - 1) + "a"
    yield f"{size - 1:,} letters and an exclamation mark", "a" * (size - 1) + "!"
    yield f"{size - 1:,} accents on a letter", "e" + "\u0301" * (size - 1)
    yield f"{size:,} characters of letters, digits and marks without a space", ("aB3_-." * (size // 6 + 1))[:size]
    yield f"{size:,} characters of joined emoji", (FAMILY * (size // len(FAMILY) + 1))[:size]


def _of_unicode(size: int) -> Iterator[tuple[str, str]]:
    """Yield texts of `size` characters that together hold every assigned character, including control characters."""
    points = [point for point in range(0x20000) if unicodedata.category(chr(point)) not in ("Cn", "Cs", "Co")]
    points += range(0xE0000, 0xE0100)
    points += [sys.maxunicode]
    for start in range(0, len(points), size):
        part = points[start : start + size]
        yield f"the characters U+{part[0]:04X} to U+{part[-1]:04X}", "".join(map(chr, part))


def _problem(kind: TextInput, what: str, text: str, seconds: float) -> str:
    began = time.process_time()
    try:
        kind.of_texts([text])
    except TokenizerError as error:
        return f"fails on {what} ({error})"
    took = time.process_time() - began
    progress()
    return f"takes {took:.1f} s for {what}; allowed are {seconds:g} s" if took > seconds else ""


def _refusal(name: str, problem: str, safe: int) -> ModelFileError:
    """Build the error for a tokenizer that failed."""
    cure = "avoid a repetition inside a repetition in its expressions, give it a token for unknown words"
    if safe >= USABLE:
        cure = f"use {OPTION} {safe}, up to which it read every text, or {cure}"
    return ModelFileError(
        f"{name} {problem}, and any caller of a service may send such a text; {cure}, or use another tokenizer"
    )
