"""Passwords of addresses, which no message or file may show, and whole numbers of any length."""

from __future__ import annotations

import pytest

from trueodds.texts import hide_password, short, without_point


@pytest.mark.parametrize(
    "address",
    [
        "postgres://me:secret@host:5432/logs",
        "postgres://me:a@secret@host/logs",
        "postgres://me:a/secret@host/logs",
        "postgres://:secret@host/logs",
        "postgres://host/logs?user=me&password=secret&sslmode=require",
        "postgres://host/logs?sslPassword=secret",
        "snowflake://me@account/logs?passcode=secret",
        "clickhouse://host/logs?access_token=secret",
    ],
)
def test_no_form_of_a_password_is_shown(address: str) -> None:
    hidden = hide_password(f"cannot open {address} now")
    assert "secret" not in hidden and "***" in hidden and hidden.startswith("cannot open ") and hidden.endswith(" now")
    assert ("me" in hidden, "sslmode=require" in hidden) == ("me" in address, "sslmode=require" in address)


@pytest.mark.parametrize("text", ["http://127.0.0.1:80/a", "postgres://me@host:1/logs?sslmode=require", "a:b@c ?x=1"])
def test_a_text_without_a_password_stays(text: str) -> None:
    assert hide_password(text) == text


@pytest.mark.parametrize("zeros", ["", "000"])
@pytest.mark.parametrize("digits", [3, 5000])
def test_a_whole_number_of_any_length_loses_its_point(digits: int, zeros: str) -> None:
    number = "7" * digits
    assert [without_point(sign + zeros + number + ".0") for sign in ("", "+", "-")] == [number, number, f"-{number}"]
    assert [without_point(f"{sign}{'0' * digits}.") for sign in ("", "+", "-")] == ["0"] * 3


def test_a_number_that_python_does_not_print_is_described() -> None:
    assert short(10**5000) == short([10**5000]).replace("a list", "an int") == "an int with too many digits to show"
