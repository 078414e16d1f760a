"""Parameters as people name them on a command line, and which of them a stage reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from pipeline.config import SECTION_OF, Params
from trueodds.dialect import read_yaml
from trueodds.errors import ConfigError, unknown

OPTIONS = ("model_options", "method_options", "calibrator_options", "shift_options")
"""Leaves that hold names of their own, such as `method_options.gamma`."""

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
"""Command -> the sections, or single leaves of one, that it reads: as in dvc.yaml (held by a test)."""


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """`["epochs=3", "training.method=focal"]` -> `{"epochs": 3, "method": "focal"}`; values are YAML.

    Raises:
        ConfigError: naming the word, what is allowed and the nearest.
    """
    overrides = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"'{word}' is not of the form name=value, such as epochs=3")
        overrides[parameter_name(name.removeprefix("+"))] = parse_value(value, word)  # DVC writes + before a new name
    return overrides


def parameter_name(written: str) -> str:
    """`epochs` for what DVC calls `training.epochs`; `method_options.gamma`, with or without its section.

    Raises:
        ConfigError: there is no such parameter.
    """
    first, _, rest = written.partition(".")
    section, name = (first, rest) if first in Params.model_fields and rest else ("", written)
    leaf, dot, option = name.partition(".")
    if leaf not in SECTION_OF:
        keys = [key for key in SECTION_OF if section in ("", SECTION_OF[key])]
        raise unknown("parameter", written, [f"{section}.{key}" if section else key for key in keys])
    if section not in ("", SECTION_OF[leaf]):
        raise ConfigError(f"unknown parameter '{written}'; its name is {SECTION_OF[leaf]}.{name}, or {name} for short")
    if dot and (leaf not in OPTIONS or not option):
        raise ConfigError(f"unknown parameter '{written}'; {leaf} takes a value itself: {leaf}=VALUE")
    return name


def parse_value(text: str, where: str) -> Any:
    """YAML, as in params.yaml; `where` is what an error calls it.

    Raises:
        ConfigError: it is no YAML.
    """
    try:
        return read_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the value of '{where}' is not valid YAML: {' '.join(str(error).split())}") from None


def leaves(command: str) -> list[str]:
    """The leaves that a command of STAGE_PARAMETERS reads."""
    parts = STAGE_PARAMETERS[command]
    return [leaf for leaf, section in SECTION_OF.items() if section in parts or f"{section}.{leaf}" in parts]


def check_stage(command: str, names: Iterable[str]) -> None:
    """Refuse a parameter that the command would not read.

    Raises:
        ConfigError: naming the commands that read it, and what this one reads.
    """
    taken = leaves(command)
    for name in names:
        leaf = name.partition(".")[0]
        if leaf not in taken:
            readers = [stage for stage in STAGE_PARAMETERS if leaf in leaves(stage) and " " not in stage]
            raise ConfigError(
                f"{command} does not read {name}: {_listed(readers)} {'do' if readers[1:] else 'does'}. {command}"
                f" takes {', '.join(taken) or 'no parameters'}. For every stage: trueodds all {name}=VALUE"
            )


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
