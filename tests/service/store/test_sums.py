"""The algebra of sums: covering hours by few periods, blobs, and what the 60 cells keep exact."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.store import StoreError
from service.store.work.sums import deltas
from service.store.work.sums.deltas import BY_CLASS, BY_TAG, TOTAL, Deltas, answer_deltas, label_deltas
from service.store.work.sums.period_sums import HOUR, UNITS, PeriodSums, add_up, by_period, cover, period_of, start_ms
from trueodds.metrics import CalibrationSums, cell_of, ece
from trueodds.sums.hours import HOUR_MS

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=60)
HOURS = st.integers(-100_000, 900_000)


@FIXED
@given(first=HOURS, length=st.integers(-5, 20_000))
def test_few_periods_cover_every_hour_once(first: int, length: int) -> None:
    ranges = cover(first, first + length)
    hours: list[tuple[int, int]] = []
    for unit, low, high in ranges:
        assert low is not None and high is not None
        hours.append((start_ms(low, unit), start_ms(high, unit)))
    hours.sort()
    assert sum(end - start for start, end in hours) == HOUR_MS * max(length, 0)
    if hours:
        assert (hours[0][0], hours[-1][1]) == (HOUR_MS * first, HOUR_MS * (first + length))
        assert all(a[1] == b[0] for a, b in pairwise(hours))
    assert sum(high - low for unit, low, high in ranges if unit < 2 and low is not None and high is not None) <= 110


@FIXED
@given(hour=HOURS)
def test_ranges_without_an_end(hour: int) -> None:
    for first, end in ((hour, None), (None, hour), (None, None)):
        edges = [
            start_ms(int(period_of(hour + k, unit)), unit) // HOUR_MS for unit in UNITS for k in (-1000, -1, 0, 1, 1000)
        ]
        for probe in {*edges, hour - 1, hour, hour + 1}:
            inside = (first is None or probe >= first) and (end is None or probe < end)
            times = 0
            for unit, low, high in cover(first, end):
                period = int(period_of(probe, unit))
                times += (low is None or low <= period) and (high is None or period < high)
            assert times == inside


def some(count: int, seed: int = 0) -> tuple[Deltas, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence_N, right_N = rng.uniform(0, 1, count), rng.integers(0, 2, count)
    loss_N, hour_N, group_N = rng.uniform(0, 2, (2, count)), rng.integers(0, 2000, count), rng.integers(0, 5, count)
    created_N = hour_N * HOUR_MS
    labels = label_deltas(created_N, confidence_N, group_N, group_N, right_N, *loss_N)
    return Deltas(answer_deltas(created_N, confidence_N, group_N, group_N), labels), confidence_N, right_N, loss_N


@pytest.mark.parametrize("kind", [TOTAL, BY_CLASS, BY_TAG])
def test_blobs_restore_sums_exactly(kind: int) -> None:
    sums = PeriodSums.of(some(500)[0], kind)
    again = PeriodSums.from_bytes(sums.to_bytes())
    for name in ("answer_keys_A", "answers_A", "label_keys_L", "columns_7L"):
        assert (getattr(again, name) == getattr(sums, name)).all()
    large = PeriodSums(sums.answer_keys_A, sums.answers_A + 2**40, sums.label_keys_L, sums.columns_7L)
    assert (PeriodSums.from_bytes(large.to_bytes()).answers_A == large.answers_A).all()
    assert PeriodSums.from_bytes(PeriodSums.zero().to_bytes()).answer_sums(TOTAL)[0].answers == 0


def test_a_damaged_blob_is_refused() -> None:
    blob = PeriodSums.of(some(50)[0], TOTAL).to_bytes()
    cut = blob[:5] + b"\xff" + blob[6:]
    for damaged in (b"", b"x" * 40, blob[:-1], blob[:60] + bytes([blob[60] ^ 1]) + blob[61:], cut):
        with pytest.raises(StoreError, match="the store is damaged"):
            PeriodSums.from_bytes(damaged)


def test_totals_are_the_metrics_own_sums() -> None:
    deltas, confidence_N, right_N, loss_N = some(800)
    sums = PeriodSums.of(deltas, TOTAL).answer_sums(TOTAL)[0]
    expected = CalibrationSums.from_top(confidence_N, right_N, nll_N=loss_N[0], brier_N=loss_N[1])
    np.testing.assert_allclose(sums.labelled.cells, expected.cells, rtol=1e-12, atol=1e-12)
    assert (sums.answers_C == np.bincount(cell_of(confidence_N), minlength=3000)).all()


def test_what_is_taken_out_leaves_exact_zeros() -> None:
    deltas = some(300)[0]
    out = deltas.labels.copy()
    out["sign"] = -1
    for parts in (
        [deltas, Deltas(deltas.answers[:0], out)],
        [Deltas(deltas.answers, np.concatenate([deltas.labels, out]))],
    ):
        whole = add_up([PeriodSums.of(part, TOTAL) for part in parts])
        assert (whole.answer_sums(TOTAL)[0].labelled.cells == 0).all()
        assert len(whole.without_empty().label_keys_L) == 0


def test_a_correction_alone_moves_nll_though_no_count() -> None:
    """As compaction sees it when the label itself is merged already."""
    first, now = some(1)[0], some(1)[0].labels.copy()
    now["nll"], out = 1.5, first.labels.copy()
    out["sign"] = -1
    change = PeriodSums.of(Deltas(first.answers[:0], np.concatenate([out, now])), TOTAL)
    whole = PeriodSums.of(first, TOTAL) + change
    assert whole.answer_sums(TOTAL)[0].labelled.total("nll") == pytest.approx(1.5)


@pytest.mark.parametrize("bins", [10, 12, 15, 20, 30, 60])
def test_sixty_cells_keep_every_binning_of_their_divisors(bins: int) -> None:
    deltas, confidence_N, right_N, loss_N = some(2000)
    confidence_N[:] = np.round(confidence_N * 120) / 120  # edges too
    for rows in (deltas.answers, deltas.labels):
        rows["cell"] = cell_of(confidence_N)
    deltas.labels["confidence"] = confidence_N
    for group, sums in PeriodSums.of(deltas, BY_CLASS).answer_sums(BY_CLASS).items():
        inside = deltas.labels["predicted"] == group
        expected = CalibrationSums.from_top(confidence_N[inside], right_N[inside], nll_N=loss_N[0][inside])
        assert ece(sums.labelled, bins=bins) == pytest.approx(ece(expected, bins=bins), abs=1e-12)
        assert (sums.answers_C >= sums.labelled.cells[0]).all()
        CalibrationSums.from_cells(
            [(k, *sums.labelled.cells[:, k]) for k in np.flatnonzero(sums.labelled.cells[0]).tolist()]
        )


def test_a_clock_before_1970_is_an_hour_like_any_other() -> None:
    """Machines start with such clocks; a report must not fail of them."""
    rows = deltas.answer_deltas([-1, -3_600_001, 0], np.full(3, 0.5), [0, 0, 0], [0, 0, 0])
    assert rows["minute"].tolist() == [-1, -61, 0]
    everything = deltas.Deltas(rows, np.zeros(0, deltas.LABEL))
    assert [period for period, _ in by_period(everything, HOUR)] == [-2, -1, 0]
    assert len(everything.between((-1, 1))) == 2
