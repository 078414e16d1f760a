"""Roles of versions and their history: who answers, who did before, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import recalibrate
from pipeline.__main__ import main
from service.models import published as served
from tests.test_bundle import make_bundle
from trueodds.bundle import audit_log, model_folder, publishing
from trueodds.bundle.audit_log import Change, HistoryError
from trueodds.bundle.bundle import BundleError


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def published(models: Path, method: str, *, default: bool = True) -> str:
    folder = make_bundle(models.parent / method, lambda card: card.update(method=method))
    return publishing.publish(folder, models, "default" if default else None).name


def test_every_change_is_a_line_and_the_way_back_is_an_undo(models: Path) -> None:
    a, b, c = (published(models, method, default=method == "a") for method in "abc")
    publishing.set_shadow(models, "tiny", b, why="look", who="ann", since_ms=5)
    publishing.promote(models, "tiny", b, why="better", who="ann")
    assert model_folder.role(models, "tiny", "shadow") is None, "who answers is no shadow"
    publishing.promote(models, "tiny", b)
    publishing.promote(models, "tiny", c)
    found = [(x.what, x.before, x.after, x.why, x.since_ms) for x in audit_log.read(models / "tiny")]
    assert found[:4] == [
        ("publish", None, a, "published", None),
        ("shadow", None, b, "look", 5),
        ("promote", a, b, "better", None),
        ("shadow", b, None, "it answers now", None),
    ]
    assert len(found) == 5, "promoting what answers is no change"
    line = json.loads((models / "tiny" / "history.jsonl").read_text().splitlines()[2])
    assert (line["from"], line["to"], line["who"]) == (a, b, "ann") and line["when"].endswith("+00:00")
    assert [publishing.rollback(models, "tiny", why="worse") for _ in "12"] == [b, a]
    assert model_folder.find_default(models).name == a == model_folder.role(models, "tiny", "default")
    with pytest.raises(HistoryError, match=f"nothing is known to have answered for tiny before {a}"):
        publishing.rollback(models, "tiny")
    publishing.promote(models, "tiny", c)
    assert publishing.rollback(models, "tiny") == a
    assert served.scan(models).models["tiny"].versions == {a, b, c}
    assert not served.scan(models).problems


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=12))
def test_the_way_back_is_a_stack(moves: list[str | None]) -> None:
    stack = ["start"]
    changes: list[Change] = []
    for version in moves:
        before = stack[-1]
        if version is None and len(stack) > 1:
            stack.pop()
            assert audit_log.answered_before(changes, before) == stack[-1]
            changes.append(Change("rollback", before, stack[-1], "", "", ""))
        elif version is not None and version != before:
            stack.append(version)
            changes.append(Change("promote", before, version, "", "", ""))
    assert audit_log.answered_before(changes, stack[-1]) == (stack[-2] if len(stack) > 1 else None)


def test_a_default_written_by_hand_is_not_in_the_way(models: Path) -> None:
    a, b, c = (published(models, method, default=method != "c") for method in "abc")
    (models / "tiny" / "default").write_text(c + "\n")
    assert publishing.rollback(models, "tiny") == b
    (models / "tiny" / "shadow").write_bytes(b"\xff")
    assert model_folder.role(models, "tiny", "shadow") is None
    assert publishing.rollback(models, "tiny") == a


@pytest.mark.parametrize("line", ["{", "[]", '{"what": "promote"}', '{"what": "x", "from": null, "to": "a", "why": "", '
                                  '"who": "", "when": ""}', '{"from": 1, "to": 2, "more": 3}'])  # fmt: skip
def test_a_damaged_history_is_named_by_its_line(models: Path, line: str) -> None:
    published(models, "a")
    with (models / "tiny" / "history.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(HistoryError, match=r"history.jsonl, line 2 is no change .*; repair the line"):
        publishing.rollback(models, "tiny")


@pytest.mark.parametrize(
    "mark",
    ["\n", "\t", "\0", "\x1b", "\x7f", "\x85", "\u061c", "\u200e", "\u2028", "\u202a", "\u202e", "\u2069", "\udcff"],
    ids=ascii,
)
def test_reasons_and_names_are_plain_lines(models: Path, mark: str) -> None:
    """Nothing is changed by a refused one; a history that holds one of earlier times is read."""
    a, b = published(models, "a"), published(models, "b", default=False)
    before = (models / "tiny" / "history.jsonl").read_bytes()
    calls: list[Callable[..., object]] = [
        partial(publishing.promote, models, "tiny", b),
        partial(publishing.rollback, models, "tiny"),
        partial(publishing.set_shadow, models, "tiny", b),
        partial(recalibrate.Recalibration, recalibrate.client_of(), models),
    ]
    for name, call in product(("why", "who"), calls):
        with pytest.raises(HistoryError, match=rf"{name} holds U\+{ord(mark):04X} \(.*\) as character 3; allowed is"):
            call(**{name: f"so{mark}"})
    assert main(["promote", "tiny", b, "--why", f"so{mark}", "--models", str(models)]) == 1
    assert model_folder.role(models, "tiny", "default") == a and model_folder.role(models, "tiny", "shadow") is None
    assert (models / "tiny" / "history.jsonl").read_bytes() == before
    if mark not in ("\udcff", "\n"):
        with audit_log.writing(models / "tiny") as append:
            append(Change("promote", a, b, f"so{mark}it was", "me", audit_log.now()))
        assert audit_log.read(models / "tiny")[-1].why == f"so{mark}it was"


def test_a_user_whose_name_is_no_plain_line(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    b = published(models, "a") and published(models, "b", default=False)
    monkeypatch.setenv("LOGNAME", "me\x1b[2J")
    with pytest.raises(HistoryError, match=r"who holds U\+001B"):
        publishing.promote(models, "tiny", b)


def test_many_writers_leave_whole_lines(models: Path) -> None:
    versions = [published(models, method) for method in "abc"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: publishing.promote(models, "tiny", versions[k % 3]), range(60)))
    changes = audit_log.read(models / "tiny")
    assert all(x.before == y.after for y, x in pairwise(changes))
    assert changes[-1].after == model_folder.role(models, "tiny", "default")


def test_a_version_that_is_gone(models: Path) -> None:
    a, _ = published(models, "a"), published(models, "b")
    (models / "tiny" / a).rename(models / "away")
    with pytest.raises(BundleError, match="there is no folder"):
        publishing.rollback(models, "tiny")


def test_the_commands(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def typed(*words: str) -> tuple[int, str]:
        status = main([*words, "--models", str(models)])
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    assert typed("versions") == (1, f"error: there is no model in {models}; python -m pipeline publish\n")
    a, b = published(models, "a"), published(models, "b", default=False)
    assert typed("shadow", "tiny", b) == (0, f"tiny/{b} is the shadow now\n")
    assert typed("shadow", "tiny", "none") == (0, "tiny has no shadow now\n")
    assert typed("promote", "tiny", b, "--why", "asked for") == (
        0,
        f"tiny/{b} answers now: calls with ?model=tiny, and calls that name no model.\n",
    )
    status, text = typed("versions", "tiny")
    assert status == 0 and f"  {b}  answers temperature, b" in text and f"{a} -> {b}" in text
    assert text.endswith(": asked for\n") and f"  {a}          temperature, a" in text
    assert "tiny, which answers calls that name no model\n" in text
    publishing.publish(make_bundle(models.parent / "o", lambda card: card.update(name="other")), models)
    assert typed("default") == (0, f"tiny/{b} answers calls that name no model\n")
    other = model_folder.role(models, "other", "default")
    assert typed("default", "other", "--why", "new") == (0, f"other/{other} answers calls that name no model\n")
    assert f"default  tiny -> other  {audit_log.whoever()}: new\n" in typed("versions")[1]
    assert typed("default", "--rollback") == (0, f"tiny/{b} answers calls that name no model\n")
    assert typed("default", "nobody")[0] == 1
    assert typed("rollback", "tiny") == (0, f"tiny/{a} answers again\n")
    assert typed("rollback", "tiny")[0] == 1
    for words in (("promote", "tiny", "x"), ("promote", "tiny", "../tiny"), ("shadow", "tiny", "x"), ("rollback", "x")):
        status, text = typed(*words)
        assert status == 1 and text.startswith("error: there is no ")
    (models / "tiny" / b / "calibrator.json").write_text("{}")
    status, text = typed("promote", "tiny", b)
    assert status == 1 and "altered or damaged" in text
    assert "damaged: " in typed("versions")[1]
