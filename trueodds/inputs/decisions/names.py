"""Names of questions, served models and options in the store, and the hash that identifies a question's wording."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any

from trueodds.texts import NAME

MAX_NAME = 128
"""Longest name of a model or a version."""
MAX_SERVED = 100
"""Longest part of a version's name that is the served model's."""
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


def digest_of(value: Any) -> str:
    """Return the first 8 hex digits of a hash of a JSON value.

    Raises:
        RecursionError: The value is nested too deeply.
    """
    return hashlib.blake2b(json.dumps(value, separators=(",", ":")).encode(), digest_size=4).hexdigest()


def model_name(name: str, longest: int = MAX_NAME) -> str:
    """Return the name under which the store keeps a question.

    A name of letters, digits, `.`, `_` and `-` stays. In any other name these characters are kept, and a hash of the
    whole name is added. So different names stay different.

    Args:
        name: Name of a question, or of a served model.
        longest: Longest result, in characters.

    Examples:
        >>> model_name("is_spam"), model_name("is it spam?")
        ('is_spam', 'is-it-spam-2f204ec2')
    """
    if len(name) <= longest and re.fullmatch(NAME, name):
        return name
    plain = unicodedata.normalize("NFKD", name[: 4 * longest])
    readable = _OTHER.sub("-", plain)[: longest - 9].strip("-._")
    return f"{readable or 'question'}-{digest_of(name)}"


def version_name(model: str, wording: str) -> str:
    """Return the version of a question: the served model and the hash of the wording.

    Examples:
        >>> version_name("jev-2", "0a1b2c3d"), version_name("acme/jev:2", "0a1b2c3d")
        ('jev-2-0a1b2c3d', 'acme-jev-2-24842efd-0a1b2c3d')
    """
    return f"{model_name(model, MAX_SERVED)}-{wording}"


def class_names(options: list[str | bool]) -> tuple[str, ...]:
    """Return the class names of options. They are different, printable, and without blanks at their ends.

    A boolean is named `true` or `false`. If a text of the options has the same name, both say what they are. A text
    that cannot be a class name is written as in JSON.

    Examples:
        >>> class_names(["ham", "spam"]), class_names([True, False]), class_names([True, "true"])
        (('ham', 'spam'), ('true', 'false'), ('boolean true', 'text true'))
    """
    texts = {option for option in options if isinstance(option, str)}
    mixed = texts & {str(option).lower() for option in options if isinstance(option, bool)}
    return tuple(_class_name(option, mixed) for option in options)


def _class_name(option: str | bool, doubles: set[str]) -> str:
    if isinstance(option, bool):
        name = str(option).lower()
        return f"boolean {name}" if name in doubles else name
    if option in doubles:
        return f"text {option}"
    return option if option and option.isprintable() and option == option.strip() else json.dumps(option)
