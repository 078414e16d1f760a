"""What a report is asked to be about, checked: every refusal says what was given, what is allowed and what helps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from service.errors import ServiceError
from service.report.schemas import Unit, Window
from service.store import MAX_LAST, By
from service.store.records import Version
from trueodds.errors import nearest
from trueodds.hours import HOUR_MS, hours_of
from trueodds.metrics import CELLS
from trueodds.sums.bins import COARSE_CELLS, Binning
from trueodds.texts import short

MAX_BINS = 1000
NO_TAG = "(no tag)"
"""The name, in reports and requests, of answers that have none."""
LATEST = datetime(9999, 12, 31, tzinfo=UTC)

TrendUnit = Literal[Unit, "auto"]


@dataclass(frozen=True)
class Asked:
    """The query of a report. Times are Unix milliseconds, of the prediction."""

    since_ms: int | None = None
    until_ms: int | None = None
    last: int | None = None
    predicted_class: str | None = None
    tag: str | None = None
    bins: int = 15
    binning: Binning = "width"
    level: float = 0.95
    by: By | None = None
    trend: TrendUnit | None = None

    @property
    def group(self) -> tuple[By, str] | None:
        """The one class or tag that is asked for, under the store's name."""
        if self.predicted_class is not None:
            return "class", self.predicted_class
        if self.tag is not None:
            return "tag", "" if self.tag == NO_TAG else self.tag
        return None

    @property
    def everything(self) -> bool:
        """Whether it is about all labels since the start."""
        return not self.group and self.since_ms is self.until_ms is self.last is None

    @property
    def window(self) -> Window:
        """As the report says it: hours reached out to."""
        since, until = (
            None if hour is None else datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC)
            for hour in hours_of(self.since_ms, self.until_ms)
        )
        return Window(since=since, until=until, last=self.last, predicted_class=self.predicted_class, tag=self.tag)


def described(asked: Asked) -> str:
    """Which answers, in words; empty for all of them."""
    window, words = asked.window, []
    if asked.predicted_class is not None:
        words.append(f"of class {asked.predicted_class}")
    if asked.tag is not None:
        words.append("without a tag" if asked.tag == NO_TAG else f"with tag {asked.tag}")
    if window.since:
        words.append(f"given from {window.since:%Y-%m-%d %H:%M} UTC on")
    if window.until:
        words.append(f"given before {window.until:%Y-%m-%d %H:%M} UTC")
    return " ".join(words)


def check(asked: Asked) -> None:
    """Raise ServiceError 422 where parameters contradict each other, or bins are not whole cells."""
    if not 1 <= asked.bins <= MAX_BINS or CELLS % asked.bins:
        allowed = (
            f"the divisors of {CELLS} up to {MAX_BINS} (10, 15, 20, 25, 50, 100, ...), so that bins are whole cells"
        )
        raise _refused(f"bins = {asked.bins}: allowed are {allowed}")
    if (asked.group or asked.by) and COARSE_CELLS % asked.bins:
        divisors = ", ".join(str(k) for k in range(1, COARSE_CELLS + 1) if not COARSE_CELLS % k and not CELLS % k)
        raise _refused(
            f"bins = {asked.bins}: sums by class and by tag are kept on {COARSE_CELLS} cells, so with class, tag or by"
            f" allowed are {divisors}"
        )
    if asked.predicted_class is not None and asked.tag is not None:
        raise _refused("class and tag together: sums are kept by one or the other; give one of them")
    if asked.last is not None:
        names = ("since_ms", "until_ms", "predicted_class", "tag", "by", "trend")
        beside = [name for name in names if getattr(asked, name) is not None]
        if beside:
            words = {"since_ms": "since", "until_ms": "until", "predicted_class": "class"}
            given = " and ".join(words.get(name, name) for name in beside)
            raise _refused(
                f"last = {asked.last} with {given}: last counts labels of all answers in the order of their arrival,"
                f" at most {MAX_LAST:,}; leave out one or the other"
            )
    if asked.since_ms is not None and asked.until_ms is not None and asked.since_ms >= asked.until_ms:
        low, high = (datetime.fromtimestamp(ms / 1000, UTC).isoformat() for ms in (asked.since_ms, asked.until_ms))
        raise _refused(f"since {low} is not before until {high}; exchange them, or leave one out")


def check_class(asked: Asked, version: Version) -> None:
    """Raise ServiceError 404 for a class that the version does not have."""
    name = asked.predicted_class
    if name is not None and name not in version.classes:
        known = ", ".join(version.classes[:20]) + (", ..." if len(version.classes) > 20 else "")
        words = f"{version.model} has no class {short(name)}; it has {known}.{nearest(name, version.classes)}"
        raise ServiceError(404, "unknown_class", words)


def unknown_tag(asked: Asked, version: Version, known: list[str]) -> ServiceError:
    """The error for a tag that no answer of the version has."""
    shown = [name or NO_TAG for name in known]
    words = f"no answer of {version.model}/{version.version} has the tag {short(asked.tag)}; there are"
    listed = ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else "") or "none yet"
    return ServiceError(404, "unknown_tag", f"{words} {listed}.{nearest(asked.tag or '', shown)}")


def unix_ms(name: str, time: datetime | None) -> int | None:
    """Milliseconds since 1970; a time without an offset is in UTC.

    Raises:
        ServiceError: 422 before 1970, or from 9999-12-31 on.
    """
    if time is None:
        return None
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    start = datetime(1970, 1, 1, tzinfo=UTC)
    if not start <= aware < LATEST:
        allowed = "times from 1970 to 9999, ISO 8601 (UTC without an offset) or Unix seconds"
        raise _refused(f"{name} = {time.isoformat()}: allowed are {allowed}")
    return int((aware - start).total_seconds() * 1000)


def _refused(message: str) -> ServiceError:
    return ServiceError(422, "invalid_parameter", message)
