"""A training run, resolved: everything that decides its result but the data, in one frozen value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.methods.composition import Composition
from pipeline.nets.net import Shape
from pipeline.training.recipe import Recipe


@dataclass(frozen=True)
class Start:
    """Weights to begin with, as a plan names them.

    source: a file's path, or torchvision: and the full name of its weights. sha256: of the file; of torchvision's the
    first digits, which its file's name states.
    """

    source: str
    sha256: str


@dataclass(frozen=True)
class Plan:
    """The training loop's input: no null is left, every name is resolved, and what does not fit was refused.

    `pipeline.training.resolution.plan_of` makes it from params.yaml.
    device: auto, cpu or cuda; the loop finds it on the machine where it runs.
    curves: the epochs that are measured row by row. epoch_metrics: what is measured of every epoch, besides.
    start: given weights; None: they are drawn.
    code: source file -> SHA-256, of the code that this run is made by (`pipeline.training.provenance`).
    """

    net: Shape
    recipe: Recipe
    method: Composition
    seed: int
    device: str
    curves: tuple[int, ...]
    code: Mapping[str, str]
    start: Start | None = None
    epoch_metrics: tuple[str, ...] = ()

    @property
    def head_alone(self) -> bool:
        """Whether only the head learns, and from rows that are the same in every epoch: their features are, too."""
        recipe = self.recipe
        moved = recipe.padding or recipe.flip or recipe.crop_scale or recipe.randaugment
        return recipe.freeze == "body" and not moved and not self.method.changes_rows

    def result_settings(self) -> dict[str, Any]:
        """The settings of the training, as a model's card holds them."""
        return {
            "recipe": asdict(self.recipe),
            "method": self.method.to_json(),
            "net": asdict(self.net),
            "seed": self.seed,
            **({} if self.start is None else {"start": asdict(self.start)}),
            "code_sha256": fingerprint(self.code),
        }

    def to_json(self) -> dict[str, Any]:
        """All of it, file by file: two plans of equal JSON make the same net of the same data."""
        measured = {"curves": list(self.curves), "epoch_metrics": list(self.epoch_metrics)}
        return {**self.result_settings(), "device": self.device, **measured, "code": dict(self.code)}


def fingerprint(tree: Any) -> str:
    """SHA-256 of a JSON-like value, independent of key order."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
