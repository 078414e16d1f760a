"""Audits of a running service by the client and by the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from trueodds.cli import COMMANDS, main
from trueodds.client import CallError, Client

MODEL = "audited"


def fill(client: Client, count: int = 800) -> None:
    """Store answers and labels; those with the tag `night` are wrong more often."""
    rng = np.random.default_rng(2)
    p_N, tags = rng.uniform(0.7, 0.95, count), rng.choice(["day", "night", "dawn"], count).tolist()
    right_N = rng.random(count) < p_N - 0.4 * (np.array(tags) == "night")
    ids = [f"audit-{k}" for k in range(count)]
    p_NC = np.stack([p_N, 1 - p_N], axis=1)
    client.observe(ids, p_NC, model=MODEL, version="1", classes=["yes", "no"], tags=tags)
    client.feedback({id_: "yes" if right else "no" for id_, right in zip(ids, right_N.tolist(), strict=True)})


def test_audits_of_a_service(client: Client, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(client)
    audit = client.audit(MODEL, features=["tag", "predicted"], swap=True, tolerance=0.05)
    assert audit.is_found and audit.groups[0].words == 'tag is "night"' and audit.tolerance == 0.05
    assert len(audit.groups) == 2 and "Looked at 800 labelled answers" in str(audit)
    with pytest.raises(CallError, match=r"unknown feature 'tga'.*tag") as refused:
        client.audit(MODEL, features=["tga"])
    assert refused.value.code == "invalid_parameter"
    out = tmp_path / "audit.json"
    words = [url, "--model", MODEL, "--features", "tag", "--last", "700", "--out", str(out)]
    assert main("trueodds", COMMANDS, ["audit", *words]) == 0
    text = capsys.readouterr().out
    assert text.startswith('A group is off by more than 0.02:\n- tag is "night": right ') and "700 labelled" in text
    document = json.loads(out.read_text(encoding="utf-8"))
    assert document["model"] == MODEL and document["service"] == url and document["labels"] == 700
    table = tmp_path / "a.csv"
    table.write_text("confidence,correct,x\n.9,1,3\n", encoding="utf-8")
    for given, message in (
        ([url, "--label", "truth"], "--label is for tables"),
        ([url, "--positive", "yes"], "--positive is for tables"),
        (["postgres://ada:secret@host/logs"], "is not the URL of a service; allowed are http:// and https://"),
        ([str(table)], "--features is missing"),
        ([str(table), "--features", "x", "--model", "mail"], "--model is for a service"),
        ([str(table), "--features", "x", "--labels", "http://host/labels"], "allowed is a file"),
    ):
        assert main("trueodds", COMMANDS, ["audit", *given]) != 0
        error = capsys.readouterr().err
        assert message in error and "secret" not in error, error
