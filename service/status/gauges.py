"""Gauges of the store's content and of the loaded versions, computed anew for every scrape."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from prometheus_client.core import GaugeMetricFamily, Metric

from service.alarm.evidence import NULLS
from service.alarm.groups import KINDS, GroupState
from service.alarm.readings import Standing
from service.alarm.state import AlarmState
from service.store.decision_rows import Notice, QuestionCounts
from service.store.rows import ArchiveState, HeldLabels, MaturedCounts, Version
from service.telemetry.metrics import KEY
from trueodds.metrics import EceInterval, ece_interval
from trueodds.reports.schemas import ClassShares, ExpectedDecisions
from trueodds.reports.schemas.alarm import ActingAlone
from trueodds.reports.schemas.judge import JudgeFigures
from trueodds.reports.schemas.sets import SetCoverage
from trueodds.sums.answers import AnswerSums
from trueodds.sums.inputs import Array

MOST_VERSIONS = 100
"""Largest number of versions with series of their own. Each takes 2.5 ms per scrape."""
ALARM_STATES: tuple[Standing, ...] = ("quiet", "notice", "fired", "acknowledged")


@dataclass(frozen=True)
class VersionState:
    """Sums and evidence of a version in the store."""

    version: Version
    sums: AnswerSums
    evidence: AlarmState | None
    """State of the alarm; None if it is damaged."""
    standing: Standing
    acting: ActingAlone | None = None
    """Results of the promise to act alone; None without a promise."""
    maturity_counts: MaturedCounts | None = None
    """Matured answers; None without a maturity window."""
    sets: SetCoverage | None = None
    """Live coverage of conformal sets; None without sets."""
    groups: GroupState | None = None
    """Evidence about tags and classes; None if it is damaged."""
    expected: tuple[ExpectedDecisions, ...] = ()
    """Expected results of alerts on the answers without a label."""
    class_shares: ClassShares | None = None
    """Class shares of the answers under prior shift; None without reference rows."""
    judge: JudgeFigures | None = None
    """Estimates from human and judge's labels; None without a judge's label."""

    @property
    def key(self) -> list[str]:
        return [self.version.model, self.version.version]


def choose_versions(
    by_activity: Sequence[Version], intended_versions: Iterable[tuple[str, str, str, bool]]
) -> tuple[list[Version], int]:
    """Return the versions with series of their own, loaded ones first, and the number of versions left out."""
    keys = {(model, version) for model, version, *_ in intended_versions}
    ordered = sorted(by_activity, key=lambda version: version.key not in keys)
    return ordered[:MOST_VERSIONS], len(ordered[MOST_VERSIONS:])


class Gauges:
    """Maker of the gauges. It caches the intervals of versions whose sums have not changed."""

    def __init__(self, version: str, *, read_only: bool = False) -> None:
        """Make the maker. `version` is that of the service; `read_only` says whether it loads no model."""
        self._build, self._read_only = _build(version), _read_only(read_only)
        self._intervals: dict[tuple[str, str], tuple[Array, EceInterval]] = {}

    def families(
        self,
        states: Sequence[VersionState],
        intended_versions: Iterable[tuple[str, str, str, bool]],
        changes: Iterable[tuple[str, str, bool]],
        held_labels: Mapping[str, HeldLabels],
        left_out: int = 0,
        questions: Sequence[QuestionCounts] = (),
        notices: Sequence[Notice] = (),
        archive: ArchiveState | None = None,
    ) -> list[Metric]:
        """Return all gauges.

        See `Registry` for `intended_versions` and `changes`, and `choose_versions` for `left_out`. `archive` is None
        without one.
        """
        return [
            self._build,
            self._read_only,
            *_store_gauges(states),
            _left_out(left_out),
            *self._calibration(states),
            *_evidence(states),
            *_acting(states),
            *_sets(states),
            *_groups(states),
            *_expected(states),
            *_class_shares(states),
            *_judges(states),
            *_maturing(states),
            _ready_gauge(intended_versions),
            _altered_gauge(changes),
            *_held_gauges(held_labels),
            *_question_gauges(questions, notices),
            *([] if archive is None else _archive_gauges(archive)),
        ]

    def _calibration(self, states: Sequence[VersionState]) -> list[Metric]:
        texts = {
            "": "Plug-in ECE of the more probable class, 15 bins; NaN without labels",
            "_lower": "Lower end of the 95% interval of that ECE, for a single look; NaN without labels",
            "_upper": "Upper end of the 95% interval of that ECE, for a single look; NaN without labels",
        }
        families = [GaugeMetricFamily(f"trueodds_calibration_ece{k}", text, labels=KEY) for k, text in texts.items()]
        for state in states:
            interval = self._interval(state) if state.sums.labelled.n else None
            values = (interval.ece, interval.lower, interval.upper) if interval else (float("nan"),) * 3
            for family, value in zip(families, values, strict=True):
                family.add_metric(state.key, value)
        return list(families)

    def _interval(self, state: VersionState) -> EceInterval:
        """Return the interval of the ECE, cached while the sums are the same: it takes 8 ms to compute."""
        key, cells = (state.version.model, state.version.version), state.sums.labelled.cells[:3]
        if key not in self._intervals and len(self._intervals) >= 2 * MOST_VERSIONS:
            self._intervals.clear()
        before = self._intervals.get(key)
        if before is None or not np.array_equal(before[0], cells):
            before = self._intervals[key] = cells, ece_interval(state.sums.labelled)
        return before[1]


def _gauge(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[list[str], float]]) -> Metric:
    family = GaugeMetricFamily(f"trueodds_{name}", text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _build(version: str) -> Metric:
    build = {
        "version": version,
        "python": platform.python_version(),
        "onnxruntime": ort.__version__,
        "numpy": np.__version__,
    }
    return _gauge("build_info", "Always 1; the labels have the versions", list(build), [(list(build.values()), 1.0)])


def _read_only(read_only: bool) -> Metric:
    text = "1: it only reports from a store and loads no model; 0: it answers requests"
    return _gauge("read_only", text, (), [([], float(read_only))])


def _store_gauges(states: Sequence[VersionState]) -> list[Metric]:
    text = (
        "Share of the predictions that have a label; with a maturity window, of those whose window has closed; NaN if"
        " there are none"
    )
    able = [state.sums.answers if state.maturity_counts is None else state.maturity_counts.answers for state in states]
    shares = [state.sums.labelled.n / n if n else float("nan") for state, n in zip(states, able, strict=True)]
    keys = [state.key for state in states]
    return [
        _gauge("answers", "Predictions in the store", KEY, [(state.key, state.sums.answers) for state in states]),
        _gauge("labelled", "Predictions with a label", KEY, [(state.key, state.sums.labelled.n) for state in states]),
        _gauge("label_coverage", text, KEY, zip(keys, shares, strict=True)),
    ]


def _left_out(count: int) -> Metric:
    text = f"Versions in the store without series of their own: only {MOST_VERSIONS} have them, loaded and active first"
    return _gauge("versions_left_out", text, (), [([], count)])


def _evidence(states: Sequence[VersionState]) -> list[Metric]:
    alarm = GaugeMetricFamily(
        "trueodds_calibration_alarm",
        "0: quiet, 1: notice, 2: fired (the calibration error of the labelled answers was above the tolerance at some"
        " time), 3: acknowledged; NaN: the evidence is damaged",
        labels=KEY,
    )
    log_e = GaugeMetricFamily(
        "trueodds_calibration_log_evalue",
        "Natural logarithm of the evidence against a null hypothesis; it fires at log(1/alpha), 3.0 by default, 3.7 if"
        " p(positive) or the levels are also watched",
        labels=[*KEY, "null"],
    )
    age = GaugeMetricFamily(
        "trueodds_label_age_seconds", "Time since the last label arrived; no series before the first", labels=KEY
    )
    for state in states:
        evidence = state.evidence
        alarm.add_metric(state.key, ALARM_STATES.index(state.standing) if evidence else float("nan"))
        if evidence:
            levels = state.version.watched_levels
            evidence = evidence.watching(state.version.positive is not None, None if levels is None else len(levels))
        for null in evidence.watched_nulls if evidence else NULLS:
            log_e.add_metric([*state.key, null], evidence.log_e(null) if evidence else float("nan"))
        if evidence and evidence.last_ms is not None:
            age.add_metric(state.key, max(0.0, time.time() - evidence.last_ms / 1000))
    return [alarm, log_e, age]


def _acting(states: Sequence[VersionState]) -> list[Metric]:
    texts = {
        "share": "Share of the answers that act alone; NaN without answers",
        "risk": "Share of wrong ones among the labelled answers that acted alone; NaN without labels",
        "risk_lower": "Lower end of the 95% confidence sequence of that risk, valid at every label",
        "risk_upper": "Upper end of the 95% confidence sequence of that risk, valid at every label",
        "labels": "Labels of answers that acted alone, which the evidence about the promise uses",
        "log_evalue": "Natural logarithm of the evidence against the promise; it fires at log(1/alpha), 3.0 by default",
        "broken": "1: the promise to act alone is broken; 0: there is no evidence of that",
    }
    families = [GaugeMetricFamily(f"trueodds_acting_{name}", text, labels=KEY) for name, text in texts.items()]
    for state in states:
        if (part := state.acting) is None:
            continue
        values = (part.share, part.risk, part.risk_lower, part.risk_upper, part.labels, part.alarm.log_e)
        for family, value in zip(families, (*values, part.alarm.state == "fired"), strict=True):
            family.add_metric(state.key, float("nan") if value is None else float(value))
    return list(families)


def _sets(states: Sequence[VersionState]) -> list[Metric]:
    texts = {
        "coverage": "Share of the labelled answers whose conformal set holds the label; NaN if it is not known",
        "coverage_lower": "Lower end of the 95% interval of that coverage",
        "coverage_upper": "Upper end of the 95% interval of that coverage",
        "mean_size": "Mean number of classes in a set, of the labelled answers; NaN without labels",
        "labels": "Labels of answers with a set",
        "log_evalue": "Natural logarithm of the evidence that the sets cover too seldom",
        "uncovered": "1: the sets of this level cover too seldom; 0: there is no evidence of that",
    }
    families = [GaugeMetricFamily(f"trueodds_sets_{n}", text, labels=[*KEY, "level"]) for n, text in texts.items()]
    for state in states:
        for one in state.sets.levels if state.sets else ():
            assert one.alarm is not None  # a version's sets are watched
            values = (one.coverage, one.lower, one.upper, one.mean_size, one.labels, one.alarm.log_e)
            for family, value in zip(families, (*values, one.alarm.state == "fired"), strict=True):
                place = [*state.key, f"{one.level:.6g}"]
                family.add_metric(place, float("nan") if value is None else float(value))
    return list(families)


def _groups(states: Sequence[VersionState]) -> list[Metric]:
    texts = {
        "watched": "Tags, or predicted classes, with an alarm of their own: at most 100 each",
        "marked": "Those whose evidence of a calibration error above the tolerance marks them at this look",
        "ever_marked": "Those that are marked for good",
        "unacknowledged": "Those that are marked for good and that nobody has acknowledged",
    }
    families = [GaugeMetricFamily(f"trueodds_groups_{n}", text, labels=[*KEY, "by"]) for n, text in texts.items()]
    for state in states:
        for kind in KINDS if state.groups else ():
            assert state.groups is not None
            alarm, marks = state.groups.alarm(kind), [mark for mark in state.groups.marks if mark.about == kind]
            unknown = sum(mark.acknowledged is None for mark in marks)
            values = (len(alarm.names), len(alarm.marks()), len(marks), unknown)
            for family, value in zip(families, values, strict=True):
                family.add_metric([*state.key, kind], float(value))
    return list(families)


def _expected(states: Sequence[VersionState]) -> list[Metric]:
    texts = {
        "alert_share": "Share of the answers without a label that have an alert; NaN if the expectation is withdrawn",
        "precision": "Expected precision of these alerts, if the calibration holds; NaN if labels contradict it",
        "precision_lower": "Lower end of the 95% interval of that precision",
        "precision_upper": "Upper end of the 95% interval of that precision",
        "recall": "Expected recall of these alerts, if the calibration holds; NaN if labels contradict it",
        "recall_lower": "Lower end of the 95% interval of that recall",
        "recall_upper": "Upper end of the 95% interval of that recall",
        "withdrawn": "1: labels contradict the calibration, so nothing is expected; 0: they do not",
    }
    families = [
        GaugeMetricFamily(f"trueodds_expected_{name}", text, labels=[*KEY, "alert"]) for name, text in texts.items()
    ]
    for state in states:
        for part in state.expected:
            one = next((one for one in part.decisions if one.threshold == part.threshold), None)
            values: tuple[float | None, ...] = (None,) * 7
            if one is not None:
                shares = (limit for s in (one.precision, one.recall) for limit in (s.value, s.lower, s.upper))
                values = (one.alert_share, *shares)
            for family, value in zip(families, (*values, float(part.withdrawn is not None)), strict=True):
                family.add_metric([*state.key, part.about], float("nan") if value is None else value)
    return list(families)


def _class_shares(states: Sequence[VersionState]) -> list[Metric]:
    texts = {
        "share": "Share of a class among the answers by EM, if only the class shares changed; no series if unknown."
        " Without reference rows in the card: of the last 24 hours, with the labelled answers before as the reference",
        "share_lower": "Lower end of the 95% interval of that share",
        "share_upper": "Upper end of the 95% interval of that share",
        "share_reference": "Share of the class among the reference rows",
    }
    families = [
        GaugeMetricFamily(f"trueodds_class_{name}", text, labels=[*KEY, "class"]) for name, text in texts.items()
    ]
    reasons = {
        "refused": "1: a test of the scores, or too few rows, speak against the class shares; 0: they do not",
        "withdrawn": "1: labels contradict the class shares, so there are none; 0: they do not",
    }
    flags = [GaugeMetricFamily(f"trueodds_class_shares_{name}", text, labels=KEY) for name, text in reasons.items()]
    for state in states:
        if (shares := state.class_shares) is None:
            continue
        for flag, reason in zip(flags, (shares.refused, shares.withdrawn), strict=True):
            flag.add_metric([*state.key], float(reason is not None))
        for one in shares.classes:
            values = (one.em.value, one.em.lower, one.em.upper, one.reference)
            for family, value in zip(families, values, strict=True):
                family.add_metric([*state.key, one.name], float("nan") if value is None else value)
    return [*families, *flags]


def _judges(states: Sequence[VersionState]) -> list[Metric]:
    texts = {
        "labels": "Answers with a label of a judge",
        "agreement": "Share of the human labels with which the judge agrees",
        "accuracy": "Accuracy of all answers from human and judge's labels; no series without 30 human labels",
        "accuracy_lower": "Lower end of the 95% interval of that accuracy",
        "accuracy_upper": "Upper end of the 95% interval of that accuracy",
        "signed_gap": "Accuracy minus mean confidence, from human and judge's labels",
        "signed_gap_lower": "Lower end of the 95% interval of that gap",
        "signed_gap_upper": "Upper end of the 95% interval of that gap",
        "unlike": "1: the judge's labels show that the human labels are no random sample; 0: they do not",
    }
    families = {name: GaugeMetricFamily(f"trueodds_judge_{name}", text, labels=KEY) for name, text in texts.items()}
    for state in states:
        if (judge := state.judge) is None:
            continue
        values: dict[str, float | None] = {"labels": judge.judge_labels, "agreement": judge.agreement}
        for name, figure in (("accuracy", judge.accuracy), ("signed_gap", judge.signed_gap)):
            if figure is not None:
                values |= {name: figure.value, f"{name}_lower": figure.lower, f"{name}_upper": figure.upper}
                values["unlike"] = float(judge.warning)
        for name, value in values.items():
            if value is not None:
                families[name].add_metric([*state.key], value)
    return list(families.values())


def _maturing(states: Sequence[VersionState]) -> list[Metric]:
    counted = [(state.key, state.sums.answers, state.maturity_counts) for state in states if state.maturity_counts]
    waiting = [(key, float(max(answers - maturity_counts.answers, 0))) for key, answers, maturity_counts in counted]
    text = "Predictions whose maturity window is open; no series without a window"
    late = "Labels that arrived, or replaced another label, after the window"
    return [
        _gauge("maturing", text, KEY, waiting),
        _gauge("matured", "Predictions whose maturity window has closed", KEY, [(k, m.answers) for k, _, m in counted]),
        _gauge(
            "matured_unlabelled",
            "Matured predictions that had no label and count as ok",
            KEY,
            [(k, m.assumed) for k, _, m in counted],
        ),
        _gauge("after_window_labels", late, KEY, [(k, m.late) for k, _, m in counted]),
    ]


def _held_gauges(labels_by_model: Mapping[str, HeldLabels]) -> list[Metric]:
    text = "Time since the oldest held label arrived; no series without one"
    ages = [([model], max(0.0, time.time() - labels.oldest_ms / 1000)) for model, labels in labels_by_model.items()]
    counts = [([model], labels.count) for model, labels in labels_by_model.items()]
    return [
        _gauge("held_labels", "Labels that wait for their predictions", ["model"], counts),
        _gauge("held_label_age_seconds", text, ["model"], ages),
    ]


def _archive_gauges(archive: ArchiveState) -> list[Metric]:
    last: list[tuple[list[str], float]] = [] if archive.last_ms is None else [([], archive.last_ms / 1000)]
    values = {
        "archived_answers": ("Predictions in the archive", archive.answers),
        "archived_files": ("Files in the archive", archive.files),
        "archive_waiting_answers": (
            "Predictions that have left the live tables for a file that is not in the archive yet",
            archive.waiting,
        ),
        "archive_failures": ("Rounds of the archive that failed", archive.failures),
        "archive_failing": (
            "1: the last round of the archive failed, so nothing is removed; 0: it did not",
            float(archive.problem is not None),
        ),
    }
    return [
        *(_gauge(name, text, (), [([], float(value))]) for name, (text, value) in values.items()),
        _gauge("archive_last_timestamp_seconds", "Unix time of the last file; no series before the first", (), last),
    ]


def _ready_gauge(intended_versions: Iterable[tuple[str, str, str, bool]]) -> Metric:
    text = "1: loaded; 0: should be loaded, but is refused or not loaded yet"
    values = [([model, version, role], float(is_ready)) for model, version, role, is_ready in intended_versions]
    return _gauge("version_ready", text, [*KEY, "role"], values)


def _altered_gauge(changes: Iterable[tuple[str, str, bool]]) -> Metric:
    text = "1: its files have changed since they were loaded; 0: they have not"
    values = [([model, version], float(is_altered)) for model, version, is_altered in changes]
    return _gauge("version_altered", text, KEY, values)


def _question_gauges(questions: Sequence[QuestionCounts], notices: Sequence[Notice]) -> list[Metric]:
    """Return the gauges of the questions with the latest answers, and of their notices."""
    shown = sorted(questions, key=lambda question: question.last_ms)[-MOST_VERSIONS:]
    keys = [list(question.of.key) for question in shown]

    def gauge(name: str, text: str, values: Iterable[float | None]) -> Metric:
        named = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
        return _gauge(f"question_{name}", text, KEY, named)

    times = [([*one.key[:2], one.kind], one.at_ms / 1000) for one in notices if [*one.key[:2]] in keys]
    text = "Time of a notice about a question: served_model_changed, wording_changed or refusals_rising"
    return [
        gauge("answered", "Answers of a decision model to a question", (q.answered for q in shown)),
        gauge("declined", "Requests in which the host declined a question", (q.declined for q in shown)),
        gauge("repeated", "Answers to an input that was asked before", (q.repeated for q in shown)),
        gauge("option_mass", "Mean share of the probability that fell on the options", (q.mean_mass for q in shown)),
        _gauge("question_notice_timestamp_seconds", text, [*KEY, "notice"], times),
    ]
