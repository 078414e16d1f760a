"""Installed distributions for tests: a folder with a package and its metadata, as pip leaves them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

BLEND = '''
"""A calibrator."""
from dataclasses import dataclass
from typing import ClassVar

import trueodds
from trueodds.metrics import nll, softmax


@dataclass(frozen=True, eq=False)
class Blend(trueodds.Calibrator):
    """Blend with the uniform distribution, p = (1 - w) softmax(z) + w / C."""

    weight: float
    name: ClassVar[str] = "blend"
    is_regularised: ClassVar[bool] = True
    joins_select: ClassVar[bool] = True

    @property
    def keeps_argmax(self):
        return True

    @classmethod
    def fit(cls, logits_NC, labels_N, *, steps=20):
        weights = [step / steps for step in range(steps)]
        return cls(min(weights, key=lambda weight: nll(cls(weight)(logits_NC), labels_N)))

    def _apply(self, logits_NC):
        p_NC = softmax(logits_NC)
        return (1 - self.weight) * p_NC + self.weight / p_NC.shape[1]
'''


def install(
    folder: Path, name: str, files: dict[str, str], entry_points: dict[str, dict[str, str]], version: str = "1.0"
) -> Path:
    """Write a distribution into a folder for Python's path, and return the folder.

    `files` are its modules by path. `entry_points` has for each group the values by name.
    """
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(dedent(text))
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{entry} = {value}\n" for entry, value in entries.items())
        for group, entries in entry_points.items()
    )
    (about / "entry_points.txt").write_text("\n".join(groups))
    return folder


def install_blend(folder: Path, name: str = "odds-blend", entry: str = "blend") -> Path:
    """Install a distribution that registers the calibrator of BLEND."""
    files = {"odds_blend/__init__.py": "", "odds_blend/blend.py": BLEND}
    return install(folder, name, files, {"trueodds.calibrators": {entry: "odds_blend.blend:Blend"}})
