"""The view of a report in a notebook: its numbers beside its diagram, as HTML without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from trueodds.drawing.picture import CHART, DARK, LIGHT, read_css

_DARK_NOTEBOOKS = "[data-jp-theme-light=false] .trueodds,.vscode-dark .trueodds,html[theme=dark] .trueodds"
"""Selectors of JupyterLab, Notebook 7, Visual Studio Code and Colab. Their theme may differ from the system's."""
_LIGHT_NOTEBOOKS = "[data-jp-theme-light=true] .trueodds,.vscode-light .trueodds"
_STYLE = (
    f".trueodds{{{LIGHT}}}@media (prefers-color-scheme:dark){{.trueodds{{{DARK}}}}}"
    f"{_LIGHT_NOTEBOOKS}{{{LIGHT}}}{_DARK_NOTEBOOKS}{{{DARK}}}"
    f".trueodds{{{read_css(Path(__file__).parent / 'notebook.css')}{CHART}}}"
)


def notebook_html(
    title: str,
    table: Iterable[tuple[str, str, str, str]],
    reading: str,
    drawing: str,
    levels: Sequence[tuple[str, ...]] = (),
) -> str:
    """Lay out a table of (name, value, interval, note) beside the element `svg` of a drawing.

    There is no script. The colours follow the notebook's light or dark theme. `levels` is a second table, whose first
    row names its columns.
    """
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="value">{escape(value)}</td><td>{escape(interval)}</td>'
        f'<td class="note">{escape(note)}</td></tr>'
        for name, value, interval, note in table
    )
    return (
        f'<div class="trueodds"><style>{_STYLE}</style><p>{escape(reading)}</p><div class="parts"><div class="numbers">'
        f'<p>{escape(title)}</p><table>{rows}</table>{_table(levels)}</div><div class="chart">{drawing}</div></div>'
        "</div>"
    )


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """Lay out a table whose first row names the columns; "" without rows."""
    if not rows:
        return ""
    head, *lines = rows
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{escape(line[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in line[1:])}</tr>'
        for line in lines
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
