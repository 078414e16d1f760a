"""Label bundle: a servable model of independent yes/no labels, one sigmoid for each, in a folder.

It has the files of a bundle of exclusive classes. Its card says `multilabel`, and its probabilities do not sum to 1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from trueodds.bundle.card import Description
from trueodds.bundle.contents import CALIBRATOR, CARD, BundleError
from trueodds.bundle.model_card import SHOWN, inline_code, markdown_table, training_section
from trueodds.bundle.stored_bundle import GoldenRow, StoredBundle, read_card, write_files
from trueodds.calibrators import MultilabelPlatt, Platt
from trueodds.files import naming, read_json
from trueodds.inputs import Inputs
from trueodds.sums.inputs import Array
from trueodds.texts import quotes

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


@dataclass(frozen=True)
class LabelBundle(StoredBundle[MultilabelPlatt]):
    """A loaded bundle of independent labels whose hashes are checked. `card.classes` are the labels.

    Examples:
        >>> from trueodds.bundle import LabelBundle
        >>> try:
        ...     LabelBundle.load("no/such/folder")
        ... except trueodds.UserError as error:
        ...     print(str(error).partition(";")[0])
        no/such/folder/card.json is missing: no/such/folder is not a complete bundle
    """

    def probabilities_of(self, logits_NC: npt.ArrayLike) -> Array:
        """Compute the calibrated probability of each label (N, L) from the model's logits (N, L)."""
        return self.calibrator.apply(np.asarray(logits_NC, np.float64))

    def binary_calibrators(self) -> tuple[Platt, ...]:
        """Return the curve of each label as a calibrator of two classes, false and true.

        On the logits (0, z) it gives (1 - p, p) with p = sigma(a z + b).
        """
        slopes, offsets = np.asarray(self.calibrator.slope_L), np.asarray(self.calibrator.offset_L)
        return tuple(
            Platt([-b, b], [a, a], fitted_classes=2) for a, b in zip(slopes.tolist(), offsets.tolist(), strict=True)
        )

    @classmethod
    def write(
        cls,
        out: str | Path,
        model: str | Path,
        calibrator: MultilabelPlatt,
        description: Description,
        *,
        golden_input: Inputs,
        golden_logits: npt.ArrayLike,
        trial: Callable[[LabelBundle], object] | None = None,
    ) -> LabelBundle:
        """Write a bundle to the folder `out`, the card last, and load it.

        Args:
            out: Folder of the bundle. It is created if it does not exist.
            model: ONNX graph from inputs (N, ...) of the description's kind to logits (N, L). It is copied.
            calibrator: Calibrator of the labels.
            description: Parts of the card that are not computed here, with `multilabel`.
            golden_input: One input, with the shape and dtype of its kind.
            golden_logits: The model's logits (L,) for it. Every later load of the model must reproduce them.
            trial: Called with the bundle before it takes its place. If it raises, `out` is unchanged.

        Returns:
            The loaded bundle.

        Raises:
            BundleError: The description is one of exclusive classes, or the labels of the calibrator differ.
            InputError: The golden input has another dtype.
            OSError: The model cannot be read, or `out` cannot be written.
        """
        out, z_L = Path(out), np.asarray(golden_logits, np.float64)
        out.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder,
            naming(out, aside := Path(folder)),
        ):
            golden = GoldenRow(golden_input, z_L, calibrator.apply(z_L))
            page = label_card(description, calibrator)
            write_files(aside, model, calibrator.to_json(), description, page, golden)
            whole = cls.load(aside)
            whole.check_golden(lambda _: z_L[None])
            if trial is not None:
                trial(whole)
            return whole.move_to(out)

    @classmethod
    def load(cls, directory: str | Path, place: str | None = None) -> LabelBundle:
        """Read a bundle of independent labels, and check its card, the SHA-256 of its files and its calibrator.

        Args:
            directory: Folder of the bundle.
            place: Name of the folder in messages, if its files come from elsewhere.

        Raises:
            BundleError: A file is missing or altered, the card is not valid, or it is one of exclusive classes.
        """
        directory = Path(directory)
        place = place or str(directory)
        card, version = read_card(directory, place)
        if not card.multilabel:
            raise BundleError(f"{place} holds a model of exclusive classes; read it with trueodds.Bundle.load")
        try:
            calibrator = MultilabelPlatt.from_json(read_json(directory / CALIBRATOR))
        except ValueError as error:
            raise BundleError(f"{place}/{CALIBRATOR}: {error}") from None
        if calibrator.labels != tuple(card.classes):
            problem = f"{place}/{CALIBRATOR} is of the labels {quotes(calibrator.labels)}, but {CARD} names"
            raise BundleError(f"{problem} {quotes(card.classes)}: put back the calibrator of this model")
        return cls(directory, card, calibrator, version)


def label_card(description: Description, calibrator: MultilabelPlatt) -> str:
    """Return the text of MODEL_CARD.md, of the card and the calibrator alone. Equal arguments give equal texts."""
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
