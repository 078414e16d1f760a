"""The tables of docs/reference/settings.md and params.md, and the file of the options of `trueodds serve`."""

from __future__ import annotations

import json

from benchmarks.markdown import table
from pipeline.config import SECTION_OF, descriptions, load
from service.settings import Settings
from tools import ROOT


def service() -> str:
    """Return one row per setting: its option, variable, default and meaning."""
    rows = [
        (
            f"--{name.replace('_', '-')}",
            f"TRUEODDS_{name.upper()}",
            "" if setting.default in (None, ()) else f"{setting.default}",
            setting.description or "",
        )
        for name, setting in Settings.model_fields.items()
    ]
    return table(("option", "variable", "default", "meaning"), rows, code=(0, 1, 2))


def serve_options() -> str:
    """Return the text of `service.cli.serve.OPTIONS`: the help of each setting, and whether it is a switch."""
    options = {}
    for name, setting in Settings.model_fields.items():
        default = "none" if setting.default in (None, "", ()) else setting.default
        words = f"{setting.description} (default: {default}; TRUEODDS_{name.upper()})"
        options[name] = {"help": words, "is_switch": setting.annotation is bool}
    return json.dumps(options, indent=1) + "\n"


def params() -> str:
    """Return one row per parameter of params.yaml: its name, its value in the repository and its meaning."""
    values, meanings = load(ROOT / "params.yaml"), descriptions()
    rows = [
        (f"{section}.{name}", json.dumps(getattr(getattr(values, section), name)), meanings[name])
        for name, section in SECTION_OF.items()
    ]
    return table(("parameter", "value", "meaning"), [(a, b, " ".join(c.split())) for a, b, c in rows], code=(0, 1))
