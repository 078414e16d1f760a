"""The picture of the page on decision models and forecasts: the state of each question, day by day.

`python -m tools.decisions_picture` writes it from the result of benchmarks/evidence/decision_models.py.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tools import ROOT
from tools.tables.results import read
from trueodds.drawing.axis import Across, n
from trueodds.drawing.picture import LegendEntry, Panel, picture

OUT = ROOT / "docs" / "decision-models.svg"
"""The committed picture."""
LEFT, WIDTH, BAR, SPACE = 130.0, 560.0, 20.0, 14.0
STATES = {
    "waiting": ("chance", "not known yet"),
    "fine": ("under", "within the tolerance"),
    "leans": ("accuracy", "perhaps off"),
    "off": ("over", "off"),
    "alarm": ("before", "alarm"),
    "acknowledged": ("before", "alarm"),
}
"""Class of the drawings and words of each state."""


def drawing() -> str:
    """Return the picture as SVG, of the first run."""
    result = read("decision_models")
    run = result["runs"][0]
    days = result["days"] + result["delay"]
    across = Across(0, days, LEFT, WIDTH)
    questions = sorted({row["question"] for row in run["timeline"]})
    bottom = (BAR + SPACE) * len(questions)
    parts = [across.grid(0, bottom)]
    for k, question in enumerate(questions):
        rows = [row for row in run["timeline"] if row["question"] == question]
        parts += _bars(question, rows, days, (BAR + SPACE) * k + SPACE / 2, across)
    parts.append(f'<text class="m label" x="{n(LEFT + WIDTH / 2)}" y="{n(bottom + 40)}">day of the replay</text>')
    seen = {row["state"] for row in run["timeline"]}
    entries = {
        words: LegendEntry(f'<path class="{look}" d="M0 0h18v12h-18z"/>', words)
        for state, (look, words) in STATES.items()
        if state in seen
    }
    legend = [*entries.values(), LegendEntry('<path class="other line" d="M9 -2V14"/>', "another model is served")]
    panel = Panel(LEFT + WIDTH + 20, bottom + 50, "\n".join(parts))
    title = "Five questions under watch: the state of each, day by day"
    return picture(
        title, [panel], legend, "One bar for each question, coloured by the state of its report on each day."
    )


def _bars(question: str, rows: list[dict[str, Any]], days: int, y: float, across: Across) -> list[str]:
    """Draw the bar of a question: a piece from each change of its state to the next, and the changes of its model."""
    parts = [f'<text class="e" x="{n(LEFT - 10)}" y="{n(y + BAR - 5)}">{question.replace("_", " ")}</text>']
    ends = [row["day"] - 1 for row in rows[1:]] + [days]
    for row, end in zip(rows, ends, strict=True):
        left, look = across(row["day"] - 1), STATES[row["state"]][0]
        parts.append(f'<path class="{look}" d="M{n(left)} {n(y)}H{n(across(end))}V{n(y + BAR)}H{n(left)}z"/>')
    for before, after in pairwise(rows):
        if before["served"] != after["served"]:
            parts.append(f'<path class="other line" d="M{n(across(after["day"] - 1))} {n(y - 4)}v{n(BAR + 8)}"/>')
    return parts


if __name__ == "__main__":
    OUT.write_text(drawing(), encoding="utf-8")
    print(f"written: {OUT.relative_to(ROOT)}")
