"""The pages, and the blocks of them that are generated.

A block stands between `<!-- name -->` and `<!-- end -->`. `python -m tools.tables` (`make docs`) writes every block of
every page anew, from benchmarks/results/ and from the code; tests/docs/test_generated.py fails when one is stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pipeline.cli.nets import HEADER, nets_table
from pipeline.cli.tables import calibrators_table, methods_table, recipes_table
from tools import ROOT
from tools.tables import commands, report_fields, routes, settings
from tools.tables.claims import CLAIMS
from tools.tables.markdown import table
from tools.tables.results import COMMANDS, shown

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def claims_table() -> str:
    """The claims of docs/explanation/claims.md."""
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
    """The claims of README.md, a line each."""
    return "\n".join(
        f"- {claim.claim}: [{claim.text(claim.figure)}](docs/explanation/results.md#{claim.section})"
        f" ({claim.text(claim.condition)})."
        for claim in CLAIMS
        if claim.short
    )


CODE: dict[str, Callable[[], str]] = {
    "methods": lambda: table(("name", "options, or parts and their settings", "source"), methods_table(), code=(0, 1)),
    "recipes": lambda: table(("recipe", "how", "for"), recipes_table(), code=(0,)),
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
}
"""Blocks made from the code, or from several results."""
BLOCK = re.compile(r"<!-- ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def refreshed(text: str) -> str:
    """The text with every marked block made anew.

    Raises:
        KeyError: a block whose name is not that of a table.
    """

    def block(match: re.Match[str]) -> str:
        name = match[1]
        content = CODE[name]() if name in CODE else f"`{COMMANDS[name]}`\n\n{shown(name)}"
        return f"<!-- {name} -->\n\n{content}\n\n<!-- end -->"

    return BLOCK.sub(block, text)
