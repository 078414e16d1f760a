"""The name under which a model's shadow is stored and reported.

A shadow is a version that is scored on a model's inputs without being answered: that of `digits` is `digits~shadow`.
Its rows have the ids of the answers, and their labels. No bundle's name has a ~.
"""

from __future__ import annotations

_SUFFIX = "~shadow"


def shadow_of(model: str) -> str:
    """The name of a model's shadow."""
    return model + _SUFFIX


def is_shadow(model: str) -> bool:
    """Whether a name is that of a shadow."""
    return model.endswith(_SUFFIX)


def shadowed_by(name: str) -> str:
    """The model of a shadow's name; the name of a model stays as it is.

    >>> shadowed_by("digits~shadow"), shadowed_by("digits")
    ('digits', 'digits')
    """
    return name.removesuffix(_SUFFIX)
