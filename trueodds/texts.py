"""Texts and names as people write and read them: lines of a record, counts, and which name a text means."""

from __future__ import annotations

import re
import reprlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

_UNFIT = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0, DEL, C1), line and paragraph separators, marks of the direction of writing, and halves of
surrogate pairs: they break a line, command a terminal, or let a record read otherwise than it is."""
_WHOLE = re.compile(r"[+-]?\d+(?:\.0*)?")
LONGEST = 1024
"""Characters of a text; a longer one is a name only as it stands."""


def line_problem(text: str) -> str:
    """Why a text is no plain line, to be read after its name; "" where it is one."""
    if not (unfit := _UNFIT.search(text)):
        return ""
    name = unicodedata.name(unfit[0], "half a surrogate pair" if unfit[0] >= "\ud800" else "a control character")
    place = f"holds U+{ord(unfit[0]):04X} ({name}) as character {unfit.start() + 1}"
    return f"{place}; allowed is one line, without control characters and marks of the writing direction. Leave it out"


def plural(count: int, one: str, many: str = "") -> str:
    """1, "label" -> 1 label; 1200 -> 1,200 labels"""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str], most: int = 10) -> str:
    """The names in quotes, from `most` on only how many more.

    >>> listed(["cat", "dog", "hare"], most=2)
    "'cat', 'dog' and 1 more"
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


def columns_listed(names: Sequence[str]) -> str:
    """The names in quotes; of many the first eight and, for labels often stand there, the last three.

    >>> columns_listed([f"x{k}" for k in range(20)])
    "'x0', 'x1', 'x2', 'x3', 'x4', 'x5', 'x6', 'x7', ..., 'x17', 'x18', 'x19' (20 in all)"
    """
    if len(names) <= 12:
        return listed(names, 12)
    return f"{listed(names[:8])}, ..., {listed(names[-3:])} ({len(names):,} in all)"


def as_name(value: Any) -> Any:
    """The name of a class that a whole number is: its digits. Anything else as it is; True is no number here.

    >>> as_name(3), as_name(3.0), as_name("3"), as_name(True)
    ('3', '3', '3', True)
    """
    return value if (number := as_whole(value)) is None else str(number)


def as_whole(value: Any) -> int | None:
    """A whole number, which a column with a gap holds as 3.0; None for anything else, and for True.

    >>> as_whole(3), as_whole(3.0), as_whole(3.5), as_whole("3")
    (3, 3, None, None)
    """
    if type(value) is float and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def is_whole_number(text: str) -> bool:
    """Whether a text is a whole number: of classes with such names, a number is a name and never an index.

    >>> is_whole_number("-1"), is_whole_number("2.0"), is_whole_number("2.5")
    (True, True, False)
    """
    return _WHOLE.fullmatch(text) is not None


def without_point(text: str) -> str:
    """A whole number without its point: a column of numbers with a gap in it is written as 1.0, 2.0.

    >>> without_point("-1.0"), without_point("1.5"), without_point("cat")
    ('-1', '1.5', 'cat')
    """
    return str(int(text.partition(".")[0])) if is_whole_number(text) else text


def with_article(noun: str) -> str:
    """image -> an image; vector -> a vector"""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def short(value: Any) -> str:
    """`repr`, cut to a line: bounded work however large or deep the value is.

    >>> short("x" * 100)
    "'xxxxxxxxxxxx...xxxxxxxxxxxxx'"
    """
    if isinstance(value, dict):  # reprlib sorts every key first
        return f"an object with {plural(len(value), 'key')}"
    text = reprlib.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def form(name: str) -> str:
    """Drop what two writings of a name differ in: case, blanks, underscores, points, dashes, and Unicode's forms.

    A name without letters is as it stands: 1.5, 1-5 and -15 are not alike.

    >>> form("New York") == form("new_york"), form("1.5") == form("1-5")
    (True, False)
    """
    if not any(map(str.isalpha, name)):
        return name
    return re.sub(r"[\s_.-]+", "_", unicodedata.normalize("NFC", name).strip().casefold())


def alike(wanted: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Map each wanted name that is not among `names` to the one of the same `form`.

    Where two could be meant, it is left out.

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
        """Find the place of the name that a text means; None where it means none, or may mean two."""
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
    """Map keys to names, without those that share one."""
    by_key: dict[str, list[str]] = {}
    for name in names:
        by_key.setdefault(key(name), []).append(name)
    return {found: own[0] for found, own in by_key.items() if len(own) == 1}
