"""Passwords of addresses, which no message or file may show."""

from __future__ import annotations

import pytest

from trueodds.texts import hide_password


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
