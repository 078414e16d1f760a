"""Deep ensembles: nets of several seeds, trained one after another and pooled as one net."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from pipeline.data.dataset import DataSet
from pipeline.nets.pool import Pool, pool_logits
from pipeline.training import loop
from pipeline.training.checkpoint import EVERY, SHARE
from pipeline.training.machine.processes import ALONE, Processes
from pipeline.training.plan import Plan
from pipeline.training.training_result import TrainingResult
from pipeline.training.training_state import Row

log = logging.getLogger("pipeline.training")

OF_MEMBERS = ("selection", "penalties", "meta")
"""Entries of training.json that each member has for itself."""


def train(
    data: DataSet,
    plan: Plan,
    checkpoints: Path,
    *,
    every: float = EVERY,
    share: float = SHARE,
    processes: Processes = ALONE,
) -> TrainingResult:
    """Train the members of a deep ensemble, `recipe.members` nets, and pool them.

    The members of seed s have the seeds members x s, members x s + 1, ..., so ensembles of other seeds share no net.
    Each member is the net that a run of its own would train, and has its own checkpoint. A killed run continues with
    the member that was not finished. The arguments and errors are those of `pipeline.training.loop.train`.

    Returns:
        The pool, its logits, the mean of the members' histories, and the rows of `curves` of the first member.
    """
    members = []
    for number, one in enumerate(plans(plan), start=1):
        log.info("member %d of %d, seed %d", number, plan.recipe.members, one.seed)
        members.append(loop.train(data, one, checkpoints, every=every, share=share, processes=processes))
    first, *others = members
    shared = {key: value for key, value in first.settings.items() if key not in OF_MEMBERS}
    entries = [{"seed": one.seed, **{key: member.settings[key] for key in OF_MEMBERS}}
               for one, member in zip(plans(plan), members, strict=True)]  # fmt: skip
    notes = list(dict.fromkeys(note for member in members for note in member.settings["notes"]))
    notes.append(
        f"The model is a deep ensemble: {plan.recipe.members} nets of other seeds, whose probabilities are averaged. An"
        f" answer takes about {plan.recipe.members} times as long as one net's."
    )
    return TrainingResult(
        net=Pool([member.net for member in members]).eval(),
        logits={
            split: pool_logits([torch.from_numpy(member.logits[split]) for member in members]).numpy()
            for split in first.logits
        },
        history=[mean_row(rows) for rows in zip(*(member.history for member in members), strict=True)],
        epoch_rows=first.epoch_rows,
        settings={**shared, **plan.result_settings(), "members": entries, "notes": notes},
        checkpoint=first.checkpoint,
        other_checkpoints=tuple(member.checkpoint for member in others),
    )


def plans(plan: Plan) -> list[Plan]:
    """Return the plan of each member."""
    members = plan.recipe.members
    recipe = replace(plan.recipe, members=1)
    return [replace(plan, seed=members * plan.seed + k, recipe=recipe) for k in range(members)]


def mean_row(rows: Sequence[Row]) -> Row:
    """Return the mean of each column over members' rows of one epoch; None if no member has a value."""
    mean: dict[str, Any] = {"epoch": rows[0]["epoch"]}
    for name in rows[0]:
        values = [row[name] for row in rows if row[name] is not None]
        if name != "epoch":
            mean[name] = fmean(values) if values else None
    return mean
