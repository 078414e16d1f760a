"""A picture in README.md: its first result, before and after calibration.

`python -m tools.readme_picture` writes it.
"""

from __future__ import annotations

import numpy as np

from pipeline.config import Evaluation
from tools import ROOT
from trueodds import calibrators
from trueodds.drawing.reliability import before_and_after
from trueodds.evaluation.measurement import measure
from trueodds.metrics import softmax

OUT = ROOT / "docs" / "before-and-after.svg"
"""The committed picture."""


def drawing() -> str:
    """Return the picture as SVG: one model whose logits are twice too large, and the same model calibrated."""
    rng = np.random.default_rng(0)
    logits_NC = rng.normal(0, 3, (5000, 10))
    labels_N = np.array([rng.choice(10, p=p_C) for p_C in softmax(logits_NC / 2)])
    calibrator = calibrators.fit(logits_NC[:2500], labels_N[:2500])
    settings = Evaluation()
    before, after = (
        measure(one, logits_NC[2500:], labels_N[2500:], settings) for one in (calibrators.Identity(), calibrator)
    )
    return before_and_after(before, after, settings, "An over-confident model, before and after calibration")


if __name__ == "__main__":
    OUT.write_text(drawing(), encoding="utf-8")
    print(f"written: {OUT.relative_to(ROOT)}")
