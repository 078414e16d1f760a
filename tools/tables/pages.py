"""The generated blocks of the pages.

A block stands between `<!-- name -->` and `<!-- end -->`. `python -m tools.tables` (`make docs`) rewrites every block
of every page from benchmarks/results/ and from the code. tests/docs/test_generated.py fails if one is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks.markdown import table
from pipeline.cli.nets import HEADER, nets_table
from pipeline.cli.tables import calibrators_table, methods_table, recipes_table
from tools import ROOT
from tools.tables import commands, report_fields, routes, settings
from tools.tables.claims import CLAIMS
from tools.tables.engine_costs import engine_costs
from tools.tables.results import COMMANDS, result_table

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def claims_table() -> str:
    """Return the claims of docs/explanation/claims.md."""
    rows = [
        (
            claim.claim,
            claim.text(claim.condition),
            f"[{claim.text(claim.figure)}](results.md#{claim.section})",
            f"`{claim.command}`",
            claim.text(claim.failure),
        )
        for claim in CLAIMS
    ]
    return table(("claim", "condition", "figure", "command", "where it fails"), rows)


def short_claims() -> str:
    """Return the claims of README.md, one line each."""
    return "\n".join(
        f"- {claim.claim}: [{claim.text(claim.figure)}](docs/explanation/results.md#{claim.section})"
        f" ({claim.text(claim.condition)})."
        for claim in CLAIMS
        if claim.short
    )


CODE: dict[str, Callable[[], str]] = {
    "methods": lambda: table(("name", "options, or parts and their settings", "source"), methods_table(), code=(0, 1)),
    "recipes": lambda: table(("recipe", "settings", "purpose"), recipes_table(), code=(0,)),
    "nets": lambda: table(HEADER, nets_table(), code=(0,)),
    "calibrators-list": lambda: table(("name", "options", "formula"), calibrators_table(), code=(0, 1)),
    "service-settings": settings.service,
    "http-routes": routes.summary,
    "http-details": routes.details,
    "report-fields": report_fields.report,
    "params": settings.params,
    "commands": commands.sections,
    "claims": claims_table,
    "measured": short_claims,
    "engine-costs": engine_costs,
}
"""Blocks that come from the code, or from several results."""
BLOCK = re.compile(r"<!-- ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def refresh(text: str) -> str:
    """Return the text with every marked block rewritten.

    Raises:
        KeyError: A block's name is not that of a table.
    """

    def block(match: re.Match[str]) -> str:
        name = match[1]
        content = CODE[name]() if name in CODE else f"`{COMMANDS[name]}`\n\n{result_table(name)}"
        return f"<!-- {name} -->\n\n{content}\n\n<!-- end -->"

    return BLOCK.sub(block, text)
