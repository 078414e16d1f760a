"""MODEL_CARD.md: the card in words, in the format of Hugging Face's model cards. It contains no more than the card.

https://huggingface.co/docs/hub/model-cards (YAML front matter, then sections)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from trueodds.bundle.act_alone import UNTAGGED_GROUP
from trueodds.bundle.card import Description, Reference
from trueodds.calibrators import Calibrator, origin

SHOWN = 20
"""Largest number of classes, or of groups, that are listed. The bundle has all of them."""
THRESHOLDS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Confidences in the table of selective prediction."""
NAMES = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "brier": "Brier score, multi-class",
    "ece": "ECE",
    "adaptive_ece": "adaptive ECE",
    "classwise_ece": "class-wise ECE",
    "mce": "MCE",
    "ks_error": "KS calibration error",
    "smooth_ece": "smooth ECE",
    "mean_confidence": "mean confidence",
    "signed_gap": "signed gap, accuracy less mean confidence",
}
"""Metrics in the card, by their names in the table of an evaluation."""

Numbers = Mapping[str, Any]


def model_card(description: Description, calibrator: Calibrator, reference: Reference | None) -> str:
    """Return the text of the file. Equal arguments give equal texts."""
    sections = {
        "Intended use": _use(description),
        "Training data and method": training_section(description),
        "Metrics": _metrics(description),
        "Calibration": _calibration(description, calibrator, reference),
        **_sets(description),
        **_acting(description),
        "Limitations": _limitations(description, calibrator),
        "How to load it": _loading(calibrator),
    }
    front = yaml.safe_dump(_front_matter(description), sort_keys=False, allow_unicode=True)
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    return f"---\n{front}---\n\n# {description.name}\n\n{body}\n"


def _front_matter(description: Description) -> dict[str, Any]:
    task = description.input.task
    front: dict[str, Any] = {
        "library_name": "trueodds",
        "pipeline_tag": task,
        "tags": ["trueodds", "calibration", "onnx"],
    }
    after = _table(description, "after")
    if after and description.data_sha256:
        metrics = [{"type": name, "name": NAMES[name], "value": after[name]} for name in NAMES if name in after]
        dataset = {
            "type": description.name,
            "name": _rows(description),
            "revision": description.data_sha256,
        }
        result = {"task": {"type": task}, "dataset": dataset, "metrics": metrics}
        front["model-index"] = [{"name": description.name, "results": [result]}]
    return front


def _use(description: Description) -> str:
    kind, classes = description.input, description.classes
    listed = ", ".join(map(inline_code, classes[:SHOWN]))
    more = f", and {len(classes) - SHOWN} more, which `card.json` lists" if len(classes) > SHOWN else ""
    lines = [
        f"Gives each {kind.noun} ({inline_code(kind.size)}) a calibrated probability for each of {len(classes)}"
        f" classes: {listed}{more}.",
        "The probabilities add up to 1 over these classes, also for an input that belongs to none of them.",
    ]
    if description.ordered:
        lines.insert(1, "The classes are levels, the lowest first.")
    if description.positive is not None:
        lines.insert(1, f"The positive class is {inline_code(description.positive)}.")
    return "\n".join(lines)


def training_section(description: Description) -> str:
    """Return the section on training data and method."""
    lines = [f"Method: {inline_code(description.method)}."]
    for name, digest in (("data", description.data_sha256), ("code", description.code_sha256)):
        if digest:
            lines.append(f"SHA-256 of the {name}: {inline_code(digest)}.")
    if description.training:
        lines += [
            "",
            "```yaml",
            yaml.safe_dump(description.training, sort_keys=False, allow_unicode=True).rstrip(),
            "```",
        ]
    return "\n".join(lines)


def _acting(description: Description) -> dict[str, str]:
    """Return the section on a promise to act alone; no section without one."""
    promise = description.act_alone
    if promise is None:
        return {}
    lines = [promise.words, promise.evidence]
    if promise.tags:
        rows = [
            (inline_code(tag or UNTAGGED_GROUP), "never acts" if at is None else f"{at:.6g}")
            for tag, at in promise.tags.items()
        ]
        rows.append(("any other", "never acts" if promise.threshold is None else f"{promise.threshold:.6g}"))
        lines += ["", markdown_table(("tag", "acts from"), rows)]
    lines += [
        "",
        "It holds as long as the confidences above the threshold and their error rate stay the same. The service"
        " watches this with the labels of answers that acted.",
    ]
    return {"Acting alone": "\n".join(lines)}


