"""Kinds of drift, biases of labels and splits of data, by name. The help of the command shows them."""

from __future__ import annotations

import re
from typing import NamedTuple

SPLITS = ("test", "val", "train", "held_out")
"""Splits in the order of preference: a model should be watched on data that it has not learnt from."""
BIASES = {
    "wrong": "wrong answers are RATIO times as likely to get a label",
    "unsure": "answers below 90% confidence are RATIO times as likely to get a label",
    "early": "labels of wrong answers arrive RATIO times as fast",
}


class Kind(NamedTuple):
    """Kind of drift."""

    neutral: float
    low: float
    high: float
    meaning: str
    nouns: tuple[str, ...] = ("image", "vector", "text")
    """Kinds of rows that it applies to."""


_NOISE = "normal noise on every pixel or feature; standard deviation in fractions of 0..255, or of the feature's own"
_CONTRAST = "factor on each pixel's difference from its image's mean; 1 changes nothing"
_IMAGE, _TEXT = ("image",), ("text",)
KINDS = {
    "noise": Kind(0, 0, 4, _NOISE, ("image", "vector")),
    "blur": Kind(0, 0, 64, "Gaussian blur; standard deviation in pixels", _IMAGE),
    "contrast": Kind(1, 0, 4, _CONTRAST, _IMAGE),
    "brightness": Kind(0, -1, 1, "added to every pixel, in fractions of the range 0..255", _IMAGE),
    "words": Kind(0, 0, 1, "share of a text's words that are removed", _TEXT),
    "topic": Kind(0, 0, 1, "share of a text's words that are replaced by those of a text of another class", _TEXT),
    "labels": Kind(0, 0, 1, "share of the true labels that are replaced by another class, drawn at random"),
}
GRAMMAR = "KIND:STRENGTH@TIME or KIND:STRENGTH@TIME..TIME, such as noise:0.5@40s or blur:2@30s..2m"
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smh]?)")


def seconds(text: str) -> float:
    """Parse `40`, `40s`, `1.5m` or `2h` to seconds.

    Raises:
        ValueError: The text has another form.
    """
    if not (match := _TIME.fullmatch(text.strip())):
        raise ValueError(
            f"{text!r} is not a time; allowed are seconds, or a number with s, m or h, such as 40s or 1.5m"
        )
    return float(match[1]) * _UNITS[match[2]]
