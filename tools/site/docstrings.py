"""Hooks of Sphinx that turn our docstrings into pages, whatever characters they hold.

The docstrings are plain text with `code`, examples and Google's sections. They are no reStructuredText: a `*`, a `|` or
an indented line stands for itself.
"""

from __future__ import annotations

import inspect
import re
from copy import copy
from functools import cache
from typing import Any

from docutils.core import publish_doctree
from pydantic import BaseModel
from sphinx.application import Sphinx

from pipeline import config

ALIASES = (
    "ArrayLike",
    "npt.ArrayLike",
    "NDArray",
    "npt.NDArray",
    "GroupNames",
    "Labels",
    "Logits",
    "OptionValue",
    "Infer",
    "Input",
    "Tensor",
)
"""Type aliases that a signature shows by name."""
_CODE = re.compile(r"(``(?:[^`]|`(?!`))+``|`[^`]+`)")
_SPECIAL = re.compile(r"(\\|\*|\||`|(?<=\w)_(?=\W|$))")
_DIRECTIVE = re.compile(r"^\s*\.\. [\w:]+::.*$", re.MULTILINE)
_SECTION = re.compile(r"(Args|Attributes|Examples|Keyword Args|Note|Notes|Raises|References|Returns|Warns|Yields):\s*")
"""First line of a section in Google's style."""
_MEMBERS = ("attribute", "data", "property")
"""Kinds of object whose docstrings have no sections."""
_aside: dict[str, list[str]] = {}


def literal(code: str) -> str:
    """Return `code` in double backticks, with which nothing in it is markup."""
    return f"``{code.strip('`')}``"


def escaped(text: str) -> str:
    """Return a paragraph in which no character is markup, apart from `code`."""
    parts = _CODE.split(text)
    for k, part in enumerate(parts):
        if k % 2 == 0:
            parts[k] = _SPECIAL.sub(r"\\\1", part)
            continue
        before = "\\ " if re.search(r"[\w/]$", parts[k - 1]) else ""
        after = "\\ " if re.match(r"\w", parts[k + 1]) else ""
        parts[k] = before + literal(part) + after
    return "".join(parts)


def escape(lines: list[str]) -> list[str]:
    """Escape the text of a docstring, so that it is reStructuredText.

    Examples stay as they are, and get the empty line that they need before them. An indented paragraph outside the
    sections, such as a formula of several lines, becomes a literal block, which keeps its lines.
    """
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        begins = line.lstrip().startswith(">>>")
        example = bool(paragraphs[-1]) and paragraphs[-1][0].lstrip().startswith(">>>")
        if not line.strip() or (begins and not example):
            paragraphs.append([])
        if line.strip():
            paragraphs[-1].append(line)
    result: list[str] = []
    in_section = in_literal = False
    for paragraph in filter(None, paragraphs):
        text = "\n".join(paragraph)
        if not paragraph[0].startswith(" "):
            in_section = bool(_SECTION.fullmatch(paragraph[0]))
        if text.lstrip().startswith(">>>"):
            in_literal = False
            result += [*paragraph, ""]
        elif in_section or not all(line.startswith(" ") for line in paragraph):
            in_literal = False
            result += [*escaped(text).splitlines(), ""]
        else:
            result += [*([] if in_literal else ["::", ""]), *paragraph, ""]
            in_literal = True
    return result


@cache
def _settings() -> Any:
    """Return the settings of `is_clean`. To make them takes docutils as long as to read a docstring."""
    silent = {"report_level": 5, "halt_level": 6, "default_role": "literal"}
    return publish_doctree("", settings_overrides=silent).settings


def is_clean(lines: list[str]) -> bool:
    """Return whether docutils reads a text without a complaint."""
    text = _DIRECTIVE.sub("", re.sub(r":[\w:]+:`", "`", "\n".join(lines)))
    tree = publish_doctree(text, settings=copy(_settings()))
    return not any(message["level"] >= 2 for message in tree.findall(lambda node: node.tagname == "system_message"))


def as_lines(lines: list[str]) -> list[str]:
    """Return a text as it stands, each line a line: for a layout that is no markup, such as a table of ours."""
    return [f"| {line}" if line.strip() else "" for line in lines]


def on_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Escape a docstring, before Sphinx reads its sections."""
    lines[:] = escape(lines)
    if what in _MEMBERS:  # napoleon would take the words before a colon for a type
        _aside[name] = list(lines)
        lines[:] = [""]
    if inspect.isclass(value) and issubclass(value, BaseModel):
        lines += fields(value)


def fields(model: type[BaseModel]) -> list[str]:
    """Return a list of the fields of a pydantic model that have a description."""
    texts = config.descriptions() if model.__module__ == config.__name__ else {}
    described = [
        (name, text) for name, field in model.model_fields.items() if (text := field.description or texts.get(name))
    ]
    if not described:
        return []
    return ["", *(f"- `{name}`: {escaped(' '.join(text.split()))}" for name, text in described), ""]


def after_sections(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Show a docstring line by line if its layout would make Sphinx complain."""
    lines[:] = _aside.pop(name, lines)
    if not is_clean(lines):
        lines[:] = as_lines(lines)


def on_signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Leave out the signature of a pydantic model, which repeats its fields."""
    if inspect.isclass(value) and issubclass(value, BaseModel):
        return "", None
    return None


def connect(app: Sphinx) -> None:
    """Connect the hooks: one before napoleon, which reads the sections, and one after it."""
    app.connect("autodoc-process-docstring", on_docstring, priority=100)
    app.connect("autodoc-process-docstring", after_sections, priority=900)
    app.connect("autodoc-process-signature", on_signature)
