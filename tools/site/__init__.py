"""The documentation site: Sphinx over docs/, with API pages from the docstrings. `make site` builds it."""

from tools import ROOT

REPOSITORY = "https://github.com/trueodds/trueodds"
"""Address of the code; links of a page to files outside the site lead there."""
SOURCE = ROOT / ".run" / "site-source"
"""Folder of the site's source: copies of the pages, with the API pages beside them."""
SITE = ROOT / ".run" / "site"
"""Folder of the built site."""
