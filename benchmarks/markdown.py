"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, code: Sequence[int] = ()) -> str:
    """Return rows under a header. Columns in `code` are set as code, in which `-` is an empty cell."""
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for row in rows:
        cells = [cell.replace("|", "\\|") for cell in row]
        cells = [_code(cell) if column in code else cell for column, cell in enumerate(cells)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _code(cell: str) -> str:
    """Return a cell as code."""
    return "" if cell in ("", "-") else f"`{cell}`"
