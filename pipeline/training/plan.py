"""A resolved training run: everything that decides its result except the data, in one frozen value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.methods.composition import Composition
from pipeline.nets.shape import Shape
from pipeline.training.recipe import Recipe


@dataclass(frozen=True)
class InitialWeights:
    """Initial weights, as a plan names them.

    Attributes:
        source: Path of a file, or `torchvision:` and the full name of the weights.
        sha256: SHA-256 of the file. For torchvision's weights, its first digits, which the file name contains.
    """

    source: str
    sha256: str


@dataclass(frozen=True)
class Plan:
    """Input of the training loop: no value is null, every name is resolved, and invalid settings have been refused.

    `pipeline.training.resolution.plan_of` makes it from params.yaml.

    Attributes:
        net: Shape of the net.
        recipe: Settings of the optimisation.
        method: The training method.
        seed: Seed of the weights, the order of the rows and the augmentation.
        device: auto, cpu or cuda; the loop resolves it on the machine where it runs.
        curves: Epochs at which every row is measured.
        code: Source file -> SHA-256 of the code of this run (`pipeline.training.provenance`), and the same for the
            methods and nets that other distributions register (`trueodds.processes.extensions`).
        start: Initial weights; None means random ones.
        epoch_metrics: Extra metrics of every epoch.
        distributions: Other distributions that the run needs, as pip takes them.
    """

    net: Shape
    recipe: Recipe
    method: Composition
    seed: int
    device: str
    curves: tuple[int, ...]
    code: Mapping[str, str]
    start: InitialWeights | None = None
    epoch_metrics: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()

    @property
    def head_alone(self) -> bool:
        """Whether only the head learns, and rows never change, so that features can be computed once."""
        recipe = self.recipe
        moved = recipe.padding or recipe.flip or recipe.crop_scale or recipe.randaugment
        return recipe.freeze == "body" and not moved and not self.method.changes_rows

    def result_settings(self) -> dict[str, Any]:
        """Return the settings of the training, as a model's card holds them."""
        return {
            "recipe": asdict(self.recipe),
            "method": self.method.to_json(),
            "net": asdict(self.net),
            "seed": self.seed,
            **({} if self.start is None else {"start": asdict(self.start)}),
            **({"distributions": list(self.distributions)} if self.distributions else {}),
            "code_sha256": fingerprint(self.code),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the whole plan. Two plans with equal JSON make the same net from the same data."""
        measured = {"curves": list(self.curves), "epoch_metrics": list(self.epoch_metrics)}
        return {**self.result_settings(), "device": self.device, **measured, "code": dict(self.code)}


def fingerprint(tree: Any) -> str:
    """Return the SHA-256 of a JSON-like value, independent of key order."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
