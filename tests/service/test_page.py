"""The page: whole, small and safe whatever it shows; its states, addresses and errors."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any, get_args
from urllib.parse import parse_qsl, urlsplit

import pytest

from service.report import addresses, pages
from service.report.addresses import CHOOSE
from tests.service import page_parts
from tests.service.app_client import Client
from tests.service.page_parts import NOW, right, sums
from tests.service.page_reports import ALL, full, report
from tests.service.page_sentences import STRONG
from tests.service.tiny_bundle import pictures
from trueodds.reports.page.state import state_of
from trueodds.reports.schemas import Crowded, PositiveFigures, Report, Trend, Verdict, Window

VOID = frozenset({"meta", "link", "br", "input", "img"})
NAMED_BY = ("aria-labelledby", "list", "data-table", "for")


class Page(HTMLParser):
    """Elements in their order, and a complaint about every one that does not nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs), tuple(self.open)))
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        if tag not in VOID and not (tag == "option" and "datalist" in self.open):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def text_of(self, tag: str) -> str:
        return "".join(text for owner, text in self.texts if owner == tag)

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes, _ in self.seen if name == tag]


def render(report: Report, **query: str) -> str:
    return pages.render(report, query, now=NOW)


@pytest.mark.parametrize("name", ALL)
def test_every_page_is_whole_and_can_be_read_without_eyes(name: str) -> None:
    html = render(ALL[name](), by="class")
    page = Page(html)
    ids = [attributes["id"] for _, attributes, _ in page.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes, inside in page.seen:
        for key in NAMED_BY:
            wanted = (attributes.get(key) or "").split()
            missing = [word for word in wanted if word not in ids]
            optional = key == "list" or (key == "data-table" and not attributes.get("data-x"))
            assert not missing or optional, (tag, key, missing)
        assert not [key for key in attributes if key.startswith("on") or key == "style"], (tag, attributes)
        if tag in ("input", "select") and attributes.get("type") != "hidden":
            assert "label" in inside, attributes
        if tag == "svg":
            assert attributes.get("role") == "img" or attributes.get("aria-hidden") == "true"
        if tag == "th":
            assert attributes.get("scope") in ("col", "row")
    tags = [tag for tag, _, _ in page.seen]
    assert tags.count("table") == tags.count("caption")
    assert tags.count("main") == tags.count("h1") == tags.count("nav") == 1
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(b <= a + 1 for a, b in pairwise(levels))
    assert not {"iframe", "img", "object"} & set(tags)
    addresses = [a.get("href") or a.get("src") or a.get("action") for _, a, _ in page.seen]
    assert all(re.match(r"(/|#|data:image/svg)", address) for address in addresses if address)
    assert not re.search(r"\b(nan|None|inf|undefined)\b", "".join(text for tag, text in page.texts if tag != "script"))


def test_weight() -> None:
    day = full()
    assert day.trend is not None and len(render(day).encode()) < 80_000
    hours = [p.model_copy(update={"start": NOW - timedelta(hours=k)}) for k in range(120) for p in day.trend.points[:1]]
    heavy = day.model_copy(update={"trend": Trend(unit="hour", points=hours)})
    assert len(render(heavy).encode()) < 115_000
    assert len(render(ALL["1,000 bins"]()).encode()) < 150_000


def test_only_its_own_style_and_script_may_run() -> None:
    page = Page(render(full()))
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        digest = base64.b64encode(hashlib.sha256(page.text_of(tag).encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in pages.HEADERS["content-security-policy"]


def test_whatever_is_given_is_text() -> None:
    for name in ("hostile", "over-confident"):
        page = Page(render(ALL[name](), tag="</script><script>", by='"><script>', **{"class": "'\"&<"}))
        assert len(page.attributes("script")) == len(page.attributes("style")) == 1
        assert {"img", "b"} & {tag for tag, _, _ in page.seen} <= {"b"}
    html = render(ALL["hostile"]())
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10
    assert "<b>recalibrating" not in html and "&lt;b&gt;recalibrating" in html


def altered(report: Report, **changes: Any) -> Report:
    return report.model_copy(update=changes)


@pytest.mark.parametrize(
    ("name", "state", "word", "advice"),
    [
        ("no answers", "waiting", "No answers yet", "POST /predict"),
        ("no labels", "waiting", "No labels yet", "http://127.0.0.1:8000/feedback"),
        ("few labels", "waiting", "Cannot tell yet", "Keep sending true labels"),
        ("calibrated", "fine", "Within 0.02", "Nothing has to be done"),
        ("bare", "leans", "Perhaps over-confident", "See below where they are off"),
        ("over-confident", "alarm", "Alarm", 'action="/admin/alarm/acknowledge"'),
        ("acknowledged", "acknowledged", "Alarm, acknowledged", "Ada, 14 Mar 2026, 09:30 UTC"),
        ("notice", "off", "Over-confident", "Somewhere the confidence is off"),
    ],
)
def test_one_clear_state_and_what_to_do(name: str, state: str, word: str, advice: str) -> None:
    report = ALL[name]()
    html = render(report)
    assert (state_of(report).name, state_of(report).word) == (state, word)
    assert f'<h2 id="now-title">{word}</h2>' in html and f'class="now {state}"' in html
    assert f"<title>{word} · " in html
    assert advice in re.sub(r"</?span>", "", html)
    forms = {"alarm": ["/admin/alarm/acknowledge"], "acknowledged": ["/admin/alarm/rearm"]}
    assert re.findall(r'action="(/admin[^"]+)"', html) == forms.get(state, [])


def test_a_word_for_every_verdict_and_the_tolerance_of_the_alarm() -> None:
    one = full(alarm=None)
    for verdict in get_args(Verdict):
        report = altered(one, verdict=verdict, tolerance=0.05)
        if verdict.endswith(("too_high", "too_low")):
            report = report.model_copy(update={"positive": PositiveFigures(label="{x}", bins=[])})
        state = state_of(report)
        assert (state.name == "off") == (verdict in STRONG) and ("p({x})" in state.word) == (
            report.positive is not None
        )
        assert (state.name == "leans") == verdict.startswith("leans_")
        assert (state.name == "fine") == (verdict == "within_tolerance") == (state.word == "Within 0.05")
        assert "recalibrat" not in state.text.lower()


def test_the_command_is_there_only_if_it_may_help() -> None:
    assert 'id="command-recalibrate"' in render(full())
    assert 'id="command-recalibrate"' not in render(full(advice=page_parts.advice("no")))
    assert 'id="command-recalibrate"' not in render(full(advice=page_parts.advice("not_known")))
    shown = re.search(r'id="command-recalibrate"><code>(.*?)</code>', render(full()))
    assert shown and re.sub("<.*?>", "", shown[1]) == page_parts.advice().command


def test_the_table_holds_what_the_report_holds() -> None:
    whole = full()
    html = render(whole)
    for b in whole.bins:
        if b.count:
            row = f"<td>{b.count:,}</td><td>{b.mean_confidence:.1%}</td><td>{b.accuracy:.1%}</td>"
            assert row in html
    assert html.count("<tbody>") == 6
    warnings, rest = html.index("Labels are not spread"), html.index("Other checks (4)")
    assert warnings < rest < html.index("Fast and slow labels agree") < html.index("If they hold, 85.6%")
    assert "Checks without a warning (6)" in render(altered(whole, labelling=page_parts.labelling(False)))
    one_cell = Crowded(share=0.75, lower=0.9997, upper=1, refused=True, warning=True, reading="75% share one cell.")
    crowded = render(altered(whole, labelling=page_parts.labelling(True).model_copy(update={"crowded": one_cell})))
    assert crowded.index("75% share one cell.") < crowded.index("Other checks (4)")
    assert "on the test set 0.012" in html
    assert "on the test set 0.012" not in render(report(sums(2000, right), bins=30))
    assert page_parts.ESTIMANDS["accuracy"] in html.split('id="glossary"')[1]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({}, {}),
        (
            {"which": "a~shadow/v1", "window": "all", "class": "", "tag": " ", "bins": "15", "level": "0.95"},
            {"model": "a~shadow", "version": "v1"},
        ),
        ({"window": "24h", "was": "all"}, {"since": "2026-03-13T09:00:00Z"}),
        ({"window": "7d", "was": "7d"}, {"since": "2026-03-07T09:00:00Z"}),
        ({"window": "30d"}, {"since": "2026-02-12T09:00:00Z"}),
        ({"window": "last", "last": "500"}, {"last": "500"}),
        ({"window": "last"}, {"last": "1000"}),
        ({"window": "all", "last": "500"}, {}),
        (
            {"window": "days", "from": "2026-03-01", "to": "2026-03-31"},
            {"since": "2026-03-01T00:00:00Z", "until": "2026-04-01T00:00:00Z"},
        ),
        ({"window": "all", "was": "all", "from": "2026-03-01"}, {"since": "2026-03-01T00:00:00Z"}),
        ({"window": "all", "was": "days", "from": "2026-03-01", "to": "2026-03-02"}, {}),
        ({"window": "7d", "was": "days", "from": "2026-03-01"}, {"since": "2026-03-07T09:00:00Z"}),
        ({"window": "days", "from": "yesterday", "to": "9999-12-31"}, {"since": "yesterday", "until": "9999-12-31"}),
        ({"window": "nonsense", "class": "a&b=c d", "unknown": "x"}, {"class": "a&b=c d"}),
    ],
)
def test_the_form_becomes_a_plain_address(form: dict[str, str], expected: dict[str, str]) -> None:
    address = urlsplit(addresses.form_address(form, NOW))
    assert address.path == "/calibration-report"
    assert dict(parse_qsl(address.query, strict_parsing=bool(address.query))) == expected


@pytest.mark.parametrize("window", ["24h", "7d", "30d"])
def test_a_sliding_window_is_recognised_and_slides(window: str) -> None:
    query = dict(parse_qsl(urlsplit(addresses.form_address({"window": window, "bins": "30"}, NOW)).query))
    shown = Window(since=datetime.fromisoformat(query["since"]))
    shown_report = report(sums(200, right), window=shown)
    html = pages.render(shown_report, query, now=NOW)
    assert f'<option value="{window}" selected>' in html
    assert f'data-again="/calibration-report/choose?bins=30&amp;window={window}"' in html
    later = pages.render(shown_report, query, now=NOW + timedelta(hours=2))
    assert '<option value="days" selected>' in later and 'data-again=""' in later
    assert f'name="from" value="{shown.since:%Y-%m-%d}"' in later


def test_the_window_shown_is_said() -> None:
    def words_of(**window: Any) -> addresses.WindowChoice:
        return addresses.choice_of(report(sums(50, right), window=Window(**window)), NOW)

    assert words_of().words == "all predictions so far"
    assert words_of(last=500).window == "last" and "500 newest labels" in words_of(last=500).words
    march, april = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    month = words_of(since=march, until=april)
    assert (month.from_day, month.to_day) == ("2026-03-01", "2026-03-31")
    assert month.words == "predictions from 1 Mar 2026, 00:00 until 1 Apr 2026, 00:00 UTC"
    assert words_of(since=march.replace(tzinfo=None), until=april) == month


def test_links_and_forms_keep_what_was_asked() -> None:
    html = render(full(), model="street", bins="30", level="0.9", tag="north & south", format="html", junk="1")
    assert "junk" not in html
    assert (
        "/calibration-report?model=street&amp;tag=north+%26+south&amp;bins=30&amp;level=0.9&amp;by=tag&amp;format=html"
        in html
    )
    assert 'name="tag" value="north &amp; south"' in html
    assert '<input type="hidden" name="format" value="html">' in html
    assert '<option value="street/4f1c09aa" selected>' in html
    gone = render(altered(full(), version="gone"), version="gone")
    assert '<option value="street/gone" selected>' in gone
    following = render(full())
    assert '<option value="" selected>the served version' in following
    assert '<option value="street/4f1c09aa">' in following


def test_the_service_sends_the_page_with_its_policy(client: Client) -> None:
    client.label([{"id": p["id"], "index": 0} for p in client.predict(pictures(30))])
    answer = client.get("/calibration-report", headers={"accept": "text/html"}, params={"bins": 30})
    assert answer.status_code == 200 and answer.headers["vary"] == "accept"
    for name, value in pages.HEADERS.items():
        assert answer.headers[name] == value
    Page(answer.text)
    assert "<option selected>30</option>" in answer.text
    moved = client.get("/calibration-report/choose", params={"window": "24h", "class": "", "bins": "30"})
    assert moved.status_code == 303
    assert re.fullmatch(r"/calibration-report\?since=[^&]*&bins=30", moved.headers["location"])


@pytest.mark.parametrize("query", [{}, {"by": "class"}, {"last": "5", "level": "0.9"}, {"tag": "left", "bins": "30"}])
def test_the_pages_links_and_forms_are_understood(client: Client, query: dict[str, str]) -> None:
    """The routes refuse what they do not know: no address on the page may have more."""
    body = {"instances": pictures(30), "tags": ["left", None] * 15}
    answers = client.post("/predict", json=body).json()["predictions"]
    client.label([{"id": p["id"], "index": 0} for p in answers])
    text = client.get("/calibration-report", params={**query, "format": "html"}).text
    links = {unescape(link) for link in re.findall(r'(?:href|data-again)="(/[^"#]*)"', text)}
    assert links
    for link in links:
        assert client.get(link).status_code in (200, 303), link
    (form,) = re.findall(r'<form method="get".*?</form>', text, re.DOTALL)
    fields = [unescape(name) for name in re.findall(r'name="([^"]+)"', form)]
    assert len(fields) >= 12 and len(set(fields)) == len(fields)
    moved = client.get(CHOOSE, params=dict.fromkeys(fields, ""))
    assert moved.status_code == 303 and client.get(moved.headers["location"]).status_code == 200


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("bins=7", 422, "bins = 7: allowed are"),
        ("level=<b>", 422, "level = "),
        ("model=<script>", 404, "known are tiny/"),
        ("<b>=1", 422, "has no parameter"),
    ],
)
def test_a_browser_can_read_what_went_wrong(client: Client, query: str, status: int, words: str) -> None:
    answer = client.get(f"/calibration-report?{query}", headers={"accept": "text/html"})
    assert answer.status_code == status and answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == pages.HEADERS["content-security-policy"]
    assert words in answer.text and "<script>" not in answer.text and "<b>" not in answer.text
    Page(answer.text)
    for headers, form in (({}, ""), ({}, "&format=html"), ({"accept": "text/html"}, "&format=json")):
        plain = client.get(f"/calibration-report?{query}{form}", headers=headers)
        assert plain.status_code == status and words in plain.json()["error"]["message"]
