"""MODEL_CARD.md of a model of independent labels. It contains no more than the card and the calibrator."""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml

from trueodds.bundle.card import Description
from trueodds.bundle.model_card import SHOWN, inline_code, markdown_table, training_section
from trueodds.calibrators import MultilabelPlatt

POOLED = {
    "nll": "log loss",
    "brier": "Brier score, 0 to 1",
    "ece": "ECE",
    "ece_estimate": "ECE without what chance adds",
    "prevalence": "share of true pairs",
    "mean_probability": "mean probability",
}
"""Pooled figures in the card, by their names in a multi-label report."""
OF_LABEL = {"labelled": "rows", "positives": "true", "nll": "log loss", "brier": "Brier", "ece": "ECE"}
"""Figures of each label."""


def label_card(description: Description, calibrator: MultilabelPlatt) -> str:
    """Return the text of the file. Equal arguments give equal texts."""
    sections = {
        "Intended use": _use(description),
        "Training data and method": training_section(description),
        "Metrics": _metrics(description, calibrator),
        "Limitations": _limitations(description, calibrator),
        "How to load it": _LOADING,
    }
    front = yaml.safe_dump(
        {
            "library_name": "trueodds",
            "pipeline_tag": description.input.task,
            "tags": ["trueodds", "calibration", "onnx", "multi-label"],
        },
        sort_keys=False,
    )
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    return f"---\n{front}---\n\n# {description.name}\n\n{body}\n"


def _use(description: Description) -> str:
    kind, labels = description.input, description.classes
    listed = ", ".join(map(inline_code, labels[:SHOWN]))
    more = f", and {len(labels) - SHOWN} more, which `card.json` lists" if len(labels) > SHOWN else ""
    return (
        f"Gives each {kind.noun} ({inline_code(kind.size)}) a calibrated probability for each of {len(labels)}"
        f" labels: {listed}{more}.\nEach label is a yes/no question of its own. Several can be true, and the"
        " probabilities of an input need not add up to 1."
    )


def _metrics(description: Description, calibrator: MultilabelPlatt) -> str:
    metrics = description.metrics
    before, after = metrics.get("before"), metrics.get("after")
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return "No metrics were given when the bundle was written."
    rows_of = "live labelled answers" if "recalibration" in description.training else "test rows"
    head = ("all labels", "before calibration", "after")
    pooled = [(words, *(_number(one["whole"].get(name)) for one in (before, after))) for name, words in POOLED.items()]
    slopes, offsets = np.asarray(calibrator.slope_L).tolist(), np.asarray(calibrator.offset_L).tolist()
    rows = []
    for place, one in enumerate(after["by_label"][:SHOWN]):
        numbers = [_number(one.get(name)) for name in OF_LABEL]
        marked = "yes" if one.get("more_than_chance") else "no"
        rows.append((inline_code(one["name"]), _number(slopes[place]), _number(offsets[place]), *numbers, marked))
    of_labels = ("label", "slope", "offset", *OF_LABEL.values(), "off by more than chance")
    return "\n".join(
        [
            f"Measured on {metrics['n']:,} {rows_of} with {after['pairs']:,} known truths. The fit did not see them.",
            "",
            markdown_table(head, pooled),
            "",
            "After calibration, by label; p = sigma(slope z + offset):",
            "",
            markdown_table(of_labels, rows),
            "",
            "Marks are by Holm's procedure: if all labels are calibrated, at most 5% of tables have one.",
        ]
    )


def _limitations(description: Description, calibrator: MultilabelPlatt) -> str:
    lines = [
        *dict.fromkeys([*description.notes, *calibrator.warnings]),
        "The figures are those of the test rows. They say nothing about inputs from elsewhere or later ones.",
        "A missing truth must not depend on the truth itself. No figure can correct this.",
        "No metric was measured by group of people or by subgroup of the inputs.",
    ]
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


def _number(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if isinstance(value, float) else "-"


_LOADING = """\
`FOLDER` is the folder of this file.

```python
import onnxruntime
import trueodds

bundle = trueodds.load("FOLDER")
session = onnxruntime.InferenceSession(bundle.model_path)
inputs = bundle.card.input.feed(bundle.golden_input(), [tensor.name for tensor in session.get_inputs()])
probabilities = bundle.probabilities_of(session.run(None, inputs)[0])
```

To serve it: `trueodds publish --bundle FOLDER`, then `trueodds serve`."""
