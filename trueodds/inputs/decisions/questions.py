"""Reads the questions of a request, in both formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trueodds.inputs.decisions.names import class_names, digest_of, model_name
from trueodds.texts import quotes, short

Kind = Literal["binary", "choice", "score"]
KINDS: dict[str, dict[str, Kind]] = {
    "decisions": {"predicate": "binary", "choice": "choice", "score": "score"},
    "systemone": {"noul": "binary", "choice": "choice", "score": "score"},
}
"""Kind of a question, by format and by type on the wire."""
BINARY = ("false", "true")
"""Classes of a question that is answered with yes or no."""
POSITIVE = "true"
MAX_OPTIONS = 1000
MAX_TEXT = 256
"""Longest name of a question, in characters."""


class QuestionError(ValueError):
    """A question cannot be read. The message gives what was sent, what is allowed, and what to do."""


@dataclass(frozen=True)
class Question:
    """One typed question of a request.

    The wording is the type, the instructions and the options. Another wording is another version of the question.
    """

    name: str
    """Name as it was sent. An unnamed question is named `question-` and the hash of its wording."""
    is_named: bool
    type: str
    """Type on the wire, such as `noul`."""
    kind: Kind
    classes: tuple[str, ...]
    """Class names. For a score they are its levels in their order."""
    options: tuple[Any, ...]
    """Options as they were sent, in the order of the classes: texts or booleans; the texts of a score's levels."""
    wording: str
    """First 8 hex digits of the hash of type, instructions and options."""

    @property
    def model(self) -> str:
        """Name of the question in the store, the `model` of its reports."""
        return model_name(self.name)

    @property
    def positive(self) -> str | None:
        """Positive class of a question that is answered with yes or no."""
        return POSITIVE if self.kind == "binary" else None

    @property
    def is_ordered(self) -> bool:
        """Whether the classes are levels in an order."""
        return self.kind == "score"


def question_of(shape: str, name: Any, tree: Any) -> Question:
    """Read a question.

    Args:
        shape: Format: `decisions` or `systemone`.
        name: Name of the question; None if it has none.
        tree: The question as it was sent.

    Raises:
        QuestionError: The question cannot be read.
    """
    if not isinstance(tree, dict):
        raise QuestionError(f"the question is {short(tree)}; expected an object with type and instructions")
    if name is not None and not (isinstance(name, str) and len(name) <= MAX_TEXT):
        raise QuestionError(f"the name is {short(name)}; expected a text of at most {MAX_TEXT} characters")
    type_, instructions = tree.get("type"), tree.get("instructions")
    kind = KINDS[shape].get(type_) if isinstance(type_, str) else None
    if kind is None:
        known = ", ".join(KINDS[shape])
        raise QuestionError(f"the type is {short(type_)}; known types are {known}. Leave this question out")
    assert isinstance(type_, str)
    if not isinstance(instructions, str | None):
        raise QuestionError(f"instructions is {short(instructions)}; expected a text")
    read = {"decisions": _listed_options, "systemone": _keyed_options}[shape]
    options, described = read(kind, tree)
    if not 2 <= len(options) <= MAX_OPTIONS and kind != "binary":
        field = _FIELDS[shape, kind]
        raise QuestionError(f"{field} has {len(options):,} entries; expected 2 to {MAX_OPTIONS:,}")
    try:
        wording = digest_of([type_, instructions or "", described])
    except RecursionError:
        raise QuestionError("the question is nested too deeply; expected texts and lists of objects") from None
    return Question(
        name=name or f"question-{wording}",
        is_named=bool(name),
        type=type_,
        kind=kind,
        classes=_classes(shape, kind, options),
        options=tuple(options),
        wording=wording,
    )


_FIELDS = {
    ("decisions", "choice"): "choices",
    ("decisions", "score"): "levels",
    ("systemone", "choice"): "criteria",
    ("systemone", "score"): "criteria",
}


def _classes(shape: str, kind: Kind, options: list[Any]) -> tuple[str, ...]:
    if kind == "binary":
        return BINARY
    if kind == "choice":
        return class_names(options)
    if shape == "decisions" and len(set(options)) == len(options):
        return class_names(options)
    return tuple(map(str, range(len(options))))  # the answer says from which number its levels count


def _listed_options(kind: Kind, tree: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the options of a question of `decisions`, and their description for the hash."""
    if kind == "binary":
        return [False, True], None
    field, key = ("choices", "value") if kind == "choice" else ("levels", "label")
    entries = tree.get(field)
    if not isinstance(entries, list):
        raise QuestionError(
            f'a {kind} needs {field}, but they are {short(entries)}; expected a list such as [{{"{key}": ..}}, ..]'
        )
    allowed: type | tuple[type, ...] = (str, bool) if kind == "choice" else str
    what = "a text, true or false" if kind == "choice" else "a text"
    options = list[Any]()
    for entry in entries[: MAX_OPTIONS + 1]:
        option = entry.get(key) if isinstance(entry, dict) else entry
        if not isinstance(entry, dict) or not isinstance(option, allowed):
            raise QuestionError(f"{field} holds {short(entry)}; expected an object whose {key} is {what}")
        options.append(option)
    _check_different(field, options if kind == "choice" else [])
    described = [[type(o).__name__, o, e.get("description")] for o, e in zip(options, entries, strict=False)]
    return options, described


def _keyed_options(kind: Kind, tree: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the options of a question of `systemone`, and their description for the hash."""
    criteria = tree.get("criteria")
    if kind == "binary":
        if criteria is not None and not (isinstance(criteria, dict) and criteria.keys() <= {"true", "false"}):
            raise QuestionError(f"criteria is {short(criteria)}; expected null, or an object with true and false")
        return [False, True], sorted((criteria or {}).items())
    if kind == "choice":
        if not isinstance(criteria, dict):
            raise QuestionError(
                f"a choice needs criteria, but they are {short(criteria)}; expected an object with an entry per option"
            )
        # Sorted: languages write the keys of an object in any order, even in another one each time.
        return sorted(criteria), sorted(criteria.items())
    if not isinstance(criteria, list):
        raise QuestionError(
            f"a score needs levels, but its criteria are {short(criteria)}; expected a list with a text per level"
        )
    if wrong := [level for level in criteria if not isinstance(level, str | None)]:
        raise QuestionError(f"criteria holds {short(wrong[0])}; expected a text per level")
    return list(criteria[: MAX_OPTIONS + 1]), criteria


def _check_different(field: str, options: list[Any]) -> None:
    """Refuse an option that is offered twice. True and "true" are two options."""
    seen = set[tuple[type, Any]]()
    for option in options:
        if (type(option), option) in seen:
            raise QuestionError(f"{field} holds {quotes([str(option)])} twice; expected different options")
        seen.add((type(option), option))
