"""Cache of the labels that arrived last, so that a report reads only the new ones."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from service.store import Store
from service.store.rows import LabelBlock, Version
from trueodds.reports.labelling import NEWEST

VERSIONS = 16


class RecentLabels:
    """The last 5,000 labels with their current values, for the versions that were reported last; 1 MB each."""

    def __init__(self, most: int = NEWEST) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, str], tuple[int, LabelBlock]] = OrderedDict()
        """Labels by version, with the number of the last voiding at the time of the read."""

    async def labels(self, store: Store, version: Version) -> LabelBlock:
        """Return the last labels in the order of their arrival."""
        key = version.key
        voiding = await store.last_voiding(*key)
        read_at, known = self._known.get(key, (voiding, None))
        if known is None or not len(known) or read_at != voiding:
            block = await store.read_labels(*key, last=self._most)
        else:
            new = await store.read_labels(*key, after=int(known.sequence_L[-1]), limit=self._most)
            if len(new) == self._most:  # the log may have more
                block = await store.read_labels(*key, last=self._most)
            else:
                block = _join(known, new, self._most)
                block = _with_corrections(
                    block, await store.read_corrected_labels(*key, after=int(block.sequence_L[0]) - 1)
                )
        self._known[key] = voiding, block
        self._known.move_to_end(key)
        while len(self._known) > VERSIONS:
            self._known.popitem(last=False)
        return block


def select_labels(block: LabelBlock, rows_L: npt.NDArray[np.bool_]) -> LabelBlock:
    """Return the labels for which `rows_L` is true."""
    place = np.flatnonzero(rows_L)

    def some(part: Any) -> Any:
        if part is None:
            return None
        return [part[k] for k in place] if isinstance(part, list) else part[place]

    return LabelBlock(**{field.name: some(getattr(block, field.name)) for field in fields(LabelBlock)})


def _with_corrections(block: LabelBlock, now: LabelBlock) -> LabelBlock:
    """Return the labels with their corrected values. Corrections of labels outside the block are ignored."""
    known_L = np.isin(now.sequence_L, block.sequence_L)
    place = np.searchsorted(block.sequence_L, now.sequence_L[known_L])
    changed = {}
    for name in ("label_L", "correct_L", "nll_L", "brier_L"):
        changed[name] = getattr(block, name).copy()
        changed[name][place] = getattr(now, name)[known_L]
    return replace(block, **changed) if len(place) else block


def _join(block: LabelBlock, new: LabelBlock, most: int) -> LabelBlock:
    def both(name: str) -> Any:
        one, other = getattr(block, name), getattr(new, name)
        if one is None:
            return None
        return (one + other if isinstance(one, list) else np.concatenate([one, other]))[-most:]

    return LabelBlock(**{field.name: both(field.name) for field in fields(LabelBlock)}) if len(new) else block
