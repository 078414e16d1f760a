"""Names of the methods, for commands that load nothing else."""

from __future__ import annotations

from typing import Literal

Method = Literal["lac", "aps", "raps", "class"]

METHODS: dict[Method, str] = {
    "lac": "all classes whose probability is at least one threshold: the smallest sets on average",
    "aps": "the most probable classes until their sum reaches a threshold, with a random last one",
    "raps": "aps with a penalty for many classes, which makes large sets smaller",
    "class": "lac with a threshold for each class, so that each class is covered",
}
"""Methods, with what each one does."""
RANKED: tuple[Method, ...] = ("aps", "raps")
"""Methods that add up sorted probabilities. They need three classes."""
LEVEL = 0.9
"""Default level: the share of sets that hold the true class."""