def _sets(description: Description) -> dict[str, str]:
    """Return the section on conformal sets; no section without them."""
    if description.sets is None:
        return {}
    rows = []
    for place, rule in enumerate(description.sets.rules):
        measured = description.sets.test[place] if description.sets.test else None
        on_test = ("-", "-", "-")
        if measured is not None:
            lower, upper = measured.interval()
            shares = [hits / n for hits, n in zip(measured.class_hits, measured.class_rows, strict=True) if n]
            coverage = f"{measured.coverage:.2%} ({lower:.2%} to {upper:.2%})"
            on_test = (coverage, f"{measured.mean_size:.2f}", f"{min(shares):.2%}")
        rows.append((f"{rule.level:.6g}", f"{min(rule.floors):.4f}", *on_test))
    first = description.sets.rules[0]
    lines = [
        f"Method: {inline_code(first.method)}, on {first.calibration_rows:,} rows that did not fit the calibrator. A"
        " set of a level holds the true class with that probability, for rows of the same population.",
        "",
        markdown_table(
            ("level", "lowest sound coverage", "test coverage, 95% interval", "mean size", "lowest class"), rows
        ),
        "",
        "The level is the coverage on average over calibrations and rows. The coverage of one calibration is above the"
        " lowest sound coverage in 95% of calibrations. It may be lower for one class, one kind of input or one set"
        " size. A set may be empty.",
    ]
    for rule in description.sets.rules:
        if rule.unlimited_classes and rule.method == "class":
            few = ", ".join(inline_code(description.classes[k]) for k in rule.unlimited_classes[:SHOWN])
            lines.append(f"In every set of level {rule.level:g}, because they have too few calibration rows: {few}.")
    return {"Conformal sets": "\n".join(lines)}


def _metrics(description: Description) -> str:
    before, after = (_table(description, moment) for moment in ("before", "after"))
    if not after:
        return "No metrics were given when the bundle was written."
    level = description.metrics.get("level")
    interval = f" with intervals of {level:.0%}" if isinstance(level, float) else ""
    bins = description.metrics.get("bins")
    binned = f" Binned errors have {bins} bins." if isinstance(bins, int) else ""
    rows = [
        (NAMES[name], _value(name, before), _value(name, after)) for name in NAMES if name in before or name in after
    ]
    table = markdown_table(("metric", "before calibration", "after"), rows)
    return f"Measured on {_rows(description)}{interval}.{binned}\n\n{table}"


def _calibration(description: Description, calibrator: Calibrator, reference: Reference | None) -> str:
    after = _table(description, "after")
    whose = origin(calibrator)
    source = "" if whose is None else f" of the distribution {whose.name}, version {whose.version}"
    lines = [
        f"Calibrator: {inline_code(calibrator.name)}{source}, in `calibrator.json`. It is applied to the logits of"
        " `model.onnx`."
    ]
    if calibrator.known_groups:
        lines += _by_group(calibrator)
    if whose is not None:
        lines.append(f"To load this bundle, install it: `pip install '{whose.requirement}'`.")
    of_positive, label = _numbers(description.metrics.get("after"), "positive"), description.positive
    if label is not None and {"mean_probability", "prevalence"} <= of_positive.keys():
        p, mean, share = inline_code(f"p({label})"), of_positive["mean_probability"], of_positive["prevalence"]
        lines.append(f"{p} is {mean:.2%} on average, and {share:.2%} of the rows are {inline_code(label)}.")
        lines += _against_chance(of_positive, f" of {p}")
    lines += _against_chance(after, " of the more probable class" if of_positive else "")
    if reference is not None:
        lines.append(
            f"Mean confidence on the {reference.rows:,} rows that live answers are compared with: {reference.mean:.4f}."
        )
    if (curve := description.risk_coverage) is not None:
        points = [curve.at(threshold) for threshold in THRESHOLDS]
        rows = [
            (
                f"{point.threshold:.2f}",
                f"{point.coverage:.1%} of {point.rows:,}",
                "-" if point.risk is None else f"{point.risk:.2%} ({point.risk_lower:.2%} to {point.risk_upper:.2%})",
            )
            for point in points
        ]
        head = ("confidence above", "answered", "wrong answers, 95% interval")
        lines += [
            "",
            f"Selective prediction: answers only above a confidence ({curve.split} rows):",
            "",
            markdown_table(head, rows),
        ]
    return "\n".join(lines)


