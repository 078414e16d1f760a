"""Colours and rules of the drawings, and the frame of a picture in a file: title, panels side by side, legend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

_FOLDER = Path(__file__).parent


def read_css(path: Path) -> str:
    """Read a style sheet without its blanks, which are a tenth of a page."""
    text = re.sub(r"^[ \t]+", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.sub(r":\s+", ":", re.sub(r"\s*([{};,])\s*", r"\1", text))


PALETTE = read_css(_FOLDER / "palette.css")
LIGHT, DARK = re.findall(r":root\{(.*?)\}", PALETTE)
"""Declarations of the colours as variables."""
CHART = read_css(_FOLDER / "chart.css")
"""Rules of the drawings in these colours, for the content of an element with the class `chart`."""
HATCHING = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><path class="hatching" d="M0 0v6"/></pattern></defs>\n'
)
"""Pattern of over-confidence, once per document."""
_IN_A_FILE = read_css(_FOLDER / "picture.css")
_FONT = 'font-family="system-ui,sans-serif"'
MARGIN = 16.0
LINE = 17.0
"""Height of a line of text."""
LETTER = 7.0
"""Largest mean width of a letter."""
KEY = 26.0
"""Width of a legend's mark with the space after it."""


@dataclass(frozen=True)
class Panel:
    """One plot of a picture."""

    width: float
    height: float
    content: str
    """Elements of SVG, whose origin is the panel's upper left corner."""
    caption: Sequence[str] = ()
    """Lines above the plot."""


@dataclass(frozen=True)
class LegendEntry:
    """Entry of a legend."""

    mark: str
    """Elements of SVG, within 18 x 12 units."""
    text: str


def picture(title: str, panels: Sequence[Panel], legend: Sequence[LegendEntry] = ()) -> str:
    """Frame the panels as a file, in light or dark colours. It has no CSS variables, which only browsers support."""
    width = sum(panel.width for panel in panels) + MARGIN * (len(panels) + 1)
    lines = wrap(title, round((width - 2 * MARGIN) / (1.3 * LETTER)))
    top = MARGIN + 1.4 * LINE * len(lines)
    below = top + LINE * max(len(panel.caption) for panel in panels)
    parts = [f'<text class="title" x="{MARGIN}" y="{MARGIN + 1.4 * LINE * k + 10:g}">{escape(text)}</text>'
             for k, text in enumerate(lines)]  # fmt: skip
    x = MARGIN
    for panel in panels:
        parts += [f'<text class="caption" x="{x:g}" y="{top + LINE * k + 10:g}">{escape(text)}</text>'
                  for k, text in enumerate(panel.caption)]  # fmt: skip
        parts.append(f'<g transform="translate({x:g} {below:g})">\n{panel.content}\n</g>')
        x += panel.width + MARGIN
    entries, bottom = _legend(legend, width, below + max(panel.height for panel in panels) + MARGIN)
    height = bottom + MARGIN
    return f"""<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="{width:g}" height="{height:g}" \
viewBox="0 0 {width:g} {height:g}" role="img" {_FONT}>
<title>{escape(title)}</title>
<style>{_rules()}</style>
{HATCHING}<rect class="ground" width="100%" height="100%"/>
{"".join(f"{part}{chr(10)}" for part in [*parts, *entries])}</svg>
"""


def alone(drawing: str, width: float, height: float) -> str:
    """Turn an element `svg` into a file of its own, in the same colours."""
    start = f'<svg class="chart" width="{width:g}" height="{height:g}" {_FONT}'
    rules = f'<style>{_rules()}</style><rect class="ground" width="100%" height="100%"/>'
    return drawing.replace("<svg", start, 1).replace("<title>", f"{rules}<title>", 1) + "\n"


def _rules() -> str:
    """Return the rules with colours instead of variables. The dark colours apply if a viewer requests them."""

    def with_colours(declarations: str) -> str:
        colours = dict(re.findall(r"(--[\w-]+):([^;]+)", declarations))
        return re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], CHART + _IN_A_FILE)

    return f"{with_colours(LIGHT)}@media (prefers-color-scheme:dark){{{with_colours(DARK)}}}"


def _legend(legend: Sequence[LegendEntry], width: float, y: float) -> tuple[list[str], float]:
    """Arrange the entries in lines as wide as the picture, and return y below them."""
    parts, x = [], MARGIN
    for entry in legend:
        needed = KEY + LETTER * len(entry.text)
        if x > MARGIN and x + needed > width - MARGIN:
            x, y = MARGIN, y + 1.3 * LINE
        mark = f'<g transform="translate({x:g} {y - 10:g})">{entry.mark}</g>'
        parts.append(f'{mark}<text x="{x + KEY:g}" y="{y:g}">{escape(entry.text)}</text>')
        x += needed + MARGIN
    return parts, y
