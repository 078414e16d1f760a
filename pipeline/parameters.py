"""Parameters as users write them on a command line, and the parameters that each stage reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from pipeline.config import SECTION_OF, Params
from trueodds.dialect import read_yaml
from trueodds.errors import ConfigError, unknown

OPTIONS = ("model_options", "method_options", "calibrator_options", "shift_options")
"""Parameters that are mappings, so that one of their keys can be set alone, as in `method_options.gamma`."""

STAGE_PARAMETERS: dict[str, tuple[str, ...]] = {
    "fetch": ("data", "training.recipe"),
    "plan": ("training", "data.dataset", "data.held_out_size", "data.path"),
    "train": ("training",),
    "shift": ("evaluation.shift", "evaluation.shift_options", "data.dataset", "data.path"),
    "calibrate": ("calibration",),
    "evaluate": ("evaluation", "data.dataset", "training.method", "training.model"),
    "export": (),
    "export --int8": ("calibration", "evaluation"),
    "export --fold": (),
}
"""Command -> the sections, or single parameters of a section, that it reads. A test compares them with dvc.yaml."""


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """Parse `["epochs=3", "training.method=focal"]` into `{"epochs": 3, "method": "focal"}`. Values are YAML.

    Raises:
        ConfigError: A word is not of the form name=value, or there is no such parameter.
    """
    overrides = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"'{word}' is not of the form name=value, such as epochs=3")
        overrides[parameter_name(name.removeprefix("+"))] = parse_value(value, word)  # DVC writes + before a new name
    return overrides


def parameter_name(text: str) -> str:
    """Return the short name of a parameter, such as `epochs` for `training.epochs`.

    A key of a mapping, such as `method_options.gamma`, may also be written with or without its section.

    Raises:
        ConfigError: There is no such parameter.
    """
    first, _, rest = text.partition(".")
    section, name = (first, rest) if first in Params.model_fields and rest else ("", text)
    leaf, dot, option = name.partition(".")
    if leaf not in SECTION_OF:
        keys = [key for key in SECTION_OF if section in ("", SECTION_OF[key])]
        raise unknown("parameter", text, [f"{section}.{key}" if section else key for key in keys])
    if section not in ("", SECTION_OF[leaf]):
        raise ConfigError(f"unknown parameter '{text}'; its name is {SECTION_OF[leaf]}.{name}, or {name} for short")
    if dot and (leaf not in OPTIONS or not option):
        raise ConfigError(f"unknown parameter '{text}'; {leaf} takes a value: {leaf}=VALUE")
    return name


def parse_value(text: str, where: str) -> Any:
    """Parse a value as YAML, as in params.yaml.

    Args:
        text: The value.
        where: Name of the value in messages.

    Raises:
        ConfigError: The text is not valid YAML.
    """
    try:
        return read_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the value of '{where}' is not valid YAML: {' '.join(str(error).split())}") from None


def leaves(command: str) -> list[str]:
    """Return the parameters that a command of STAGE_PARAMETERS reads."""
    parts = STAGE_PARAMETERS[command]
    return [leaf for leaf, section in SECTION_OF.items() if section in parts or f"{section}.{leaf}" in parts]


def check_stage(command: str, names: Iterable[str]) -> None:
    """Refuse a parameter that the command does not read.

    Raises:
        ConfigError: A parameter is not read. The message names the commands that read it, and what this one reads.
    """
    readable = leaves(command)
    for name in names:
        leaf = name.partition(".")[0]
        if leaf not in readable:
            readers = [stage for stage in STAGE_PARAMETERS if leaf in leaves(stage) and " " not in stage]
            raise ConfigError(
                f"{command} does not read {name}: {_join(readers)} {'do' if readers[1:] else 'does'}. {command}"
                f" takes {', '.join(readable) or 'no parameters'}. For every stage: trueodds all {name}=VALUE"
            )


def _join(names: list[str]) -> str:
    """Join names with commas and a final `and`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
