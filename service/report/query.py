"""Query of a report, validated. Each error has the value, the allowed values and a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from service.errors import ServiceError
from service.http import parameters
from service.http.parameters import moment_of
from service.store import MAX_LAST, By
from service.store.rows import Version
from trueodds.errors import nearest
from trueodds.metrics import CELLS, Costs
from trueodds.processes.choices import Binning, ReportBy
from trueodds.reports import ReportOptions, Window
from trueodds.reports.schemas import NO_TAG, Unit
from trueodds.sums.bins import COARSE_CELLS
from trueodds.sums.hours import HOUR_MS, hours_of
from trueodds.texts import short

_refused = partial(ServiceError, 422, "invalid_parameter")

MAX_BINS = 1000
LATEST = datetime(9999, 12, 31, tzinfo=UTC)

TrendUnit = Literal[Unit, "auto"]


@dataclass(frozen=True)
class ReportQuery:
    """Query of a report. Times are those of the predictions, in Unix milliseconds."""

    since_ms: int | None = None
    until_ms: int | None = None
    last: int | None = None
    predicted_class: str | None = None
    tag: str | None = None
    bins: int = 15
    binning: Binning = "width"
    level: float = 0.95
    by: ReportBy | None = None
    trend: TrendUnit | None = None
    costs: Costs | None = None

    @property
    def stored_tag(self) -> str | None:
        """Tag of the report, under the store's name."""
        return "" if self.tag == NO_TAG else self.tag

    @property
    def group(self) -> tuple[By, str] | None:
        """Class or tag of the report, if the store has sums for it; None for both together."""
        if self.predicted_class is not None and self.stored_tag is None:
            return "class", self.predicted_class
        if self.stored_tag is not None and self.predicted_class is None:
            return "tag", self.stored_tag
        return None

    @property
    def class_and_tag(self) -> tuple[str, str] | None:
        """Class and tag of the report, if it is about both together."""
        if self.predicted_class is None or self.stored_tag is None:
            return None
        return self.predicted_class, self.stored_tag

    @property
    def window(self) -> Window:
        """Window in whole hours, because sums are kept per hour."""
        since, until = (
            None if hour is None else moment_of(hour * HOUR_MS) for hour in hours_of(self.since_ms, self.until_ms)
        )
        return Window(since=since, until=until, last=self.last, predicted_class=self.predicted_class, tag=self.tag)

    @property
    def options(self) -> ReportOptions:
        """Options of the report. For a class or tag the store has fewer cells."""
        cells = COARSE_CELLS if self.group else CELLS
        return ReportOptions(self.window, self.bins, self.binning, self.level, cells, self.costs)


def check(query: ReportQuery) -> None:
    """Raise ServiceError 422 if parameters contradict each other, or if bins are not whole cells."""
    if not 1 <= query.bins <= MAX_BINS or CELLS % query.bins:
        allowed = (
            f"the divisors of {CELLS} up to {MAX_BINS} (10, 15, 20, 25, 50, 100, ...), so that bins are whole cells"
        )
        raise _refused(f"bins = {query.bins}: allowed are {allowed}")
    if (query.group or query.by) and COARSE_CELLS % query.bins:
        divisors = ", ".join(str(k) for k in range(1, COARSE_CELLS + 1) if not COARSE_CELLS % k and not CELLS % k)
        raise _refused(
            f"bins = {query.bins}: sums by class and by tag are kept on {COARSE_CELLS} cells, so with class, tag or by"
            f" allowed are {divisors}"
        )
    if query.last is not None:
        names = ("since_ms", "until_ms", "predicted_class", "tag", "by", "trend")
        beside = [name for name in names if getattr(query, name) is not None]
        if beside:
            words = {"since_ms": "since", "until_ms": "until", "predicted_class": "class"}
            others = " and ".join(words.get(name, name) for name in beside)
            raise _refused(
                f"last = {query.last} with {others}: last counts labels of all answers in the order of their arrival,"
                f" at most {MAX_LAST:,}; leave out last, or {others}"
            )
    if query.since_ms is not None and query.until_ms is not None and query.since_ms >= query.until_ms:
        low, high = (moment_of(ms).isoformat() for ms in (query.since_ms, query.until_ms))
        raise _refused(f"since {low} is not before until {high}; exchange them, or leave one out")


def check_class(query: ReportQuery, version: Version) -> None:
    """Raise ServiceError 404 if the version does not have the class."""
    name = query.predicted_class
    if name is not None and name not in version.classes:
        known = ", ".join(version.classes[:20]) + (", ..." if len(version.classes) > 20 else "")
        words = f"{version.model} has no class {short(name)}; it has {known}.{nearest(name, version.classes)}"
        raise ServiceError(404, "unknown_class", words)


def costs_of(text: str | None) -> Costs | None:
    """Read the costs of a missed positive and of a false alarm.

    Raises:
        ServiceError: 422 if the text is not like `miss:10,alarm:1`.
    """
    try:
        return None if text is None else Costs.parse(text)
    except ValueError as error:
        raise _refused(f"costs: {error}") from None


def check_costs(query: ReportQuery, version: Version) -> None:
    """Raise ServiceError 422 for costs without a positive class, or together with one class or tag."""
    if query.costs and version.positive_class is None:
        cure = "name one when you train or import the model (--positive), or with POST /observe"
        raise _refused(f"costs: {version.model}/{version.version} has no positive class; {cure}")
    if query.costs and query.group:
        raise _refused(
            f"costs with {query.group[0]}: sums by class and by tag are too coarse for thresholds; leave out one of"
            " them"
        )


def unknown_tag(query: ReportQuery, version: Version, tags: list[str]) -> ServiceError:
    """Return the error for a tag without answers of the version."""
    shown = [name or NO_TAG for name in tags]
    words = f"no answer of {version.model}/{version.version} has the tag {short(query.tag)}; its tags are"
    listed = ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else "") or "none yet"
    return ServiceError(404, "unknown_tag", f"{words} {listed}.{nearest(query.tag or '', shown)}")


def unix_ms(name: str, time: datetime | None) -> int | None:
    """Convert a time to Unix milliseconds. A time without an offset is in UTC.

    Raises:
        ServiceError: 422 for a time before 1970, or from 9999-12-31 on.
    """
    if time is None:
        return None
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    start = datetime(1970, 1, 1, tzinfo=UTC)
    if not start <= aware < LATEST:
        allowed = "times from 1970 to 9999, ISO 8601 (UTC if no offset) or Unix time"
        raise _refused(f"{name} = {time.isoformat()}: allowed are {allowed}")
    return parameters.unix_ms(aware)
