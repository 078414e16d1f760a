"""All that is looked for in the parts of a split, as sentences for the card and as a table."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from pipeline.config import Data
from pipeline.data.image_files import Part
from pipeline.data.raw import PIXELS, WORDS, DataError, Inputs, Labels, Raw, Rows, TextRows, TreeRows, Vectors
from pipeline.data.splitting import columns, duplicates, groups
from pipeline.data.splitting.parts import groups_of

log = logging.getLogger("pipeline.data")


class Checked(NamedTuple):
    """arrays: of each part, without duplicates where they are left out. table: the counts, for checks.json."""

    arrays: dict[str, tuple[Inputs, Labels]]
    notes: list[str]
    table: dict[str, Any]


def checked_split(
    params: Data,
    raw: Raw,
    parts: dict[str, Part],
    arrays: dict[str, tuple[Inputs, Labels]],
    scratch: Path | None,
) -> Checked:
    """Looks for duplicates, shared groups and telling columns; leaves duplicates out where `params` say so.

    Raises:
        DataError: near duplicates of rows that are no images; a part that keeps too few rows.
    """
    leaves_out = params.duplicates == "leave_out"
    if params.near_duplicates is not None and raw.kind not in PIXELS:
        problem = f"data.near_duplicates is {params.near_duplicates}, which is for images"
        raise DataError(f"{problem}, and {params.dataset} holds {raw.kind}s; set it to null")
    telling: dict[str, list[str]] = {}
    if raw.features:
        telling = columns.findings(cast(Vectors, raw.x_train), raw.y_train, raw.features)
    rows = _words_of(parts) if raw.kind in WORDS else _numbers_of(arrays, raw.features, telling.get("row_number", []))
    found = duplicates.find(rows, {part: y for part, (_, y) in arrays.items()}, params.near_duplicates)
    log.info("%s: %s", params.dataset, found.summary())
    table: dict[str, Any] = {"duplicates": found.to_json(leaves_out)}
    notes = found.notes(leaves_out)
    if params.group_column is not None:
        of_parts = groups_of(raw, parts)
        table["groups"] = groups.counts(of_parts)
        notes += groups.notes(params.group_column, of_parts)
    if telling:
        table["columns"] = telling
        notes += columns.notes(telling)
    if leaves_out:
        arrays = duplicates.leave_out(arrays, found, params.dataset, scratch)
    return Checked(arrays, notes, table)


def _words_of(parts: Mapping[str, Part]) -> dict[str, Rows]:
    """The texts or trees of each part: the same rows as its array, with the words that the net does not know."""
    rows = {part: (cast(TextRows | TreeRows, x), index) for part, (x, _, index) in parts.items()}
    return {part: x if index is None else x.take(index) for part, (x, index) in rows.items()}


def _numbers_of(
    arrays: Mapping[str, tuple[Inputs, Labels]], features: Sequence[str], row_numbers: Sequence[str]
) -> dict[str, Rows]:
    """The array of each part, without columns that number the rows: with them no row would equal another."""
    kept = [k for k, name in enumerate(features) if name not in row_numbers]
    return {part: x[:, kept] if row_numbers and kept else x for part, (x, _) in arrays.items()}
