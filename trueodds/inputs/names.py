"""Names of columns and classes as people write them: one rule of which name a text means."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from trueodds.texts import without_point

LONGEST = 1024
"""Characters of a text from which it is a name only as it stands."""


def form(name: str) -> str:
    """A name without what its writings differ in: case, blanks, underscores, points, dashes, and Unicode's forms.

    A name without letters is as it stands: 1.5, 1-5 and -15 are not alike.

    >>> form("New York") == form("new_york"), form("1.5") == form("1-5")
    (True, False)
    """
    if not any(map(str.isalpha, name)):
        return name
    return re.sub(r"[\s_.-]+", "_", unicodedata.normalize("NFC", name).strip().casefold())


def alike(wanted: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The name that each wanted one is which is none of them, but for its `form`.

    Where two could be meant, there is none.

    >>> alike(["sepal_length", "age"], ["Sepal Length", "age", "AGE"])
    {'sepal_length': 'Sepal Length'}
    """
    others = _only(name for name in names if name not in wanted)
    missing = _only(name for name in wanted if name not in names)
    return {name: others[key] for key, name in missing.items() if key in others}


class Places:
    """The places of names by what people write for them.

    A name itself comes first, then the same whole number with or without a point, then the same text in another
    Unicode form ("é" as one character or two), then the only name of the same `form`.

    >>> places = Places(["New York", "8"])
    >>> places.get("new_york"), places.get("8.0"), places.get("York")
    (0, 1, None)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        pointed = {without_point(name): k for k, name in enumerate(names) if "." in name}
        self._exact = pointed | {name: k for k, name in enumerate(names)}

    def get(self, text: str) -> int | None:
        """The place of the name that a text means; None where it means none, or may mean two."""
        place = self._exact.get(text)
        if place is None and text[-1:] in ("0", "."):  # 8.0 is how programs write 8 in a column with a gap
            place = self._exact.get(without_point(text))
        if place is not None or len(text) > LONGEST:
            return place
        name = None if text.isascii() else self._normal.get(unicodedata.normalize("NFC", text))
        name = name or self._alike.get(form(text))
        return None if name is None else self._exact[name]

    @cached_property
    def _normal(self) -> dict[str, str]:
        return _only(self._names, lambda name: unicodedata.normalize("NFC", name))

    @cached_property
    def _alike(self) -> dict[str, str]:
        return _only(self._names)


def _only(names: Iterable[str], key: Callable[[str], str] = form) -> dict[str, str]:
    """The names by their keys, without those that share one."""
    by_key: dict[str, list[str]] = {}
    for name in names:
        by_key.setdefault(key(name), []).append(name)
    return {found: own[0] for found, own in by_key.items() if len(own) == 1}
