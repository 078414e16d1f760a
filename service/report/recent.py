"""The labels that arrived last, kept in the process: a report reads only what is new since the one before."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from service.store import Store
from service.store.records import LabelBlock, Version

RECENT = 5_000
"""Labels that the comparison of fast and slow ones, and given propensities, are read from."""
VERSIONS = 16


class Recent:
    """The last 5,000 labels of the versions asked for last as they are now, 1 MB each."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], LabelBlock] = OrderedDict()

    async def labels(self, store: Store, version: Version) -> LabelBlock:
        """They, in the order of their arrival."""
        key = version.model, version.version
        known = self._known.get(key)
        if known is None or not len(known):
            found = await store.read_labels(*key, last=RECENT)
        else:
            new = await store.read_labels(*key, after=int(known.sequence_L[-1]), limit=RECENT)
            if len(new) == RECENT:  # it may not be the end of the log
                found = await store.read_labels(*key, last=RECENT)
            else:
                found = _joined(known, new)
                found = _corrected(found, await store.read_corrected(*key, after=int(found.sequence_L[0]) - 1))
        self._known[key] = found
        self._known.move_to_end(key)
        while len(self._known) > VERSIONS:
            self._known.popitem(last=False)
        return found


def chosen(block: LabelBlock, rows_L: npt.NDArray[np.bool_]) -> LabelBlock:
    """Some of the labels."""
    place = np.flatnonzero(rows_L)

    def some(part: Any) -> Any:
        return [part[k] for k in place] if isinstance(part, list) else part[place]

    return LabelBlock(**{field.name: some(getattr(block, field.name)) for field in fields(LabelBlock)})


def _corrected(block: LabelBlock, now: LabelBlock) -> LabelBlock:
    """The labels with those values that some of them have now; of others that have come meanwhile, none."""
    known_L = np.isin(now.sequence_L, block.sequence_L)
    place = np.searchsorted(block.sequence_L, now.sequence_L[known_L])
    changed = {}
    for name in ("label_L", "correct_L", "nll_L", "brier_L"):
        changed[name] = getattr(block, name).copy()
        changed[name][place] = getattr(now, name)[known_L]
    return replace(block, **changed) if len(place) else block


def _joined(block: LabelBlock, new: LabelBlock) -> LabelBlock:
    def both(name: str) -> Any:
        one, other = getattr(block, name), getattr(new, name)
        return (one + other if isinstance(one, list) else np.concatenate([one, other]))[-RECENT:]

    return LabelBlock(**{field.name: both(field.name) for field in fields(LabelBlock)}) if len(new) else block
