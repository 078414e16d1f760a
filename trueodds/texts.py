"""Texts and names as people write and read them: lines of a record, counts, and matching of names."""

from __future__ import annotations

import re
import reprlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
"""Pattern of a model or version: a folder name that cannot leave its parent folder."""
_UNFIT = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0, DEL, C1), line and paragraph separators, direction marks, and halves of surrogate pairs.

They break a line, control a terminal, or make a record look different from its content.
"""
LONG = 1000
"""Characters from which a whole number is not converted: Python refuses texts of more than 4,300 digits."""
_WHOLE = re.compile(r"[+-]?\d+(?:\.0*)?")
LONGEST = 1024
"""Largest number of characters of a text that is matched loosely. A longer text must equal a name exactly."""


def line_problem(text: str) -> str:
    """Return why a text is not a plain line, to be read after its name; "" if it is one."""
    if not (unfit := _UNFIT.search(text)):
        return ""
    name = unicodedata.name(unfit[0], "half a surrogate pair" if unfit[0] >= "\ud800" else "a control character")
    place = f"holds U+{ord(unfit[0]):04X} ({name}) as character {unfit.start() + 1}"
    return f"{place}; allowed is one line, without control characters and marks of the writing direction. Leave it out"


def plural(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun: 1, "label" -> 1 label; 1200 -> 1,200 labels."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def quotes(names: Sequence[str], most: int = 10) -> str:
    """List the names in quotes; from `most` on, only how many more there are.

    Examples:
        >>> quotes(["cat", "dog", "hare"], most=2)
        "'cat', 'dog' and 1 more"
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


def column_quotes(names: Sequence[str]) -> str:
    """List the names in quotes. Of many names, list the first eight and the last three, where labels often are.

    Examples:
        >>> column_quotes([f"x{k}" for k in range(20)])
        "'x0', 'x1', 'x2', 'x3', 'x4', 'x5', 'x6', 'x7', ..., 'x17', 'x18', 'x19' (20 in all)"
    """
    if len(names) <= 12:
        return quotes(names, 12)
    return f"{quotes(names[:8])}, ..., {quotes(names[-3:])} ({len(names):,} in all)"


def as_name(value: Any) -> Any:
    """Convert a whole number to the class name with its digits. Anything else is unchanged; True is not a number here.

    Examples:
        >>> as_name(3), as_name(3.0), as_name("3"), as_name(True)
        ('3', '3', '3', True)
    """
    return value if (number := as_whole(value)) is None else str(number)


def as_whole(value: Any) -> int | None:
    """Return a whole number, which a column with a gap stores as 3.0. None for anything else, and for True.

    Examples:
        >>> as_whole(3), as_whole(3.0), as_whole(3.5), as_whole("3")
        (3, 3, None, None)
    """
    if type(value) is float and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def is_whole_number(text: str) -> bool:
    """Return whether a text is a whole number. If classes have such names, a number is a name and never an index.

    Examples:
        >>> is_whole_number("-1"), is_whole_number("2.0"), is_whole_number("2.5")
        (True, True, False)
    """
    return _WHOLE.fullmatch(text) is not None


def without_point(text: str) -> str:
    """Remove the point of a whole number. A column of numbers with a gap is written as 1.0, 2.0.

    Examples:
        >>> without_point("-1.0"), without_point("1.5"), without_point("cat")
        ('-1', '1.5', 'cat')
    """
    if not is_whole_number(text):
        return text
    whole = text.partition(".")[0]
    # int refuses a text of more than 4,300 digits
    return str(int(whole)) if len(whole) < LONG else f"{Decimal(whole) or Decimal():f}"


def with_article(noun: str) -> str:
    """Add the indefinite article: image -> an image; vector -> a vector."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def short(value: Any) -> str:
    """Return `repr`, cut to a line. The work is bounded, however large or deep the value is.

    Examples:
        >>> short("x" * 100)
        "'xxxxxxxxxxxx...xxxxxxxxxxxxx'"
    """
    if isinstance(value, dict):  # reprlib sorts every key first
        return f"an object with {plural(len(value), 'key')}"
    try:
        text = reprlib.repr(value)
    except ValueError:  # Python prints no int of more than 4,300 digits
        return f"{with_article(type(value).__name__)} with too many digits to show"
    return text if len(text) <= 60 else text[:57] + "..."


def hide_password(text: str) -> str:
    """Return a text without the passwords of URLs: before the last `@`, or as an option such as `password=`.

    Examples:
        >>> hide_password("postgres://me:a@b@host/logs?password=c")
        'postgres://me:***@host/logs?password=***'
    """
    text = re.sub(r"://([^:/@\s]*):\S+@", r"://\1:***@", text)
    return re.sub(r"([?&;][\w-]*(?:pass|pwd|secret|token|key)[\w-]*=)[^&;\s]+", r"\1***", text, flags=re.IGNORECASE)


def form(name: str) -> str:
    """Normalise a name, so that different spellings become equal.

    Case, blanks, underscores, points, dashes and Unicode's forms do not matter. A name without letters is unchanged:
    1.5, 1-5 and -15 are different.

    Examples:
        >>> form("New York") == form("new_york"), form("1.5") == form("1-5")
        (True, False)
    """
    if not any(map(str.isalpha, name)):
        return name
    return re.sub(r"[\s_.-]+", "_", unicodedata.normalize("NFC", name).strip().casefold())


def alike(expected: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Map each wanted name that is not among `names` to the name with the same `form`.

    An ambiguous name is left out.

    Examples:
        >>> alike(["sepal_length", "age"], ["Sepal Length", "age", "AGE"])
        {'sepal_length': 'Sepal Length'}
    """
    others = _only(name for name in names if name not in expected)
    missing = _only(name for name in expected if name not in names)
    return {name: others[key] for key, name in missing.items() if key in others}


class Places:
    """Positions of names, found by what people write for them.

    A name itself has priority, then the same whole number with or without a point, then the same text in another
    Unicode form ("é" as one character or two), then the only name with the same `form`.

    Examples:
        >>> places = Places(["New York", "8"])
        >>> places.get("new_york"), places.get("8.0"), places.get("York")
        (0, 1, None)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        pointed = {without_point(name): k for k, name in enumerate(names) if "." in name}
        self._exact = pointed | {name: k for k, name in enumerate(names)}

    def get(self, text: str) -> int | None:
        """Find the position of the name that a text means. None if there is none, or if two are possible."""
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
    """Map keys to names, without names that share a key."""
    by_key: dict[str, list[str]] = {}
    for name in names:
        by_key.setdefault(key(name), []).append(name)
    return {found: own[0] for found, own in by_key.items() if len(own) == 1}


def capitalise(text: str) -> str:
    """Capitalise the first letter.

    >>> capitalise("may act")
    'May act'
    """
    return text[0].upper() + text[1:]


def promise_text(threshold: float | None, risk: float) -> str:
    """Return a promise to act alone in a few words.

    >>> promise_text(0.93, 0.05)
    'acts alone from 0.93 on (at most 5% wrong)'
    """
    where = "by thresholds of tags" if threshold is None else f"from {threshold:.6g} on"
    return f"acts alone {where} (at most {100 * risk:.3g}% wrong)"
