"""Tables of what can be named in params.yaml."""

from __future__ import annotations

from pipeline import methods
from pipeline.recipes import RECIPES


def methods_table() -> list[tuple[str, str, str]]:
    """(name, parts and options, source) of every part and preset."""
    rows = []
    for name, part in methods.PARTS.items():
        options = ", ".join(f"{key}={value}" for key, value in part.options().items())
        rows.append((name, options or "-", part.source))
    for name, preset in methods.PRESETS.items():
        options = ", ".join(f"{key}={value}" for key, value in preset.options.items())
        rows.append((name, f"{preset.parts}: {options}", preset.source))
    return rows


def methods_text() -> str:
    return _columns([("method", "options", "source"), *methods_table()])


def recipes_text() -> str:
    rows = [(name, f"{r.net}, {r.epochs} epochs, batch {r.batch_size}", r.about) for name, r in RECIPES.items()]
    return _columns([("recipe", "net and length", "what for"), *rows])


def _columns(rows: list[tuple[str, str, str]]) -> str:
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{a:<{first}}  {b:<{second}}  {c}".rstrip() for a, b, c in rows)
