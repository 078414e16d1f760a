"""The reading of rounded probabilities as terms of an expression; `trueodds.sums.rounding` defines it."""

from __future__ import annotations

from collections.abc import Sequence

from trueodds.reports.warehouse.plan import Expression
from trueodds.reports.warehouse.terms import at_least, at_most, number, total, value_at, where
from trueodds.sums.losses import TRUE_ZERO_POWER
from trueodds.sums.rounding import _WORN, LEAST_REST


def with_rounded_losses(
    rows: Expression, values: Sequence[str], true_class: str, step: float, prefix: str
) -> Expression:
    """Add NLL, its lower bound, and Brier score of rounded rows, as `trueodds.sums.losses.rounded_losses` has them.

    Args:
        rows: The rows.
        values: Columns of the rounded probabilities.
        true_class: Column of the index of the true class; null or negative without a label.
        step: The step.
        prefix: Beginning of the new columns: `nll`, `least` and `brier` after it.
    """
    names = [f"{prefix}r{k}" for k in range(len(values))]
    half, one, nothing = number(step / 2), number(1), number(0)
    # rint and ROUND differ at ties alone, and no multiple of the step is one.
    rows = rows.mutate(
        **{
            f"{name}k": (rows[value] / number(step) + number(0.5)).floor()
            for name, value in zip(names, values, strict=True)
        }
    )
    is_zero = {name: rows[f"{name}k"] <= nothing for name in names}
    rows = rows.mutate(
        **{
            f"{name}m": where(
                is_zero[name],
                nothing,
                (at_least(rows[f"{name}k"], one) * at_least(rows[f"{name}k"], one) - number(0.25)).sqrt()
                * number(step),
            )
            for name in names
        },
        **{f"{prefix}zeros": total([where(is_zero[name], one, nothing) for name in names])},
    )
    rows = rows.mutate(**{f"{prefix}sum": total([rows[f"{name}m"] for name in names])})
    zeros, others = rows[f"{prefix}zeros"], number(len(values)) - rows[f"{prefix}zeros"]
    rest = at_most(at_least(one - rows[f"{prefix}sum"], number(LEAST_REST * step)), zeros * number(step) / number(2))
    rows = rows.mutate(**{f"{prefix}rest": rest})
    shift = (one - rows[f"{prefix}rest"] - rows[f"{prefix}sum"]) / at_least(others, one)
    rows = rows.mutate(
        **{f"{prefix}shift": shift, f"{prefix}share": rows[f"{prefix}rest"] / at_least(rows[f"{prefix}zeros"], one)}
    )
    moved = {
        name: at_most(
            at_least(
                rows[f"{name}m"] + rows[f"{prefix}shift"],
                (rows[f"{name}k"] - number(0.5) + number(_WORN)) * number(step),
            ),
            (rows[f"{name}k"] + number(0.5)) * number(step),
        )
        for name in names
    }
    rows = rows.mutate(
        **{f"{name}v": where(rows[f"{name}k"] <= nothing, rows[f"{prefix}share"], moved[name]) for name in names}
    )
    rows = rows.mutate(**{f"{prefix}all": total([rows[f"{name}v"] for name in names])})
    rows = rows.mutate(**{name: rows[f"{name}v"] / rows[f"{prefix}all"] for name in names})
    least = {value: at_least(rows[value] - half, nothing) for value in values}
    rows = rows.mutate(
        **{
            f"{prefix}true": value_at(rows[true_class], [rows[name] for name in names]),
            f"{prefix}given": value_at(rows[true_class], [rows[value] for value in values]),
            f"{prefix}squares": total([rows[name] * rows[name] for name in names]),
            f"{prefix}below": total([where(rows[value] < half, one, nothing) for value in values]),
            f"{prefix}others": total([least[value] for value in values]),
        }
    )
    true, given = rows[f"{prefix}true"], rows[f"{prefix}given"]
    low = half * at_most(true / half, one) ** number(TRUE_ZERO_POWER)
    likely = where(given < half, at_most(low, at_least(true * rows[f"{prefix}below"], true)), true)
    rows = rows.mutate(**{f"{prefix}likely": likely})
    left = rows[f"{prefix}others"] - at_least(given - half, nothing)
    most = at_most(at_least(at_most(given + half, one - left), rows[f"{prefix}likely"]), one)
    return rows.mutate(
        **{
            f"{prefix}nll": -rows[f"{prefix}likely"].ln(),
            f"{prefix}least": -most.ln(),
            f"{prefix}brier": at_least(rows[f"{prefix}squares"] - number(2) * true + one, nothing),
        }
    )
