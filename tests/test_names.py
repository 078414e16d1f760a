"""Which name a text means: of classes and of columns."""

from __future__ import annotations

import pytest

from trueodds.inputs.names import Places, alike

CLASSES = ("New York", "los_angeles", "8", "-1", "a.b", "A-B", "caf\u00e9")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("New York", 0),
        ("new_york", 0),
        (" NEW-YORK ", 0),
        ("Los Angeles", 1),
        ("8.0", 2),
        ("-8", None),
        ("1", None),
        ("-1.", 3),
        ("A-B", 5),
        ("a_b", None),
        ("cafe\u0301", 6),
        ("CAFE\u0301", 6),
        ("York", None),
        ("", None),
        ("n" * 2000, None),
    ],
)
def test_an_exact_name_wins_and_else_the_only_one_that_is_alike(text: str, place: int | None) -> None:
    assert Places(CLASSES).get(text) == place


def test_numbers_are_never_alike() -> None:
    assert alike([".5", "x 1"], ["-5", "X_1"]) == {"x 1": "X_1"}
