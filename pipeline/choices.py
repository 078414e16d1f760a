"""Choices and defaults of recalibration. The help of commands shows them, so this module loads no other package."""

from __future__ import annotations

from typing import Literal, get_args

from trueodds.processes.choices import RECALIBRATED, SHADOW, Slot

LABELS = 10_000
"""Largest number of labels to fit a calibrator on."""
SMOOTHING = 0.001
"""Smoothing e: the log score is that of (1 - e) p + e / K.

One answer can then not decide everything, and zero probabilities are not rewarded as they would be by a floor.
"""
Promote = Literal["now", "when-better", "never"]
"""Rule for a promotion.

now: at once, whatever the evidence. when-better: the verdict "better" promotes, "worse" withdraws. never: a person
decides.
"""
PROMOTE: tuple[Promote, ...] = get_args(Promote)
Groups = Literal["tag"]
"""Groups of answers that may have temperatures of their own."""
GROUPS: tuple[Groups, ...] = get_args(Groups)
SLOT_WORDS: dict[Slot, str] = {SHADOW: "the shadow", RECALIBRATED: "the recalibrated version"}
"""Slots in words."""
