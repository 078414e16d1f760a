"""Class shares of the answers since a time, by their scores: the labelled answers before it are the reference.

It needs no rows in the card. So it is for any number of classes, and for versions that another server serves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.runtime import Runtime
from service.store.rows import LabelledLogits, Version
from service.store.store import LATEST_MS
from service.store.work.scoring import as_read, logits_of
from trueodds import metrics
from trueodds.metrics.labelling.prior_shift import MOST_CLASSES
from trueodds.reports.before_labels.class_shares import CONDITION, shares_of_rows
from trueodds.reports.schemas import ClassShares
from trueodds.sums.answers import AnswerSums
from trueodds.sums.hours import HOUR_MS, hours_of
from trueodds.sums.inputs import Array
from trueodds.texts import plural

MOST_READ = 100_000
"""Largest number of answers, and of labels, that one estimate reads."""
MOST_VALUES = 600_000
"""Largest number of probabilities of the answers, and of the reference rows, in one estimate. It takes seconds."""
DAY_MS = 86_400_000
FRESH_SECONDS = 600.0
"""Seconds for which `shares_of_last_day` returns the same estimate."""


class ScoredRows(NamedTuple):
    """Probabilities of answers (N, C), and their labels (-1 without one)."""

    p_NC: Array
    label_N: npt.NDArray[np.int64]


@dataclass(frozen=True)
class ShareRows:
    """Rows for an estimate, or the reason why there is none."""

    answers: ScoredRows | None
    reference: ScoredRows | None
    read: int
    """Number of answers since the time."""
    refused: str | None = None


async def shares_since(
    runtime: Runtime, version: Version, since_ms: int, until_ms: int | None, confidence: float
) -> ClassShares | None:
    """Estimate the class shares of a version's answers in [since, until), in milliseconds, by whole hours.

    Args:
        runtime: The service's parts.
        version: The version, which another server may serve.
        since_ms: First time of the answers. Labelled answers before it are the reference rows.
        until_ms: End of the answers. None: now.
        confidence: Confidence level of each interval.

    Returns:
        The shares, or why there are none. None if there is no answer without a label.

    Raises:
        StoreError: The store is damaged or not readable.
    """
    first, end = hours_of(since_ms, until_ms)
    assert first is not None
    rows = await _read(runtime, version, first * HOUR_MS, None if end is None else end * HOUR_MS)
    if rows is None:
        return None
    return await asyncio.to_thread(describe, version, rows, confidence)


async def shares_of_last_day(runtime: Runtime, version: Version) -> ClassShares | None:
    """Estimate the class shares of the answers of the last 24 hours, at most once in ten minutes.

    Voided labels may have been reference rows, so an estimate from before a voiding, or from its middle, is not
    returned.

    Returns:
        The shares, or why there are none. None if no answer has a label from before, or every answer has one.

    Raises:
        StoreError: The store is damaged or not readable.
    """
    voiding = await runtime.store.last_voiding(*version.key)
    made, before, shares = runtime.shares_of_last_day.get(version.key, (-np.inf, 0, None))
    if time.monotonic() - made >= FRESH_SECONDS or voiding != before:
        shares = await shares_since(runtime, version, time.time_ns() // 1_000_000 - DAY_MS, None, 0.95)
        shares = None if shares is None or not shares.reference_rows else shares
        runtime.shares_of_last_day[version.key] = time.monotonic(), voiding, shares
    return shares


def describe(version: Version, rows: ShareRows, confidence: float) -> ClassShares:
    """Describe the class shares of rows, or why there are none."""
    if rows.answers is None or rows.reference is None:
        known = 0 if rows.reference is None else len(rows.reference.label_N)
        reading = f"The class shares of {plural(rows.read, 'answer')} are not estimated: {rows.refused}."
        return ClassShares(
            answers=rows.read,
            reference_rows=known,
            classes=[],
            condition=CONDITION,
            refused=rows.refused,
            reading=reading,
        )
    most = max(MOST_VALUES // len(version.classes), 1)
    answers, reference = _thin(rows.answers, most), _thin(rows.reference, most)
    labelled_N = answers.label_N >= 0
    positive = version.positive_class
    shares = shares_of_rows(
        version.classes,
        answers.p_NC,
        (answers.p_NC[labelled_N], answers.label_N[labelled_N].astype(np.intp)),
        (reference.p_NC, reference.label_N.astype(np.intp)),
        confidence=confidence,
        positive=None if positive is None else positive.index,
    )
    words = "The reference rows are the answers with a label from before."
    if rows.read > len(answers.label_N):
        words += f" The answers are a random sample of the {rows.read:,} since then."
    return shares.model_copy(update={"reading": f"{shares.reading} {words}"})


async def _read(runtime: Runtime, version: Version, since_ms: int, until_ms: int | None) -> ShareRows | None:
    """Read the answers since a time, and the labelled ones before; None if every answer has a label."""
    store, key = runtime.store, version.key
    sums = await store.read_sums(*key, since_ms, until_ms)
    count = int(sums.answers)
    if count <= sums.labelled.n:
        return None
    classes = len(version.classes)
    if not version.has_logits:
        refused = "the answers have the confidence of the predicted class only; send the probabilities of all classes"
        return ShareRows(None, None, count, refused)
    if classes > MOST_CLASSES:
        return ShareRows(None, None, count, f"there are {classes} classes; allowed are up to {MOST_CLASSES}")
    if count > MOST_READ:
        return ShareRows(None, None, count, f"these are more than {MOST_READ:,}; give a later time (since)")
    reference, chances_N = await _reference(store.read_labelled_logits(*key, last=MOST_READ), version, since_ms)
    problem = _refusal(await store.read_sums(*key, None, since_ms), chances_N)
    if problem is not None:
        return ShareRows(None, reference, count, problem)
    found: list[ScoredRows] = []
    async for block in store.export(*key, since_ms, LATEST_MS if until_ms is None else until_ms, logits=True):
        sure_N = np.array([row.confidence for row in block], np.float64)
        z_NC = as_read(logits_of([row.logits for row in block], classes), sure_N, version)
        label_N = np.array([-1 if row.label is None else row.label for row in block], np.int64)
        found.append(ScoredRows(version.calibrator(z_NC, groups=[row.tag for row in block]), label_N))
    answers = ScoredRows(*map(np.concatenate, zip(*found, strict=True)))
    return ShareRows(answers, reference, count)


async def _reference(
    blocks: AsyncIterator[LabelledLogits], version: Version, before_ms: int
) -> tuple[ScoredRows, Array]:
    """Return the labelled answers before a time, and their propensities."""
    found, chances = [ScoredRows(np.zeros((0, len(version.classes))), np.zeros(0, np.int64))], [np.zeros(0)]
    async for block in blocks:
        kept_N = block.created_ms_N < before_ms
        p_NC = version.calibrator(block.logits_NC, groups=block.tags)
        found.append(ScoredRows(p_NC[kept_N], block.labels_N[kept_N]))
        chances.append(block.propensity_N[kept_N])
    return ScoredRows(*map(np.concatenate, zip(*found, strict=True))), np.concatenate(chances)


def _refusal(before: AnswerSums, chances_N: Array) -> str | None:
    """Return why the labelled answers before cannot be the reference; None if they can."""
    if not len(chances_N):
        return "no answer before this time has a label; give a later time (since), or label answers from before"
    known_N = chances_N[~np.isnan(chances_N)]
    if len(known_N) and (len(known_N) < len(chances_N) or np.ptp(known_N) > 1e-9):
        return "the labelled answers before were drawn with different propensities, so their scores are a selection"
    if before.labelled.n and metrics.choice_of_labels(before.labelled, before.answers_C).warning:
        return "the labelled answers before differ from all answers before in their confidence: they are a selection"
    return None


def _thin(rows: ScoredRows, most: int) -> ScoredRows:
    """Return at most `most` rows, drawn at random."""
    if len(rows.label_N) <= most:
        return rows
    kept_M = np.sort(np.random.default_rng(0).choice(len(rows.label_N), most, replace=False))
    return ScoredRows(rows.p_NC[kept_M], rows.label_N[kept_M])
