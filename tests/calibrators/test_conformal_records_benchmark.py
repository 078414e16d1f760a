"""The benchmark of conformal sets on real nets, on a small record whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.alarms import conformal_records
from trueodds.metrics import softmax


def test_the_law_holds_on_a_record_and_a_drift_is_found() -> None:
    """Sets cover by their law although the net is over-confident; random labels are found, hard classes at times."""
    rng = np.random.default_rng(0)
    logits_NC = rng.normal(0, 4, (2000, 5))
    labels_N = (softmax(logits_NC / 2).cumsum(axis=1) > rng.random((2000, 1))).argmax(axis=1)
    covered, drifted = conformal_records.measured("made", logits_NC, labels_N, 12)
    assert [one.method for one in covered] == [*conformal_records.METHODS]
    by_method = {one.method: one for one in covered}
    for method in conformal_records.WITH_LAW:
        one = by_method[method]
        assert one.rows == 500 and one.law is not None and one.law > 0.001
        assert one.mean == pytest.approx(0.9, abs=0.02) and one.alarm == 0
    assert by_method["class"].lowest_class > by_method["lac"].lowest_class - 0.02
    assert {one.drift for one in drifted} == {*conformal_records.DRIFTS}
    for late in drifted:
        if late.drift == "random labels":
            assert late.coverage < 0.85 and late.found > 0.25
    whole = {"coverage": [vars(one) for one in covered], "drift": [vars(one) for one in drifted]}
    assert conformal_records.markdown(whole).count("| made") == len(covered) + len(drifted)
    assert conformal_records.summary(**whole)["laws"] == 2


def test_a_split_uses_each_row_once() -> None:
    rng = np.random.default_rng(1)
    logits_NC, labels_N = rng.normal(0, 1, (400, 4)), rng.integers(0, 4, 400)
    logits_NC[:, 0] += np.arange(400)  # each row has logits of its own
    split = conformal_records.Split.of(logits_NC, labels_N, 3)
    assert (len(split.own_N), len(split.fresh_N), len(split.hard)) == (100, 200, 1)
    again = conformal_records.Split.of(logits_NC, labels_N, 3)
    assert (again.fresh_NC == split.fresh_NC).all() and (again.own_N == split.own_N).all()
