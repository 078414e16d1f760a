"""The view of a report in a notebook: its numbers beside its diagram, as HTML without scripts."""

from __future__ import annotations

from collections.abc import Iterable
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


def notebook_html(title: str, table: Iterable[tuple[str, str, str, str]], reading: str, drawing: str) -> str:
    """Lay out a table of (name, value, interval, note) beside the element `svg` of a drawing.

    There is no script. The colours follow the notebook's light or dark theme.
    """
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="value">{escape(value)}</td><td>{escape(interval)}</td>'
        f'<td class="note">{escape(note)}</td></tr>'
        for name, value, interval, note in table
    )
    return (
        f'<div class="trueodds"><style>{_STYLE}</style><p>{escape(reading)}</p><div class="parts"><div class="numbers">'
        f'<p>{escape(title)}</p><table>{rows}</table></div><div class="chart">{drawing}</div></div></div>'
    )
