"""Alarms by group: an e-process for each group of one stream, and marks whose false discovery rate holds at each look.

All groups share one stream, the one in which all labels arrive. A label may belong to any number of groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from trueodds.metrics.alarms.payoffs import Payoffs, payoffs
from trueodds.metrics.alarms.sequential import BLOCK, EProcess
from trueodds.metrics.alarms.stored import StoredState
from trueodds.sums.bins import CELLS, cell_of
from trueodds.sums.inputs import Array, as_numbers, check_alpha, check_top, is_number, is_whole

Integers = npt.NDArray[np.int64]
MOST_GROUPS = 100
"""Number of groups that get a place, unless another number is chosen."""
_COLUMNS = ("names", "blocks", "log_wealth", "rest", "marked_after")


def e_benjamini_hochberg(log_e_G: npt.ArrayLike, weight_G: npt.ArrayLike, alpha: float = 0.05) -> npt.NDArray[np.bool_]:
    """Return which hypotheses the weighted e-BH procedure rejects, at a false discovery rate of `alpha`.

    It rejects group g if w_g E_g >= 1 / (alpha R). R is the largest r for which at least r groups have
    w_g E_g >= 1 / (alpha r).

    **Guarantee.** If E[E_g] <= 1 for each true null and the weights sum to at most 1, the expected share of true nulls
    among the rejected is at most alpha. Proof: a rejected g has 1 / R <= alpha w_g E_g, so

        E[sum_{true g} 1{g rejected} / R] <= sum_{true g} alpha w_g E[E_g] <= alpha.

    Nothing is assumed about how the e-values depend on each other.

    Args:
        log_e_G: Natural logarithms of the e-values.
        weight_G: Weights, chosen without these e-values.
        alpha: False discovery rate, inside (0, 1).

    Returns:
        Whether each hypothesis is rejected.

    Raises:
        ValueError: Shapes differ, a log e-value is NaN, weights are not above 0 or sum to more than 1, or alpha is
            outside (0, 1).

    References:
        Wang and Ramdas 2022, False discovery rate control with e-values, sections 3 and 4.

    Examples:
        >>> metrics.e_benjamini_hochberg([6.0, 4.5, 0.1], [1 / 3] * 3).tolist()
        [True, True, False]
    """
    check_alpha(alpha)
    log_e, weight = as_numbers(log_e_G, "log_e"), as_numbers(weight_G, "weight")
    if log_e.ndim != 1 or weight.shape != log_e.shape:
        raise ValueError(f"log_e {log_e.shape} and weight {weight.shape} must be vectors of one length")
    if np.isnan(log_e).any():
        raise ValueError("log_e holds nan; allowed are natural logarithms of e-values, also -inf")
    if not (weight > 0).all() or weight.sum() > 1 + 1e-9:
        raise ValueError(f"weights sum to {weight.sum():g}; allowed are weights above 0 with a sum of at most 1")
    evidence_G = log_e + np.log(weight)
    sorted_G = np.sort(evidence_G)[::-1]
    passing_G = sorted_G >= -np.log(alpha * np.arange(1, len(sorted_G) + 1))
    if not passing_G.any():
        return np.zeros(len(sorted_G), bool)
    rejected_G: npt.NDArray[np.bool_] = evidence_G >= -math.log(alpha * (1 + int(np.flatnonzero(passing_G)[-1])))
    return rejected_G


@dataclass(frozen=True)
class GroupAlarm(StoredState):
    """Sequential tests of many groups of one stream of labels: which groups are miscalibrated?

    The null of a group is that at every label of the group, given ALL labels that arrived before it, the ECE of the
    group's labelled answers is at most the tolerance. Its evidence is that of `EProcess` with the null "ece", in blocks
    of 20 labels of the group. A block that is not complete counts with its labels so far, because its stakes were fixed
    when it began. So each E_g is a supermartingale of the whole stream, label by label. Reading it only at the ends of
    blocks would not be valid: the other groups tell how an open block goes on.

    **Places.** Each group gets a place when its first label arrives. Place k has the weight w_k, and the weights sum to
    1. They are fixed beforehand, so the number of groups need not be known. A group that is still to come has E = 1.
    With `equal`, all places have the same weight, for groups that are known beforehand, such as classes. Otherwise w_k
    is proportional to 1/k: with few groups the price is at most 1 + log(places) times that of knowing their number.
    If all places are taken, labels of further groups are counted in `left_out` and their groups are not tested. No
    group ever loses its place, since giving a place away because its evidence is small would void the guarantee.

    **marks.** At each look, `e_benjamini_hochberg` of the CURRENT evidence at `alpha`. A look may be any stopping time
    of the stream, such as every midnight, or the moment at which something looks odd. There E[E_g] <= 1 for each true
    null (optional stopping), however groups overlap. So at each look the expected share of groups within the tolerance
    among the marked is at most alpha. A mark may go again.

    **lasting_marks.** Groups with w_g E_g >= 2 / alpha at the end of some block of theirs. This list has a budget of
    its own, alpha / 2: with a probability of at least 1 - alpha / 2 it never holds a group within the tolerance. Proof:
    by Ville's inequality, a true null reaches E_g >= 2 / (alpha w_g) with a probability of at most alpha w_g / 2. The
    sum of these is at most alpha / 2 (union bound). Such a mark stays.

    Both assume that the time at which a label arrives does not depend on whether its answer was right.

    References:
        Wang and Ramdas 2022. Ville 1939. Choe and Ramdas 2024, Combining evidence across filtrations.

    Examples:
        >>> alarm = metrics.GroupAlarm.start()
        >>> groups = [["night", "camera 2"], ["camera 2"]] * 200
        >>> alarm = alarm.advance([0.9] * 400, [False, True] * 200, groups)
        >>> alarm.marks(), alarm.lasting_marks()
        (['night', 'camera 2'], ['night', 'camera 2'])
    """

    tolerance: float
    alpha: float
    """False discovery rate of the marks at each look."""
    places: int
    equal: bool
    """Whether all places have the same weight."""
    labels: int
    """Number of labels in the stream."""
    left_out: int
    """Number of times that a label belonged to a group without a place."""
    names: tuple[str, ...]
    """Groups in the order of their places."""
    blocks: tuple[int, ...]
    """Number of whole blocks of each group."""
    log_wealth: tuple[tuple[float, ...], ...]
    """Log wealth of each bet on each group. Empty before its first block."""
    rest: tuple[tuple[int, ...], ...]
    """Labels of each group's open block: 1 + cell of the confidence, negative if the answer was wrong."""
    marked_after: tuple[int | None, ...]
    """Number of labels in the stream at which each group was first among the ever marked; None: never."""

    form = "group-alarm"

    @classmethod
    def start(
        cls, tolerance: float = 0.02, alpha: float = 0.05, places: int = MOST_GROUPS, *, equal: bool = False
    ) -> Self:
        """Return the state before any label.

        Args:
            tolerance: Largest acceptable ECE of a group, in [0, .5).
            alpha: False discovery rate of the marks, in (0, 1).
            places: Largest number of groups.
            equal: Give each place the same weight. Choose it if you know the number of groups.

        Raises:
            ValueError: A value is outside its range.
        """
        payoffs("ece", tolerance)
        check_alpha(alpha)
        if not (is_whole(places) and places >= 1):
            raise ValueError(f"places is {places!r}; allowed are whole numbers from 1 on, such as {MOST_GROUPS}")
        return cls(float(tolerance), float(alpha), int(places), bool(equal), 0, 0, (), (), (), (), ())

    @property
    def weight_G(self) -> Array:
        """Weights of the groups, in the order of their places."""
        if self.equal:
            return np.full(len(self.names), 1 / self.places)
        share_K = 1 / np.arange(1, self.places + 1)
        weight_G: Array = share_K[: len(self.names)] / share_K.sum()
        return weight_G

    @property
    def threshold_G(self) -> Array:
        """E-value of each group at which it is marked for good."""
        threshold_G: Array = 2 / (self.alpha * self.weight_G)
        return threshold_G

    @property
    def labels_G(self) -> Integers:
        """Number of labels of each group."""
        return np.array(self.blocks, np.int64) * BLOCK + np.array([len(rest) for rest in self.rest], np.int64)

    @property
    def log_e_G(self) -> Array:
        """Evidence about each group now, in nats, with the labels of its open block."""
        table = payoffs("ece", self.tolerance)
        blocks_G, wealth_GK = self._arrays(table)
        open_G = np.array([bool(rest) for rest in self.rest], bool)
        if open_G.any():
            paid_GK = np.stack([_log_paid(table, np.array(rest)).sum(axis=0) for rest in self.rest if rest])
            wealth_GK[open_G] = _step(wealth_GK[open_G], paid_GK, blocks_G[open_G] + 1)
        return EProcess.value(wealth_GK, table.log_weight_K, blocks_G + open_G)

    def marks(self) -> list[str]:
        """Return the groups that are marked at this look, in the order of their places."""
        chosen_G = e_benjamini_hochberg(self.log_e_G, self.weight_G, self.alpha)
        return [name for name, chosen in zip(self.names, chosen_G, strict=True) if chosen]

    def lasting_marks(self) -> list[str]:
        """Return the groups that have ever been marked for good, in the order of their places."""
        return [name for name, after in zip(self.names, self.marked_after, strict=True) if after is not None]

    def advance(self, confidence_N: npt.ArrayLike, correct_N: npt.ArrayLike, groups: Sequence[Iterable[str]]) -> Self:
        """Return the state after more labels, in the order of their arrival.

        The result is bit-for-bit the same however a stream is divided into calls.

        Args:
            confidence_N: Confidence of each answer.
            correct_N: Whether each answer is right.
            groups: Names of the groups of each answer. A name that is given twice for an answer counts once.

        Raises:
            ValueError: Lengths differ, or `CalibrationSums.from_top` does not accept the rows.
            TypeError: The groups of a row are a text, or a name is not a text.
        """
        confidence, correct = check_top(confidence_N, correct_N)
        if len(groups) != len(confidence):
            raise ValueError(f"groups are given for {len(groups)} rows, but there are {len(confidence)} labels")
        rows, left_out = self._rows(groups)
        signed_N = np.where(correct, 1, -1) * (cell_of(confidence) + 1)
        names = tuple(rows)
        fresh = len(names) - len(self.names)
        state = replace(
            self,
            names=names,
            blocks=self.blocks + (0,) * fresh,
            log_wealth=self.log_wealth + ((),) * fresh,
            rest=self.rest + ((),) * fresh,
            marked_after=self.marked_after + (None,) * fresh,
            left_out=self.left_out + left_out,
        )
        state = state._advance([np.array(rows[name], np.int64) for name in names], signed_N)
        return replace(state, labels=self.labels + len(confidence))

    def _rows(self, groups: Sequence[Iterable[str]]) -> tuple[dict[str, list[int]], int]:
        """Return the rows of each group, in the order of places, and how many memberships have no place."""
        rows: dict[str, list[int]] = {name: [] for name in self.names}
        left_out = 0
        for n, own in enumerate(groups):
            if isinstance(own, str):
                raise TypeError(f"row {n}: groups are {own!r}; give a list of names, such as [{own!r}]")
            for name in dict.fromkeys(own):
                if not isinstance(name, str):
                    raise TypeError(f"row {n}: a group is {name!r}; allowed are texts")
                if name not in rows:
                    if len(rows) >= self.places:
                        left_out += 1
                        continue
                    rows[name] = []
                rows[name].append(n)
        return rows, left_out

    def _arrays(self, table: Payoffs) -> tuple[Integers, Array]:
        """Return the number of blocks and the wealth of each group, -inf before the first block."""
        wealth_GK = np.full((len(self.names), len(table.log_weight_K)), -np.inf)
        for g, wealth in enumerate(self.log_wealth):
            if wealth:
                wealth_GK[g] = wealth
        return np.array(self.blocks, np.int64), wealth_GK

    def _advance(self, rows_of: list[Integers], signed_N: Integers) -> Self:
        """Commit the whole blocks of all groups, the first of each group together, then the second, ..."""
        table, threshold_G = payoffs("ece", self.tolerance), np.log(self.threshold_G)
        blocks_G, wealth_GK = self._arrays(table)
        rest, marked_after = list(self.rest), list(self.marked_after)
        paid_of: dict[int, Array] = {}
        end_of: dict[int, Integers] = {}
        for g, rows in enumerate(rows_of):
            if not len(rows):
                continue
            waiting = np.array(rest[g], np.int64)
            signed = np.concatenate([waiting, signed_N[rows]])
            whole = len(signed) // BLOCK * BLOCK
            rest[g] = tuple(signed[whole:].tolist())
            if whole:
                paid_of[g] = _log_paid(table, signed[:whole].reshape(-1, BLOCK)).sum(axis=1)
                end_of[g] = self.labels + 1 + rows[np.arange(BLOCK, whole + 1, BLOCK) - 1 - len(waiting)]
        for b in range(max((len(paid) for paid in paid_of.values()), default=0)):
            active = np.array([g for g, paid in paid_of.items() if b < len(paid)], np.int64)
            blocks_G[active] += 1
            paid = np.stack([paid_of[g][b] for g in active.tolist()])
            wealth_GK[active] = _step(wealth_GK[active], paid, blocks_G[active])
            value = EProcess.value(wealth_GK[active], table.log_weight_K, blocks_G[active])
            for g in active[value >= threshold_G[active]].tolist():
                if marked_after[g] is None:
                    marked_after[g] = int(end_of[g][b])
        wealth = list(self.log_wealth)
        for g in paid_of:
            wealth[g] = tuple(wealth_GK[g].tolist())
        return replace(
            self,
            blocks=tuple(blocks_G.tolist()),
            log_wealth=tuple(wealth),
            rest=tuple(rest),
            marked_after=tuple(marked_after),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, which `from_json` restores exactly."""
        columns = {
            name: [list(value) if isinstance(value, tuple) else value for value in getattr(self, name)]
            for name in _COLUMNS
        }
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _COLUMNS}
        return {"form": self.form, **plain, **columns}

    @classmethod
    def _restore(cls, tree: dict[str, Any]) -> Self:
        state = cls.start(tree["tolerance"], tree["alpha"], tree["places"], equal=tree["equal"])
        columns: dict[str, Any] = {
            name: tuple(tree[name]) for name in ("names", "blocks", "log_wealth", "rest", "marked_after")
        }
        if len({len(column) for column in columns.values()}) > 1 or len(columns["names"]) > state.places:
            raise ValueError(f"the groups' columns have different lengths, or more than {state.places} groups")
        if len(set(columns["names"])) < len(columns["names"]) or not all(isinstance(n, str) for n in columns["names"]):
            raise ValueError("names must be different texts")
        if not (is_whole(tree["labels"]) and is_whole(tree["left_out"]) and min(tree["labels"], tree["left_out"]) >= 0):
            raise ValueError("labels and left_out must be whole numbers from 0 on")
        bets = len(payoffs("ece", state.tolerance).log_weight_K)
        for blocks, wealth, rest, after in zip(*list(columns.values())[1:], strict=True):
            if not is_whole(blocks) or blocks < 0 or len(wealth) != (bets if blocks else 0):
                raise ValueError(f"{blocks!r} blocks with the wealth of {len(wealth)} bets; allowed are {bets} bets")
            if not all(is_number(value) and math.isfinite(value) for value in wealth):
                raise ValueError("log_wealth must hold finite numbers")
            if len(rest) >= BLOCK or not all(is_whole(one) and 1 <= abs(one) <= CELLS for one in rest):
                raise ValueError(f"an open block is {rest!r}; allowed are fewer than {BLOCK} signed cells")
            if blocks * BLOCK + len(rest) > tree["labels"]:
                raise ValueError(f"a group has more labels than the stream, {tree['labels']}")
            if after is not None and not (is_whole(after) and 1 <= after <= tree["labels"]):
                raise ValueError(f"marked_after is {after!r}; allowed are null and 1 to {tree['labels']}")
        columns["log_wealth"] = tuple(tuple(map(float, wealth)) for wealth in columns["log_wealth"])
        columns["rest"] = tuple(map(tuple, columns["rest"]))
        return replace(state, labels=tree["labels"], left_out=tree["left_out"], **columns)


def _log_paid(table: Payoffs, signed_cell: Integers) -> Array:
    """Return the log payoffs of labels, given as signed cells, on a new last axis of bets."""
    cell = np.abs(signed_cell) - 1
    paid: Array = np.where((signed_cell > 0)[..., None], table.log_right_CK[cell], table.log_wrong_CK[cell])
    return paid


def _step(wealth_GK: Array, paid_GK: Array, block_G: Integers) -> Array:
    """Return the wealth after one more block of each group: `EProcess.step` with a block number for each group."""
    before_G, after_G = 1 + np.log2(block_G), 1 + np.log2(block_G + 1.0)
    log_gamma_G = np.log(np.log1p(1 / block_G) / math.log(2) / (before_G * after_G))
    wealth: Array = np.logaddexp(wealth_GK, log_gamma_G[:, None]) + paid_GK
    return wealth
