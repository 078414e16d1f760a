"""Artifacts of a run in Prefect's UI: progress during training, then the metrics, the diagram and the bundle's path."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    update_progress_artifact,
)

from trueodds.files import read_json

_ROWS = {
    "error_rate": "test error",
    "nll": "NLL (nats)",
    "brier": "Brier score",
    "ece": "ECE",
    "ece_estimate": "ECE, estimate",
    "mean_confidence": "mean confidence",
    "mce": "MCE",
}
_PERCENT = re.compile(r"(?P<what>[^:]*):\s*(?P<percent>\d{1,3})%\|")


class Progress:
    """Progress artifact that reads a stage's output. It is created when the first progress bar appears."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._artifact: UUID | None = None
        self._shown = -1

    def read(self, line: str) -> None:
        """Read the percentage from a line such as `training:  40%|####      | 12/30 [...]`."""
        match = _PERCENT.match(line)
        if match is None or int(match["percent"]) == self._shown:
            return
        self._shown = int(match["percent"])
        if self._artifact is None:
            key = f"progress-{re.sub('[^a-z0-9]+', '-', self._stage.lower())}"
            description = f"{self._stage}: {match['what'].strip()}"
            made = create_progress_artifact(float(self._shown), key=key, description=description)
            self._artifact = cast(UUID, made)  # a coroutine only if an event loop runs
        else:
            update_progress_artifact(self._artifact, float(self._shown))


def show_bundle(bundle: str, words: str) -> None:
    """Show where a published bundle is and what role it has. Not as a link, because browsers open no link to a file."""
    create_markdown_artifact(f"`{bundle}`\n\n{words}\n", key="bundle", description="The published bundle")


def show_remote(words: str) -> None:
    """Show whether DVC's remote has the run's outputs."""
    create_markdown_artifact(f"{words}\n", key="remote", description="DVC's remote")


def show_results(folder: Path, title: str) -> None:
    """Show the metrics and the diagram of a finished run. Missing outputs are left out."""
    evaluation = folder / "artifacts" / "evaluation"
    if (evaluation / "metrics.json").is_file():
        markdown = summary_markdown(read_json(evaluation / "metrics.json"), title)
        create_markdown_artifact(markdown, key="calibration", description="Test rows, before and after calibration")
    if (evaluation / "reliability.svg").is_file():
        picture = base64.b64encode((evaluation / "reliability.svg").read_bytes()).decode()
        create_markdown_artifact(
            f"![reliability diagram](data:image/svg+xml;base64,{picture})",
            key="reliability",
            description="Accuracy against confidence on the test rows",
        )


def summary_markdown(table: dict[str, Any], title: str) -> str:
    """Return metrics.json as a Markdown table, each ECE with its interval and noise floor."""
    before, after = table["before"], table["after"]
    lines = [f"# {title}", "", f"{table['n']:,} test rows, {table['bins']} bins; calibration errors are fractions", ""]
    lines += ["| | before calibration | after calibration |", "|---|---:|---:|"]
    ece = "ECE of the more probable class" if after.get("positive") else _ROWS["ece"]
    for key, words in (_ROWS | {"ece": ece}).items():
        lines.append(f"| {words} | {before[key]:.4f} | {after[key]:.4f} |")
        if key == "ece":
            interval = [f"{side['ece_lower']:.4f} .. {side['ece_upper']:.4f}" for side in (before, after)]
            floor = [f"{side['floor_mean']:.4f} ({side['floor_p95']:.4f})" for side in (before, after)]
            lines.append(f"| {table['level']:.0%} interval | {' | '.join(interval)} |")
            lines.append(f"| noise floor (95%) | {' | '.join(floor)} |")
    lines += _positive(before.get("positive"), after.get("positive"), table["level"])
    numbers = {k: v for k, v in table["calibrator"].items() if isinstance(v, int | float) and k != "fitted_classes"}
    words = ", ".join(f"{k} {v:.4g}" for k, v in numbers.items())
    lines += ["", f"Calibrator: **{table['calibrator']['calibrator']}**{' (' + words + ')' if words else ''}"]
    lines += [
        "",
        *(f"> {note}\n" for note in table["notes"]),
        *_comparison(table["compared"], table["level"], ece),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _positive(before: dict[str, Any] | None, after: dict[str, Any] | None, level: float) -> list[str]:
    """Return the rows about p(positive) for a model with a positive class. All other rows are about the top class."""
    if not before or not after:
        return []
    name = f"p({after['class']})"
    rows = {
        f"prevalence of {after['class']}": "{prevalence:.4f}",
        f"mean {name}": "{mean_probability:.4f}",
        f"ECE of {name}": "{ece:.4f}",
        f"{level:.0%} interval": "{ece_lower:.4f} .. {ece_upper:.4f}",
        "noise floor (95%)": "{floor_mean:.4f} ({floor_p95:.4f})",
    }
    return [f"| {words} | {form.format(**before)} | {form.format(**after)} |" for words, form in rows.items()]


def _comparison(others: dict[str, Any], level: float, ece: str) -> list[str]:
    """Return the calibrators measured for comparison. `ece` is the header of their calibration error."""
    if not others:
        return []
    lines = ["## Other calibrators", "", f"| calibrator | test error | NLL (nats) | {ece} | {level:.0%} interval |"]
    lines.append("|---|---:|---:|---:|---|")
    for name, one in others.items():
        if one.get("problem"):
            lines.append(f"| {name} | {one['problem']} | | | |")
        else:
            interval = f"{one['ece_lower']:.4f} .. {one['ece_upper']:.4f}"
            lines.append(f"| {name} | {one['error_rate']:.4f} | {one['nll']:.4f} | {one['ece']:.4f} | {interval} |")
    return lines
