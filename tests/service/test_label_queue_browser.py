"""The page of the label queue in a real Chromium: one click or one key stores an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.http import hashed_keys
from tests.service.test_process import server
from tools import chromium
from tools.chromium import Chromium

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(chromium.find() is None, reason="no Chromium on the PATH (CHROMIUM names another)"),
]
CLASSES = ["ham", "spam", "other"]
OWN = {"model": "mail", "version": "7"}


def drawn(client: httpx.Client, count: int = 12) -> None:
    """Observe answers and put all of them into the queue."""
    rows = [{"id": f"m-{k}", "probabilities": [0.6, 0.3, 0.1]} for k in range(count)]
    body = {**OWN, "classes": CLASSES, "observations": rows}
    assert client.post("/observe", json=body).status_code == 200
    draw = {**OWN, "who": "Eve", "budget": count, "goal": "plain", "floor": 1.0}
    assert client.post("/label-queue", json=draw).status_code == 200


def queue(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/label-queue", params={**OWN, "closures": 100}).json()
    return found


def shown(tab: Chromium) -> str:
    return str(tab.run("document.querySelector('#answer input[name=id], #label-form input[name=id]').value"))


def wait_for_next(tab: Chromium, before: str) -> None:
    tab.wait_for(f"document.querySelector('#label-form input[name=id]')?.value !== {json.dumps(before)}")


def enter(tab: Chromium, client: httpx.Client, key: str = "", then: str = "#label-form input[name=id]") -> None:
    """Open the page, give a name and maybe a key, and get the first answer."""
    tab.open(f"{str(client.base_url).rstrip('/')}/label-queue?model=mail&format=html")
    tab.run("document.getElementById('who').focus()")
    for letter in "Ada1s":  # in a field these are letters
        tab.key(letter, letter)
    if key:
        tab.run(f"document.getElementById('key').value = {json.dumps(key)}")
    tab.run("document.querySelector('#label-form button').click()")
    tab.wait_for(f"document.querySelector({json.dumps(then)}) !== null")


def test_keys_and_clicks_answer(tab: Chromium, tmp_path: Path) -> None:
    with server(tmp_path) as (client, _):
        drawn(client)
        enter(tab, client)
        given = dict[str, str | None]()
        for press, name in (("2", "spam"), ("s", None), ("3", "other"), ("S", None), ("1", "ham")):
            given[id_ := shown(tab)] = name
            tab.key(press, press)
            wait_for_next(tab, id_)
        for press in ("4", "0", "x"):  # no class has these
            tab.key(press, press)
        given[id_ := shown(tab)] = "spam"
        tab.run("document.querySelector('button[value=spam]').click()")
        wait_for_next(tab, id_)
        found = queue(client)
        assert found["state"] == {"sample_size": 12, "labelled": 4, "skips": 2, "waiting": 6, "maturing": 0}
        closed = {one["id"]: (one["who"], one["is_skip"]) for one in found["closures"]}
        assert closed == {id_: ("Ada1s", name is None) for id_, name in given.items()}
        stored = {id_: client.get(f"/predictions/{id_}", params={"model": "mail"}).json() for id_ in given}
        assert {id_: row.get("label") for id_, row in stored.items()} == given

        # Two presses at once are one answer; the second one is not a label of the answer before.
        id_ = shown(tab)
        press = "document.dispatchEvent(new KeyboardEvent('keydown', {{key: '{}'}}));"
        tab.run(press.format(1) + press.format(2))
        wait_for_next(tab, id_)
        assert queue(client)["state"]["labelled"] == 5

        for _ in range(5):
            id_ = shown(tab)
            tab.key("1", "1")
            wait_for_next(tab, id_)
        tab.wait_for("document.body.textContent.includes('All drawn answers are labelled or skipped.')")


def test_the_key_is_asked_for_once(tab: Chromium, tmp_path: Path) -> None:
    key, hashed = hashed_keys.make()
    with server(tmp_path, "--feedback-key-hash", hashed) as (client, _):
        drawn(client)
        enter(tab, client, "wrong", then="main .lead")
        text = str(tab.run("document.body.textContent"))
        assert "This answer was not stored" in text and "feedback key" in text
        assert "401" in tab.problems.pop()  # the browser's own line about the answer
        tab.run("document.querySelector('main a').click()")  # goes back to the start
        tab.wait_for("document.getElementById('who') !== null")
        assert queue(client)["answers"] == []
        enter(tab, client, key)
        for press in ("1", "s", "2"):
            id_ = shown(tab)
            tab.key(press, press)
            wait_for_next(tab, id_)
        assert [(one["who"], one["is_skip"]) for one in queue(client)["closures"]] == [
            ("Ada1s", False),
            ("Ada1s", True),
            ("Ada1s", False),
        ]
