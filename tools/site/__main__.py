"""Build the site: `python -m tools.site` writes .run/site. It needs no network, and exits with 1 after a warning."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.site import SITE, SOURCE, api
from tools.site.pages import stage


def build(source: Path, site: Path) -> int:
    """Build the site from scratch and return Sphinx's exit status: 1 after a warning."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(site, ignore_errors=True)
    api.write(source / api.FOLDER)
    stage(source)
    status: int = build_main(["-q", "-W", "--keep-going", "-d", f"{source}-doctrees", str(source), str(site)])
    return status


def main() -> int:
    """Build the site and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=SOURCE, help="folder for the source that Sphinx reads")
    parser.add_argument("--site", type=Path, default=SITE, help="folder for the built site")
    arguments = parser.parse_args()
    status = build(arguments.source, arguments.site)
    if status == 0:
        print(f"open {arguments.site / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
