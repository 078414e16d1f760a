"""Reads every sentence of a page's first part and holds it against the report: one that is not known here fails.

Beside the single sentences (page_claims), the word, its colour, the headline, the advice and the alarm must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

from tests.service.page_claims import CLAIMS
from tests.service.page_truth import refuted, settled
from trueodds.reports.schemas import Report

BLOCKS = frozenset({"p", "li", "dd", "dt", "h2", "h3", "summary", "pre", "label", "button"})
SILENT = frozenset({"script", "style", "svg", "button", "label"})


class Sentences(HTMLParser):
    """The texts of one part, block by block."""

    def __init__(self, html: str, part: str) -> None:
        super().__init__()
        self.part, self.depth, self.silent, self.blocks = part, 0, 0, [""]
        self.classes = ""
        self.feed(html)
        self.blocks = [text for block in self.blocks if (text := " ".join(block.split()))]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section" and dict(attrs).get("id") == self.part:
            self.depth, self.classes = 1, dict(attrs).get("class") or ""
        self.silent += tag in SILENT
        if tag in BLOCKS:
            self.blocks.append("")

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "section" and self.depth > 0
        self.silent -= tag in SILENT
        if tag in BLOCKS:
            self.blocks.append("")

    def handle_data(self, data: str) -> None:
        if self.depth and not self.silent:
            self.blocks[-1] += data


STRONG = ("over_confident", "under_confident", "uneven", "too_high", "too_low", "off_at_times")
COLOURS: dict[str, Callable[[Report], bool]] = {
    "fine": lambda r: r.verdict == "within_tolerance" and (not refuted(r) or not r.window.is_everything),
    "waiting": lambda r: r.verdict in ("no_answers", "no_labels", "cannot_tell"),
    "leans": lambda r: r.verdict.startswith("leans_"),
    "off": lambda r: (
        r.verdict in STRONG and r.alarm is not None and r.alarm.state in ("notice", "quiet") and settled(r)
    ),
    "alarm": lambda r: r.alarm is not None and r.alarm.state == "fired",
    "acknowledged": lambda r: r.alarm is not None and r.alarm.state == "acknowledged",
}


def check_page(html: str, report: Report) -> None:
    """Raises AssertionError with the first sentence that is unknown, untrue, or at odds with another."""
    part = Sentences(html, "now")
    word, text = part.blocks[:2]
    for block in [f"{word} {text}", *part.blocks[2:]]:
        check_text(block, report)
    colour = part.classes.split()[-1]
    assert COLOURS[colour](report), (colour, report.verdict, report.alarm and report.alarm.state)
    shown = " ".join(part.blocks)
    advised = "Recalibrating would help." in shown or "recalibrating would improve it further." in shown
    assert advised == ("trueodds recalibrate" in shown)
    assert not ("Nothing has to be done" in shown and advised), "do it, or do nothing?"


def check_text(block: str, report: Report) -> None:
    """Every sentence of a block, from its beginning on."""
    rest = block
    while rest:
        matches = [(m, claim) for pattern, claim in CLAIMS if (m := pattern.match(rest))]
        assert matches, f"no claim is known that begins: {rest}"
        match, claim = max(matches, key=lambda one: len(one[0][0]))
        assert claim(report, [group for group in match.groups() if group is not None]), f"not so: {match[0]}"
        rest = rest[match.end() :].strip()
