"""Facts from Hugging Face's files beside a model: config.json and tokenizer_config.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueodds.inputs.text.tokens import Side
from trueodds.texts import quotes

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
LARGEST = 2**24
"""Largest size in bytes of such a file. The largest have some thousand classes."""
UNKNOWN_LENGTH = 10**9
"""Value from which on model_max_length means unknown: transformers writes 10**30."""
POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length")
OFFSET = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "data2vec-text"}
"""Types of models whose first positions, up to that of padding, are not used by tokens."""
OFFSET |= {"longformer", "mpnet", "ibert", "xmod", "esm"}
"""Types of models whose first positions, up to that of padding, no token has."""
NUMBERED = re.compile(r"LABEL_\d+")
"""Pattern of class names that transformers generates."""


@dataclass(frozen=True)
class HubFiles:
    """Facts from these files. None or empty means that they do not state it."""

    max_length: int | None = None
    """model_max_length of the tokenizer."""
    positions: int | None = None
    """Number of tokens for which the model has positions."""
    classes: tuple[str, ...] = ()
    """id2label, in the order of the model's outputs."""
    classes_file: str = ""
    padding_side: str | None = None
    truncation_side: Side | None = None
    pad_token: str | None = None
    vocabulary_size: int | None = None
    notes: tuple[str, ...] = ()
    """Sentences about files that cannot be read, and about class names that cannot be used."""

    @classmethod
    def beside(cls, *paths: Path | None) -> HubFiles:
        """Read the files in the folders of `paths`. Those of the first path come first."""
        folders = dict.fromkeys(path.parent for path in paths if path is not None)
        notes: list[str] = []
        config, source = _first([folder / CONFIG for folder in folders], notes)
        tokenizer, _ = _first([folder / TOKENIZER_CONFIG for folder in folders], notes)
        length, side = _number(tokenizer, "model_max_length"), tokenizer.get("truncation_side")
        pad = tokenizer.get("pad_token")
        classes = _classes(config, source, notes)
        return cls(
            max_length=length if length is not None and length < UNKNOWN_LENGTH else None,
            positions=_positions(config),
            classes=classes,
            classes_file=source if classes else "",
            padding_side=tokenizer.get("padding_side"),
            truncation_side="left" if side == "left" else "right" if side == "right" else None,
            pad_token=pad.get("content") if isinstance(pad, dict) else pad if isinstance(pad, str) else None,
            vocabulary_size=_number(config, "vocab_size"),
            notes=tuple(notes),
        )


def _first(paths: list[Path], notes: list[str]) -> tuple[Mapping[str, Any], str]:
    """Return the object in the first existing file, and the file's name. A broken file is skipped with a note."""
    for path in paths:
        try:
            if not path.is_file():
                continue
            if path.stat().st_size > LARGEST:
                raise ValueError(f"it has {path.stat().st_size:,} bytes; allowed are {LARGEST:,}")
            tree = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(tree, dict):
                raise ValueError("it does not hold an object")
        except (OSError, ValueError, RecursionError) as error:
            notes.append(f"{path} cannot be read ({error}) and is ignored.")
            continue
        return tree, str(path)
    return {}, ""


def _number(tree: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number above 0; transformers also writes floats such as 1e+30."""
    value = tree.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < float("inf"):
        return None
    return int(value)


def _positions(config: Mapping[str, Any]) -> int | None:
    number = next(filter(None, (_number(config, key) for key in POSITIONS)), None)
    if number is None or config.get("model_type") not in OFFSET:
        return number
    padding = config.get("pad_token_id")
    return number - (padding if isinstance(padding, int) else 1) - 1


def _classes(config: Mapping[str, Any], source: str, notes: list[str]) -> tuple[str, ...]:
    """Return id2label in the order of the outputs. Names that do not name every output are ignored with a note."""
    table = config.get("id2label")
    if not table:
        return ()
    if problem := _problem_of(table):
        notes.append(f"id2label of {source} {problem}. It is ignored.")
        return ()
    return tuple(table[str(k)] for k in range(len(table)))


def _problem_of(table: object) -> str:
    """Return why an id2label does not name the outputs; "" if it does."""
    if not isinstance(table, dict) or not all(isinstance(name, str) and name.strip() for name in table.values()):
        return "is not an object of numbers of outputs with their names"
    names = list(table.values())
    if gaps := [k for k in range(len(table)) if str(k) not in table]:
        numbers = f"has the numbers {quotes(list(table))}, and {gaps[0]} is not among them"
        return f"{numbers}; needed is every number from 0 on"
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        places = " and ".join(k for k in table if table[k] == name)
        return f"gives the outputs {places} the same name {name!r}"
    if all(map(NUMBERED.fullmatch, names)):
        return f"has only generated names such as {names[0]!r}"
    return ""
