"""The model directory as it is: which bundles lie there, and which of them is named for what.

Published bundles lie in MODELS/<name>/<version>/. Small files say who does what: MODELS/default (<name>/<version>)
answers when nothing is named, MODELS/<name>/default (<version>) when only the model is, and MODELS/<name>/shadow
(<version>) is scored on the same inputs without being answered. MODELS/.id tells one model directory from another,
wherever it is mounted. `trueodds.bundle.publishing` writes all of it.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Literal

from trueodds.bundle.bundle import DEFAULT, NAME, SHADOW, BundleError
from trueodds.shadows import shadow_of

VARIABLE = "TRUEODDS_MODELS"
IDENTITY = ".id"

Role = Literal["default", "shadow"]


def models_folder() -> Path:
    """The model directory where none is named, the service's too: TRUEODDS_MODELS, or `models` in this folder."""
    return Path(os.environ.get(VARIABLE) or "models")


def identity(models: str | Path) -> str | None:
    """What tells this model directory from others: written by the first `publish`; None before."""
    try:
        text = (Path(models) / IDENTITY).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if re.fullmatch("[0-9a-f]{16}", text) else None


def find_model(models: str | Path, name: str) -> Path:
    """The folder of a model's versions.

    Raises:
        BundleError: there is none.
    """
    folder = Path(models) / name
    if not (re.fullmatch(NAME, name) and folder.is_dir()):
        raise BundleError(f"there is no model {name!r} in {models}; python -m pipeline versions lists them")
    return folder


def find(models: str | Path, name: str, version: str) -> Path:
    """The folder of a published version.

    Raises:
        BundleError: there is none.
    """
    path = Path(models) / name / version
    if not (re.fullmatch(NAME, name) and re.fullmatch(NAME, version) and path.is_dir()):
        raise BundleError(f"there is no folder {path}; publish the bundle first: python -m pipeline publish")
    return path


def find_default(models: str | Path) -> Path:
    """The folder that MODELS/default names.

    Raises:
        BundleError: there is no default, or it names a folder that is not there.
    """
    models = Path(models)
    try:
        named = (models / DEFAULT).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise BundleError(
            f"no model yet: {models / DEFAULT} does not exist. Publish one: python -m pipeline publish"
        ) from None
    except UnicodeDecodeError:
        named = "(not text)"
    except OSError as error:
        raise BundleError(f"{models / DEFAULT} cannot be read: {error.strerror}; publish again") from None
    # A pattern, not Path.parts: "/etc" has two parts as well, and leads out of MODELS.
    if not re.fullmatch(f"{NAME}/{NAME}", named) or not (models / named).is_dir():
        raise BundleError(f"{models / DEFAULT} names {named!r}, which is not a folder <name>/<version> in {models}")
    return models / named


def default_model(models: str | Path) -> str | None:
    """The name of the model that answers calls that name none; None if MODELS/default names no folder."""
    try:
        name, _, version = (Path(models) / DEFAULT).read_text(encoding="utf-8").strip().partition("/")
    except (OSError, UnicodeDecodeError):
        return None
    # A pattern, not Path.parts: "/etc" has two parts as well, and leads out of MODELS.
    named = re.fullmatch(NAME, name) and re.fullmatch(NAME, version)
    return name if named and (Path(models) / name).is_dir() else None


def role(models: str | Path, name: str, which: str) -> str | None:
    """The version that is named a model's `default` or `shadow`, there or not; None if none is."""
    models = Path(models)
    try:
        return (models / name / which).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    with contextlib.suppress(BundleError):
        if which == DEFAULT and (found := find_default(models)).parent.name == name:
            return found.name
    return None


def standing(models: str | Path, name: str, version: str) -> str:
    """What a published version does, and how to ask it, for people."""
    models, this = Path(models), f"{name}/{version}"
    place = "" if models == models_folder() else f" --models {models}"
    now, unnamed = role(models, name, DEFAULT), default_model(models)
    if now == version:
        if unnamed == name:
            return f"{this} answers now: calls with ?model={name}, and calls that name no model."
        return (
            f"{this} answers now: calls with ?model={name}. Calls that name no model are answered by"
            f" {unnamed or 'none'}; to change that: python -m pipeline default {name}{place}"
        )
    ask = f"It is asked with ?model={name}&version={version}."
    if role(models, name, SHADOW) == version:
        return (
            f"{this} is the shadow of {now}, which answers for {name}: it is scored on the same inputs and not answered"
            f" (/calibration-report?model={shadow_of(name)}). {ask} Labels decide: python -m pipeline judge --model"
            f" {name}{place}. By hand: python -m pipeline promote {name} {version}{place}"
        )
    return f"{this} has no role; {now or 'nothing'} answers for {name}. {ask}"
