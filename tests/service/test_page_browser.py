"""The page in a real Chromium: what its script does, and what is left without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.report import pages
from tests.service.page_parts import NOW
from tests.service.page_reports import ALL
from tests.service.test_process import predict, server
from tests.service.tiny_bundle import pictures, write_bundle
from tools import chromium
from tools.chromium import Chromium
from trueodds.bundle import open_models
from trueodds.reports import page

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(chromium.find() is None, reason="no Chromium on the PATH (CHROMIUM names another)"),
]
REFRESH = "document.dispatchEvent(new Event('visibilitychange'))"
"""Makes the page ask for news at once."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service with 60 answers, 40 of them with labels. Tests add answers."""
    folder = tmp_path_factory.mktemp("page")
    open_models(folder / "models").publish(write_bundle(folder / "bundle"))
    with server(folder) as (client, _):
        label(client, predict(client, pictures(60))[:40])
        yield client


@pytest.fixture
def live(service: httpx.Client, tab: Chromium) -> Iterator[httpx.Client]:
    yield service
    tab.open("about:blank")  # or the page goes on to ask for news


def label(client: httpx.Client, answers: list[dict[str, Any]], index: int | None = None) -> None:
    rows = [{"id": p["id"], "index": p["index"] if index is None else index} for p in answers]
    assert client.post("/feedback", json={"labels": rows}).status_code == 200


def report(client: httpx.Client, query: str = "") -> str:
    return f"{str(client.base_url).rstrip('/')}/calibration-report?format=html{query}"


def text(tab: Chromium, what: str) -> str:
    return str(tab.run(f"document.querySelector({json.dumps(what)}).textContent"))


