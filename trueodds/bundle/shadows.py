"""The names under which what is judged beside a model's answers is stored and reported.

A shadow is a version that is scored on a model's inputs without being answered: a net is stored as `digits~shadow`, a
calibrator for the net that answers as `digits~recalibrated`. Its rows have the ids of the answers, and their labels. No
bundle's name has a ~.
"""

from __future__ import annotations

from typing import Literal

Slot = Literal["shadow", "recalibrated"]
"""The roles that are judged beside what answers."""
SLOTS: tuple[Slot, ...] = ("shadow", "recalibrated")


def shadow_of(model: str, slot: Slot = "shadow") -> str:
    """The name of a model's shadow, or of its recalibrated version."""
    return f"{model}~{slot}"


def shadows_of(model: str) -> list[str]:
    """The names of all that is judged beside a model's answers."""
    return [shadow_of(model, slot) for slot in SLOTS]


def slot_of(name: str) -> Slot | None:
    """The slot of a shadow's name; None: it is the name of a model.

    >>> slot_of("digits~recalibrated"), slot_of("digits")
    ('recalibrated', None)
    """
    return next((slot for slot in SLOTS if name.endswith(f"~{slot}")), None)


def is_shadow(name: str) -> bool:
    """Whether a name is that of a shadow, in either slot."""
    return slot_of(name) is not None


def shadowed_by(name: str) -> str:
    """The model of a shadow's name; the name of a model stays as it is.

    >>> shadowed_by("digits~shadow"), shadowed_by("digits")
    ('digits', 'digits')
    """
    return name if (slot := slot_of(name)) is None else name.removesuffix(f"~{slot}")
