"""Colours and rules of the drawings, and the frame of a picture in a file: title, panels side by side, legend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
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


def picture(title: str, panels: Sequence[Panel], legend: Sequence[LegendEntry] = (), description: str = "") -> str:
    """Frame the panels as a file, in light or dark colours. It has no CSS variables, which only browsers support.

    `description` is escaped already.
    """
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
    content = f"""{HATCHING}<rect class="ground" width="{width:g}" height="{height:g}"/>
{"".join(f"{part}{chr(10)}" for part in [*parts, *entries])}"""
    return f"""<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="{width:g}" height="{height:g}" \
viewBox="0 0 {width:g} {height:g}" role="img" {_FONT}>
<title>{escape(title)}</title>
{f"<desc>{description}</desc>{chr(10)}" if description else ""}<style>{_rules()}</style>
{_with_attributes(content)}</svg>
"""


def _with_colours(declarations: str) -> str:
    """Return the rules with colours instead of variables."""
    colours = dict(re.findall(r"(--[\w-]+):([^;]+)", declarations))
    return re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], CHART + _IN_A_FILE)


def _rules() -> str:
    """Return the rules of a file. The dark colours apply if a viewer requests them."""
    return f"{_with_colours(LIGHT)}@media (prefers-color-scheme:dark){{{_with_colours(DARK)}}}"


def _with_attributes(content: str) -> str:
    """Add the rules in light colours to each element as attributes, for viewers that read no style sheet.

    A style sheet takes precedence over these attributes, so browsers still show the dark colours.
    """
    rules = _light_rules()

    def attributes(match: re.Match[str]) -> str:
        classes = re.search(r'class="([^"]*)"', match[0])
        names = classes[1].split() if classes else []
        found: dict[str, str] = {}
        for tag, class_, declarations in rules:
            if tag in ("", match[1]) and (not class_ or class_ in names):
                found |= declarations
        return match[0] + "".join(f' {name}="{value}"' for name, value in found.items())

    return re.sub(r"<(path|text|rect)\b[^>]*?(?=/?>)", attributes, content)


@lru_cache(maxsize=1)
def _light_rules() -> list[tuple[str, str, dict[str, str]]]:
    """Return (element, class, declarations) of the rules for paths, texts and rectangles, the strongest last."""
    rules = []
    for selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", _with_colours(LIGHT)):
        tag, _, class_ = selector.rpartition(" ")[2].partition(".")
        if tag != "svg":
            strength = (selector.count("."), bool(tag))
            rules.append((strength, tag, class_, dict(re.findall(r"([\w-]+):([^;]+)", body))))
    return [rule[1:] for rule in sorted(rules, key=lambda rule: rule[0])]


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
