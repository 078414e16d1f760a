from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueodds.evaluation.splits import balanced_split


@settings(max_examples=60)
@given(st.lists(st.integers(0, 5), min_size=3, max_size=200), st.integers(0, 3), st.data())
def test_disjoint_complete_and_balanced(labels: list[int], seed: int, data: st.DataObject) -> None:
    y = np.asarray(labels, dtype=np.int64)
    size = data.draw(st.integers(1, len(y) - 1))
    drawn, rest = balanced_split(y, size, seed)
    assert len(drawn) == size
    assert sorted([*drawn, *rest]) == list(range(len(y)))
    for k in set(labels):
        share = size * np.mean(y == k)
        assert abs(int((y[drawn] == k).sum()) - share) < 1


def test_worked_by_hand() -> None:
    # 6 of class 0, 3 of class 1, 1 of class 2; five rows: shares 3, 1.5, .5; the spare row goes to the first remainder
    y = np.array([0] * 6 + [1] * 3 + [2])
    drawn, _ = balanced_split(y, 5, seed=1)
    assert np.bincount(y[drawn], minlength=3).tolist() == [3, 2, 0]


def test_seed_decides() -> None:
    y = np.repeat(np.arange(10), 50)
    assert np.array_equal(balanced_split(y, 100, 7)[0], balanced_split(y, 100, 7)[0])
    assert not np.array_equal(balanced_split(y, 100, 7)[0], balanced_split(y, 100, 8)[0])


@pytest.mark.parametrize("size", [0, 4, 5])
def test_refuses_an_empty_side(size: int) -> None:
    with pytest.raises(ValueError, match=r"cannot draw .* of 4 rows; allowed is 1\.\.3"):
        balanced_split(np.array([0, 0, 1, 1]), size, 0)
