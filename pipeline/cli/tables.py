"""Tables of the methods, recipes and calibrators that params.yaml can name.

Imports stand inside the functions: the table of calibrators needs no torch.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import get_args

from pipeline.cli import common
from trueodds.cli import Subparsers
from trueodds.processes import extensions


def methods_table() -> list[tuple[str, str, str]]:
    """Return (name, options, source) of every part and preset. A `+name` can follow a primary loss."""
    from pipeline import methods
    from pipeline.methods.compose import META, META_CHOICES, PENALTY
    from pipeline.methods.roles import When

    rows = []
    parts = methods.parts()
    for name, part in parts.items():
        options = {**part.options(), **part.defaults}
        about = "; ".join(filter(None, [part.source, extensions.source("methods", name)]))
        rows.append((name if part.role == "primary" else f"+{name}", _options(options), about))
    rows.append(("+<penalty>", _options(PENALTY), f"options of every penalty; when: {', '.join(get_args(When))}"))
    meta = ", ".join(name for name, part in parts.items() if part.role == "meta")
    choices = "; ".join(f"{key}: {', '.join(META_CHOICES[key])}" for key in ("lookahead", "optimizer", "variant"))
    outer = "outer: ce, a penalty with its options, or both as in ce+dece, the second times outer_weight"
    rows.append(("+<meta part>", _options(META), f"options of {meta}; {outer}; {choices}"))
    for name, preset in methods.presets().items():
        combined = f"{preset.parts}: {_options(preset.options)}" if preset.options else preset.parts
        recipe = f"; recipe: {_options(preset.recipe)}" if preset.recipe else ""
        about = "; ".join(filter(None, [preset.source, extensions.source("methods", name)]))
        rows.append((name, combined + recipe, about))
    return rows


def methods_text() -> str:
    """Return the table of methods as text."""
    return _columns([("method", "options", "source"), *methods_table()])


def recipes_text() -> str:
    """Return the table of recipes as text."""
    return _columns([("recipe", "settings", "purpose"), *recipes_table()])


def recipes_table() -> list[tuple[str, str, str]]:
    """Return (name, settings, purpose) of every recipe."""
    from pipeline.training.recipes import RECIPES

    rows = []
    for name, named in RECIPES.items():
        r = named.recipe
        net = r.net or "a net of your choice"
        how = f"{net}, {r.epochs} epochs, batch {r.batch_size}, {r.optimizer} {r.learning_rate:g} {r.schedule}"
        about = f"{named.about}. Also set {named.beside}" if named.beside else named.about
        if named.paper_nets:
            about = f"{about}. Nets of its tables: {named.paper_nets}"
        rows.append((name, f"{how}, {'last epoch' if r.selection == 'last' else f'best {r.selection}'}", about))
    return rows


def calibrators_text() -> str:
    """Return the table of calibrators as text."""
    return _columns([("calibrator", "options", "description"), *calibrators_table()])


def calibrators_table() -> list[tuple[str, str, str]]:
    """Return (name, options of its fit, description) of every calibrator, and of `select`."""
    from trueodds import calibrators
    from trueodds.calibrators.selection import default_words

    rows = []
    for name in calibrators.names():
        first_paragraph = (calibrators.get(name).__doc__ or "").split("\n\n")[0]
        about = " ".join(first_paragraph.split())
        first = re.match(r".*?(?<!al)[.](?= |$)", about)  # not the full stop of "et al."
        whose = calibrators.origin(calibrators.get(name))
        source = "" if whose is None else f" From {whose}."
        rows.append((name, _options(calibrators.options(name)), (first[0] if first else about) + source))
    rows.append(
        (
            calibrators.SELECT,
            "candidates=..., folds=5",
            f"The candidate with the lowest cross-validated NLL. By default from {default_words()}.",
        )
    )
    return rows


TABLES = {
    "methods": (methods_text, "Lists the values of training.method: parts with options and sources, and short forms."),
    "recipes": (
        recipes_text,
        "Lists the values of training.recipe: a net with its optimizer, schedule and epochs.",
    ),
    "calibrators": (calibrators_text, "Lists the values of calibration.calibrator, with their options."),
}


def add_parser(commands: Subparsers) -> None:
    for name, (text, about) in TABLES.items():
        parser = commands.add_parser(name, description=about, epilog=common.examples(name))
        parser.set_defaults(text=text)


def run(arguments: argparse.Namespace) -> int:
    print(arguments.text())
    return 0


def _options(options: Mapping[str, object]) -> str:
    """Return `key=value, ...`. A number without a short form, such as 2/7, gets three digits."""
    texts = {
        key: f"{value:.3g}" if isinstance(value, float) and len(str(value)) > 8 else value
        for key, value in options.items()
    }
    return ", ".join(f"{key}={text}" for key, text in texts.items()) or "-"


def _columns(rows: list[tuple[str, str, str]]) -> str:
    """Return rows as aligned columns."""
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{a:<{first}}  {b:<{second}}  {c}".rstrip() for a, b, c in rows)