@pytest.mark.parametrize("name", ALL)
def test_fits_a_phone_in_light_and_dark(tab: Chromium, name: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(pages.render(ALL[name](), {"by": "class"}, now=NOW))
    for dark in (False, True):
        tab.screen(360, 740, dark=dark)
        tab.open(f"file://{tmp_path}/page.html")
        tab.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert tab.run("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]
        ground = tab.run("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(21, 23, 27)" if dark else "rgb(246, 245, 241)")
        small = "[...document.querySelectorAll('.chart text')].filter(t => t.getBoundingClientRect().height < 9).length"
        assert tab.run(small) == 0


@pytest.mark.parametrize("name", ["over-confident", "calibrated", "no answers", "many classes"])
def test_the_word_comes_first_and_tables_show_that_they_scroll(tab: Chromium, name: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(pages.render(ALL[name](), now=NOW))
    tab.screen(390, 844)
    tab.open(f"file://{tmp_path}/page.html")
    assert tab.run("document.querySelector('#now-title').getBoundingClientRect().top") < 844 / 3
    wide = "[...document.querySelectorAll('.scroll')].filter(b => b.scrollWidth > b.clientWidth)"
    shadow = "getComputedStyle(b).backgroundAttachment.split(', ')"
    assert tab.run(f"{wide}.every(b => {shadow}.filter(a => a === 'local').length == 2)") is True
    assert (tab.run(f"{wide}.length") > 0) == (name != "no answers")


def test_news_comes_without_disturbing(tab: Chromium, live: httpx.Client) -> None:
    tab.screen(1200, 500)
    tab.open(report(live))
    before = text(tab, ".headline")
    tab.run("document.querySelector('#glossary').open = true")
    tab.run("document.querySelector('#cautions summary').focus({preventScroll: true})")
    tab.run("scrollTo({top: 700, behavior: 'instant'}); document.querySelector('#reliability').kept = 1")
    read = "document.querySelector('#reliability').getBoundingClientRect().top"
    place = tab.run(read)
    assert tab.run("scrollY") > 300
    tab.run("document.querySelector('#choice').kept = 1")
    label(live, predict(live, pictures(20, seed=11)))
    tab.run(REFRESH)
    tab.wait_for(f"document.querySelector('.headline').textContent !== {json.dumps(before)}")
    assert tab.run("document.querySelector('#glossary').open") is True
    assert tab.run("document.activeElement.closest('details').id") == "cautions"
    assert abs(tab.run(read) - place) <= 1  # what is being read stays where it is
    assert tab.run("document.querySelector('#choice').kept") == 1  # what did not change is not replaced
    assert tab.run("document.querySelector('#reliability').kept ?? null") is None
    assert "Refreshes every 10 seconds" in text(tab, "#pulse")
    assert tab.run("document.querySelector('#reliability-chart').tabIndex") == 0  # the new part is alive too


def test_a_change_of_state_is_announced(tab: Chromium, tmp_path: Path) -> None:
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle"))
    with server(tmp_path) as (client, _):
        answers = predict(client, pictures(60))
        tab.open(report(client))
        assert text(tab, "#now-title") == "No labels yet" and text(tab, "#news") == ""
        assert tab.run("document.title").startswith("No labels yet · tiny")
        shown = text(tab, "#command-feedback code")
        assert str(client.base_url).rstrip("/") in shown
        label(client, answers, index=0)
        tab.run(REFRESH)
        tab.wait_for("document.querySelector('#now-title').textContent !== 'No labels yet'")
        word = text(tab, "#now-title")
        tab.wait_for("document.querySelector('#news').textContent !== ''")
        assert text(tab, "#news").startswith(f"Changed: {word}. 60 of 60 answers have labels.")
        assert tab.run("document.title").startswith(f"{word} · tiny")


def test_an_absent_service_is_said_and_the_numbers_stay(tab: Chromium, tmp_path: Path) -> None:
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle"))
    with server(tmp_path) as (client, _):
        label(client, predict(client, pictures(5, seed=3)))
        tab.open(report(client))
        before = text(tab, "main")
    tab.run(REFRESH)
    tab.wait_for("document.querySelector('#pulse').classList.contains('away')")
    assert "the service does not answer. The page shows the last report" in text(tab, "#pulse")
    assert text(tab, "#news") == text(tab, "#pulse")
    assert text(tab, "main") == before
    assert all("ERR_CONNECTION_REFUSED" in problem for problem in tab.problems)
    tab.problems.clear()


def test_waits_while_a_form_is_filled_in_and_when_told_to(tab: Chromium, live: httpx.Client) -> None:
    tab.open(report(live))
    tab.run("document.querySelector('#choose').open = true")
    tab.run("document.querySelector('[name=tag]').focus()")
    tab.key("n", "n")
    before = text(tab, ".headline")
    label(live, predict(live, pictures(3, seed=77)))
    tab.run(REFRESH)
    tab.wait_for("document.querySelector('#pulse').textContent.includes('fill in the form')")
    assert (text(tab, ".headline"), tab.run("document.querySelector('[name=tag]').value")) == (before, "n")
    tab.run("document.activeElement.blur(); document.querySelector('[name=tag]').value = ''")
    tab.run("document.querySelector('#pulse + button').click()")
    assert text(tab, "#pulse") == "Paused."
    assert text(tab, ".headline") == before
    tab.run("document.querySelector('#pulse + button').click()")
    tab.wait_for(f"document.querySelector('.headline').textContent !== {json.dumps(before)}")


def test_a_choice_is_shown_at_once_and_slides(tab: Chromium, live: httpx.Client) -> None:
    tab.open(report(live, "&bins=30"))
    pick = "const s = document.querySelector('[name=window]'); s.value = '24h';"
    tab.run(f"(() => {{ {pick} s.dispatchEvent(new Event('change', {{bubbles: true}})) }})()")
    tab.wait_for("location.search.includes('since=')")
    address = tab.run("location.href")
    assert address.startswith(f"{str(live.base_url).rstrip('/')}/calibration-report?since=")
    assert "bins=30" in address and "tag" not in address and "format=html" in address
    tab.run("document.querySelector('#choose').open = true")
    days = "const s = document.querySelector('[name=window]'); s.value = 'days';"
    tab.run(f"(() => {{ {days} s.dispatchEvent(new Event('change', {{bubbles: true}})) }})()")
    assert tab.run("document.activeElement.name") == "from"  # which days has to be said first


def test_charts_speak_to_pointer_and_keyboard(tab: Chromium, live: httpx.Client) -> None:
    tab.open(report(live))
    tab.run("document.querySelector('#reliability-chart').focus()")
    rows = tab.run("[...document.querySelector('#bins-table').tBodies[0].rows].map(r => r.cells[1].textContent)")
    for k, count in enumerate(rows):
        tab.key("ArrowRight")
        assert f"Labels{count}Says" in text(tab, "#reliability-chart .tip"), k
        assert f", Labels {count}, Says" in text(tab, "#news")
    tab.key("Escape")
    assert tab.run("document.querySelector('#reliability-chart .tip').hidden") is True
    tab.run("document.querySelector('#reliability-chart').scrollIntoView({block: 'center', behavior: 'instant'})")
    place = "document.querySelector('#reliability-chart svg').getBoundingClientRect()"
    box = tab.run(f"(() => {{ const b = {place}; return [b.x, b.y, b.width, b.height] }})()")
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + 0.95 * box[2], y=box[1] + box[3] / 2)
    assert f"Labels{rows[-1]}Says" in text(tab, "#reliability-chart .tip")
    tip = tab.run("document.querySelector('.tip').getBoundingClientRect().right")
    assert tip <= box[0] + box[2] + 1
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=5, y=5)
    assert tab.run("document.querySelector('#reliability-chart .tip').hidden") is True


def test_the_keyboard_reaches_everything_and_sees_where_it_is(tab: Chromium, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(pages.render(ALL["over-confident"](), now=NOW))
    tab.open(f"file://{tmp_path}/page.html")
    tab.run("document.querySelector('#choose').open = true")
    order, outlines = [], set()
    for _ in range(60):
        tab.key("Tab")
        order.append(
            tab.run("(() => { const a = document.activeElement; return a.name || a.id || a.textContent.trim() })()")
        )
        outlines.add(tab.run("getComputedStyle(document.activeElement).outlineStyle"))
        if order[-1].startswith("Metrics"):
            break
    wanted = [
        "Skip to the result",
        "Shown: all predictions so far; with 95% intervals. Choose",
        "which",
        "window",
        "Show",
        "Pause",
    ]
    wanted += [
        "Copy",
        "who",
        "key",
        "why",
        "Acknowledge the alarm",
        "reliability-chart",
        "bins-box",
        "trend-chart",
        "evidence-chart",
    ]
    places = [order.index(name) for name in wanted]
    assert places == sorted(places)
    assert order[-1].startswith("Metrics")
    assert outlines == {"solid"}


def test_works_without_a_script(tab: Chromium, live: httpx.Client) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    tab.open(report(live))
    assert tab.run("document.querySelector('.tip, .copy, #pulse + button')") is None
    assert "bins-table" in tab.run("document.querySelector('main').innerHTML")
    tab.run("document.querySelector('#choose').open = true")
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
    tab.run(f"document.querySelector('[name=to]').value = '{tomorrow}'")
    tab.run("document.querySelector('nav [name=bins]').value = '30'")
    tab.run("document.querySelector('nav form button').click()")
    tab.wait_for("location.search.includes('until=')")
    assert "bins=30" in tab.run("location.search") and "window" not in tab.run("location.search")
    assert tab.run("document.querySelector('[name=bins]').value") == "30"


def test_a_page_in_a_file_does_not_refresh(tab: Chromium, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page.render(ALL["over-confident"](), now=NOW))
    tab.open(f"file://{tmp_path}/page.html")
    tab.run(REFRESH)
    assert text(tab, "#pulse") == "" and tab.run("document.querySelector('#pulse + button')") is None
    assert tab.run("document.querySelectorAll('.chart[tabindex]').length") == 4  # the charts are live


def test_print_shows_all_and_asks_nothing(tab: Chromium, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(pages.render(ALL["over-confident"](), now=NOW))
    tab.screen(760, 1000, media="print")
    tab.open(f"file://{tmp_path}/page.html")
    seen = "[...document.querySelectorAll({})].filter(e => e.checkVisibility({{contentVisibilityAuto: true}})).length"
    assert tab.run(seen.format("'form, button, .tip, .skip, #pulse, summary:not(#choose summary)'")) == 0
    for what in ("#trend-table", "#evidence-table", ".terms", "#limits-more li", "#bins-table"):
        assert tab.run(f"document.querySelector({json.dumps(what)}).getBoundingClientRect().height") > 5, what
    assert tab.run("document.documentElement.scrollWidth") <= 760


def test_the_command_can_be_copied(tab: Chromium, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(pages.render(ALL["over-confident"](), now=NOW))
    tab.open(f"file://{tmp_path}/page.html")
    tab.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    tab.run("document.querySelector('.copy').click()")
    tab.wait_for("document.querySelector('.copy').textContent !== 'Copy'")
    words = text(tab, ".copy")
    assert words in ("Copied", "Selected: press Ctrl+C")
    command = tab.run("navigator.clipboard.readText()") if words == "Copied" else tab.run("String(getSelection())")
    assert command == "trueodds recalibrate --url http://127.0.0.1:8000 --model street --version v1"
