"""Addresses of the report: the redirect of its form, and links that keep the query of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from service.http.parameters import moment_of
from trueodds.reports.schemas import Report
from trueodds.reports.time_axis import utc
from trueodds.sums.hours import HOUR_MS, hour_of
from trueodds.texts import plural

REPORT, CHOOSE, QUESTIONS = "/calibration-report", "/calibration-report/choose", "/questions"
LABEL_QUEUE, AUDIT = "/label-queue", "/audit"
AUDITED = 40
"""Number of labels from which on the page links to the audit, which needs as many."""
KEPT = (
    "model",
    "version",
    "since",
    "until",
    "last",
    "class",
    "tag",
    "bins",
    "binning",
    "level",
    "by",
    "trend",
    "costs",
)
"""Parameters of the report that links keep, in the order in which links write them."""
FIELDS = (*KEPT, "which", "window", "was", "from", "to", "format")
"""All fields that the page's form and the links to it may send."""
HOURS = {"24h": 24, "7d": 7 * 24, "30d": 30 * 24}
BINS = (10, 15, 20, 30, 60, 100, 500, 1000)
LEVELS = (0.9, 0.95, 0.99)
LAST = 1000
NOT_WITH_LAST = ("class", "tag", "by", "trend")
"""Parameters that exclude `last`, because sums are not kept by the order of the labels' arrival."""
DEFAULTS = {"bins": "15", "level": "0.95", "binning": "width"}
"""Default values, which addresses leave out to stay short."""


@dataclass(frozen=True)
class WindowChoice:
    """Values of the fields in the form."""

    window: str
    """One of all, 24h, 7d, 30d, days and last."""
    words: str
    from_day: str = ""
    to_day: str = ""
    last: int = LAST


def address(query: Mapping[str, str], **changes: str | None) -> str:
    """Return the report's address with some parameters of a query changed. None and "" remove a parameter."""
    changed = {**query, **{name.rstrip("_"): value for name, value in changes.items()}}
    pairs = [(name, str(changed[name])) for name in KEPT if changed.get(name) and changed[name] != DEFAULTS.get(name)]
    if changed.get("format"):
        pairs.append(("format", str(changed["format"])))
    return f"{REPORT}?{urlencode(pairs)}" if pairs else REPORT


def choice_of(report: Report, now: datetime) -> WindowChoice:
    """Return the window as the form shows it: a sliding one if that would begin at the same hour now."""
    window = report.window
    if window.last is not None:
        return WindowChoice("last", f"the {plural(window.last, 'newest label')}", last=window.last)
    if window.since is None and window.until is None:
        return WindowChoice("all", "all predictions so far")
    begin, end = (None if t is None else utc(t) for t in (window.since, window.until))
    if begin is not None and end is None:
        for name, hours in HOURS.items():
            if begin == _since(now, hours):
                unit = "24 hours" if hours == 24 else f"{hours // 24} days"
                return WindowChoice(name, f"predictions of the last {unit}")
    last_day = None if end is None else end - timedelta(microseconds=1)
    words = " ".join(
        [
            f"{name} {time.day} {time:%b %Y, %H:%M}"
            for name, time in (("from", begin), ("until", end))
            if time is not None
        ]
    )
    return WindowChoice(
        "days",
        f"predictions {words} UTC",
        from_day="" if begin is None else f"{begin:%Y-%m-%d}",
        to_day="" if last_day is None else f"{last_day:%Y-%m-%d}",
    )


def form_address(form: Mapping[str, str], now: datetime) -> str:
    """Return the address of the report that a form selects. Blank fields are left out.

    `which` is MODEL/VERSION, or blank for the served version. `window` is all, 24h, 7d, 30d, last (with `last` labels)
    or days (`from` and `to`, both inclusive, UTC).

    Days that are filled in take precedence, unless another window was selected since (`was` names the one shown). The
    newest labels are those of all answers, so a class or tag is left out with them. An invalid day is passed on
    unchanged, so that the report explains the error.
    """
    query = {name: form.get(name, "").strip() for name in KEPT if name not in ("since", "until", "last")}
    if "/" in form.get("which", ""):
        query["model"], _, query["version"] = form["which"].rpartition("/")
    window = form.get("window", "all")
    if (form.get("from") or form.get("to")) and window == form.get("was", window):
        window = "days"
    if window == "last":
        query = {name: value for name, value in query.items() if name not in NOT_WITH_LAST}
        query["last"] = form.get("last") or str(LAST)
    elif window == "days":
        query["since"], query["until"] = _day(form.get("from", "")), _day(form.get("to", ""), later=1)
    elif window in HOURS:
        query["since"] = f"{_since(now, HOURS[window]):%Y-%m-%dT%H:%M:%SZ}"
    if form.get("format"):
        query["format"] = form["format"]
    return address(query)


def refresh_address(query: Mapping[str, str], choice: WindowChoice) -> str:
    """Return the address that reloads a page with a sliding window; "" if the page's own address does."""
    if choice.window not in HOURS:
        return ""
    kept = {name: query[name] for name in KEPT if query.get(name) and name not in ("since", "until", "last")}
    return f"{CHOOSE}?{urlencode({**kept, 'window': choice.window})}"


def _since(now: datetime, hours: int) -> datetime:
    """Return the whole hour in which a window of so many hours begins."""
    first = int(hour_of(1000 * utc(now).timestamp())) - hours
    return moment_of(first * HOUR_MS)


def _day(text: str, later: int = 0) -> str:
    """Return the midnight at which a day begins, or that of a later day."""
    try:
        return f"{datetime.strptime(text, '%Y-%m-%d') + timedelta(days=later):%Y-%m-%dT00:00:00Z}"
    except (ValueError, OverflowError):
        return text
