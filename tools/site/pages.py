"""The source of the site: docs/ and the pages of the repository's root, with links that work in the site.

The pages themselves hold nothing of Sphinx, so that a plain Git host shows them as well as the site does.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from tools import ROOT
from tools.site import REPOSITORY

DOCS = ROOT / "docs"
PROJECT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
"""Pages of the repository's root that the site shows too."""
KINDS = {
    "tutorials": "Tutorials",
    "how-to": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
}
"""Folders of docs/, and their captions in the sidebar."""
UNLISTED = ("explanation/results.md",)
"""Pages outside the sidebar: the claims link to them."""
PICTURES = (".png", ".svg")
"""Suffixes of files that the site shows, wherever they lie in the repository."""
LINK = re.compile(r"(\[[^\]]*\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def places() -> dict[Path, Path]:
    """Return each page of the site: its file in the repository, and its place in the site."""
    pages = {page: page.relative_to(DOCS) for page in sorted(DOCS.rglob("*.md"))}
    pages |= {ROOT / name: Path("project", name.lower()) for name in PROJECT if (ROOT / name).exists()}
    return pages


def site_link(target: str, page: Path, pages: dict[Path, Path]) -> str:
    """Return a link of a page as it must be in the site; files that the site lacks are linked in the repository."""
    name, hash_sign, anchor = target.partition("#")
    if not name or re.match(r"\w+:", name):
        return target
    file = Path(os.path.normpath(page.parent / name))
    if file in pages:
        return os.path.relpath(pages[file], pages[page].parent) + hash_sign + anchor
    if file.is_relative_to(DOCS) and file.is_file():
        return target
    if file.suffix in PICTURES:
        return os.path.relpath(Path("pictures", file.name), pages[page].parent)
    kind = "tree" if file.is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{file.relative_to(ROOT)}{hash_sign}{anchor}"


def site_text(page: Path, pages: dict[Path, Path]) -> str:
    """Return a page's text with its links rewritten; code blocks stay as they are."""
    parts = FENCE.split(page.read_text(encoding="utf-8"))
    for k in range(0, len(parts), 2):
        parts[k] = LINK.sub(lambda link: link[1] + site_link(link[2], page, pages) + link[3], parts[k])
    return "".join(parts)


def pictures(page: Path) -> list[Path]:
    """List the pictures of a page that lie outside docs/."""
    targets = [target for _, target, _ in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    files = [Path(os.path.normpath(page.parent / target)) for target in targets if Path(target).suffix in PICTURES]
    return [file for file in files if not file.is_relative_to(DOCS)]


def order(index: str) -> list[str]:
    """List the pages that the first page links to, in its order."""
    return [target.partition("#")[0] for _, target, _ in LINK.findall(index)]


def toctree(caption: str, pages: list[str]) -> str:
    """Return a hidden table of contents, which furo shows in the sidebar."""
    listing = "\n".join(pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listing}\n```\n"


def contents(pages: list[str], index: str) -> str:
    """Return the tables of contents of the site: one for each kind of page, in the order of the first page's links."""
    linked = order(index)
    ranks = {page: k for k, page in enumerate(reversed(linked), start=1)}
    pages = sorted(pages, key=lambda page: (-ranks.get(page, 0), page))
    trees = []
    for folder, caption in KINDS.items():
        listed = [page for page in pages if page.startswith(f"{folder}/")]
        if folder == "reference":
            listed.insert(0, "reference/api/index")
        if listed:
            trees.append(toctree(caption, listed))
    loose = [page for page in pages if page.partition("/")[0] not in (*KINDS, "project", "index.md")]
    if loose:
        trees.append(toctree("More pages", loose))
    project = [page for page in pages if page.startswith("project/")]
    if project:
        trees.append(toctree("Project", project))
    return "".join(trees)


def stage(source: Path) -> None:
    """Copy docs/ into the source of the site, with the tables of contents at the end of its first page."""
    pages = places()
    shutil.copytree(DOCS, source, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    names = [str(place) for place in pages.values()]
    (source / "pictures").mkdir(exist_ok=True)
    for page, place in pages.items():
        text = site_text(page, pages)
        for picture in pictures(page):
            shutil.copy(picture, source / "pictures")
        if place == Path("index.md"):
            text += contents([name for name in names if name not in UNLISTED], text)
        if str(place) in UNLISTED:
            text = f"---\norphan: true\n---\n\n{text}"
        (source / place).parent.mkdir(parents=True, exist_ok=True)
        (source / place).write_text(text, encoding="utf-8")
