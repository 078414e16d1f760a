"""The net before the first step, and the rows that it learns from."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pipeline.data.dataset import DataSet
from pipeline.nets.net import Net
from pipeline.nets.text import net_of
from pipeline.training.batches import with_moments
from pipeline.training.plan import Plan
from pipeline.training.start import features, pretrained

log = logging.getLogger("pipeline.training")


@dataclass(frozen=True)
class Beginning:
    """The beginning of a run.

    Attributes:
        net: The whole net.
        learner: The part that is trained on `rows`: the net, or its head on the features of the rows.
        rows: The data set.
        settings: Entries about initial weights for the model's card.
        notes: Notes about initial weights for the model's card.
    """

    net: Net
    learner: Net
    rows: DataSet
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, data: DataSet, plan: Plan, device: torch.device, folder: Path) -> Beginning:
        """Make the net with random weights, or with the plan's initial weights.

        Random weights come from torch's global generator, which is seeded here.

        Raises:
            WeightsError: The initial weights cannot be read or downloaded, or belong to another net.
        """
        net = initial(plan, data)
        settings: dict[str, Any] = {}
        notes: list[str] = []
        if plan.start is not None:
            weights = pretrained.read(plan.start)
            notes = [weights.note, pretrained.load(net, dict(weights.state), plan.start.source)]
            for note in notes:
                log.info(note)
            settings["start"] = {"source": plan.start.source, "sha256": weights.sha256}
            if weights.normalise is not None:
                settings["normalise"] = weights.normalise
                data = with_moments(data, settings)
        net = net.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
        if not plan.head_alone:
            return cls(net, net, data, settings, notes)
        rows = features.features_of(data, net, device, folder)
        return cls(net, features.Head(net.head), rows, settings, notes)


def initial(plan: Plan, data: DataSet) -> Net:
    """Return the plan's net for these rows, with random weights from the plan's seed."""
    torch.manual_seed(plan.seed)
    return net_of(plan.net, data)