def _by_group(calibrator: Calibrator) -> list[str]:
    """Say which groups the calibrator knows, and that the graph does not contain it."""
    known, more = calibrator.known_groups[:SHOWN], len(calibrator.known_groups) - SHOWN
    names = ", ".join(map(inline_code, known)) + (f" and {more:,} more" if more > 0 else "")
    return [
        f"It reads the tag of each request and has a temperature for each of these: {names}. Inputs without a tag, or"
        " with another one, get the temperature of all rows. The calibrator is not a part of the graph.",
    ]


def _against_chance(numbers: Numbers, whose: str) -> list[str]:
    """Compare the ECE with its noise floor, and state the test of calibration.

    `whose` names the quantity, or is empty.
    """
    lines = []
    if {"ece", "floor_mean", "floor_p95"} <= numbers.keys():
        where = "within" if numbers["ece"] <= numbers["floor_p95"] else "above"
        lines.append(
            f"On the same number of rows, a perfectly calibrated model would show an ECE{whose} of"
            f" {numbers['floor_mean']:.4f} on average, and more than {numbers['floor_p95']:.4f} in 1 of 20 cases. This"
            f" model's ECE, {numbers['ece']:.4f}, is {where} that."
        )
    if "calibration_p_value" in numbers:
        lines.append(f"A test of calibration{whose} has p = {numbers['calibration_p_value']:.3g}.")
    return lines


def _limitations(description: Description, calibrator: Calibrator) -> str:
    lines = list(dict.fromkeys([*description.notes, *calibrator.warnings]))
    if _table(description, "after"):
        lines.append(
            f"The metrics are those of {_rows(description)}. They say nothing about inputs from elsewhere or"
            " later ones. A service with labels reports on these: `/calibration-report`."
        )
    lines.append("No metric was measured by group of people or by subgroup of the inputs.")
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


def _loading(calibrator: Calibrator) -> str:
    known = calibrator.known_groups
    groups = f", groups=[{known[0]!a}]" if known else ""
    return f"""\
`FOLDER` is the folder of this file.

```python
import onnxruntime
import trueodds

bundle = trueodds.Bundle.load("FOLDER")
session = onnxruntime.InferenceSession(bundle.model_path)
inputs = bundle.card.input.feed(bundle.golden_input(), [tensor.name for tensor in session.get_inputs()])
probabilities = bundle.calibrator(session.run(None, inputs)[0]{groups})
```

To serve it: `trueodds publish --bundle FOLDER`, then `trueodds serve`."""


def _table(description: Description, moment: str) -> Numbers:
    """Return the numbers of the evaluation before or after the calibrator, without values that are not numbers."""
    return _numbers(description.metrics, moment)


def _numbers(tree: Any, name: str) -> Numbers:
    """Return the numbers of a part of a tree; empty if there is no part of this name."""
    table = tree.get(name) if isinstance(tree, Mapping) else None
    if not isinstance(table, Mapping):
        return {}
    return {name: value for name, value in table.items() if isinstance(value, int | float)}


def _rows(description: Description) -> str:
    n = description.metrics.get("n")
    split = description.risk_coverage.split if description.risk_coverage else "held-out"
    return f"{n:,} {split} rows" if isinstance(n, int) else f"{split} rows"


def _value(name: str, numbers: Numbers) -> str:
    if name not in numbers:
        return "-"
    ends = (numbers.get(f"{name}_lower"), numbers.get(f"{name}_upper"))
    if name == "accuracy" and "error_rate_lower" in numbers:
        ends = (1 - numbers["error_rate_upper"], 1 - numbers["error_rate_lower"])
    lower, upper = ends
    return f"{numbers[name]:.4f}" + ("" if lower is None or upper is None else f" ({lower:.4f} to {upper:.4f})")


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def inline_code(text: str) -> str:
    """Return inline code, whatever the text contains."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"
