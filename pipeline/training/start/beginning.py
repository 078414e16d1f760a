"""The net as it is before the first step, and the rows that it learns from."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pipeline.data.dataset import DataSet
from pipeline.nets.net import Net
from pipeline.nets.text import net_of
from pipeline.training.batches import normalised
from pipeline.training.plan import Plan
from pipeline.training.start import features, pretrained

log = logging.getLogger("pipeline.training")


@dataclass(frozen=True)
class Beginning:
    """net: all of it. learner: what is trained of it on `rows`: the net, or its head on the features of the rows.

    settings, notes: what the model's card says of weights that were given.
    """

    net: Net
    learner: Net
    rows: DataSet
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, data: DataSet, plan: Plan, device: torch.device, folder: Path) -> Beginning:
        """Initial weights come from torch's global generator, seeded here, or from the plan's start.

        Raises:
            WeightsError: weights that cannot be had, or of another net.
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
                data = normalised(data, settings)
        net = net.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
        if not plan.head_alone:
            return cls(net, net, data, settings, notes)
        rows = features.features_of(data, net, device, folder)
        return cls(net, features.Head(net.head), rows, settings, notes)


def initial(plan: Plan, data: DataSet) -> Net:
    """The plan's net for these rows, its weights drawn by the plan's seed."""
    torch.manual_seed(plan.seed)
    return net_of(plan.net, data)
