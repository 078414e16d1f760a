"""Colours and rules of the drawings: for the page, for a notebook's cell, for a picture in a file."""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = Path(__file__).parent


def squeezed(path: Path) -> str:
    """A style sheet without its blanks: a tenth of a page."""
    text = re.sub(r"^[ \t]+", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.sub(r":\s+", ":", re.sub(r"\s*([{};,])\s*", r"\1", text))


PALETTE = squeezed(_FOLDER / "palette.css")
LIGHT, DARK = re.findall(r":root\{(.*?)\}", PALETTE)
"""Declarations of the colours as variables."""
CHART = squeezed(_FOLDER / "chart.css")
"""Rules of the drawings, in these colours: of what lies in an element of the class `chart`."""


def picture(drawing: str) -> str:
    """An element `svg` as a file of its own: light, on white, without variables, which browsers alone know."""
    colours = dict(re.findall(r"(--[\w-]+):([^;]+);", LIGHT))
    rules = re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], CHART)
    start = '<svg class="chart" style="background:#fff;font-family:system-ui,sans-serif" width="500" height="588"'
    return drawing.replace("<svg", start, 1).replace("<title>", f"<style>{rules}</style><title>", 1) + "\n"
