"""Draws of training, validation, test and set-aside rows by labels and groups, before any row is decoded."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from pipeline.config import Data
from pipeline.data.dataset import HELD_OUT
from pipeline.data.image_files import Part
from pipeline.data.raw import DataError, Raw
from pipeline.data.splitting import groups
from trueodds.evaluation.splits import Index, balanced_split

log = logging.getLogger("pipeline.data")


@dataclass(frozen=True)
class Shares:
    """Shares of validation rows and set-aside rows among the rows that are not test rows."""

    validation: float
    held_out: float


OF_RECIPES = {"gamma-net": Shares(validation=0.1, held_out=0.1)}
"""Recipe -> its paper's shares, for sizes that params.yaml leaves null. The gamma-net paper, section 5, has 8:1:1."""


def draw(params: Data, raw: Raw, shares: Shares | None, usual: int | None) -> dict[str, Part]:
    """Draw the parts of the split, training rows first. Splits that the data set already has are kept.

    Args:
        params: The section `data` of params.yaml.
        raw: The data set.
        shares: Shares of a recipe, for sizes that params leave null.
        usual: Number of validation rows if neither params nor shares set it; None means a tenth.

    Raises:
        DataError: There are too few rows or groups for these sizes.
    """
    brought_val = _brought_val(params, raw)
    brings_test = raw.x_test is not None and raw.y_test is not None
    held_out_rows = params.held_out_size
    wants_held_out = held_out_rows is not None or shares is not None
    left = wants_held_out + (brought_val is None) + (not brings_test)  # number of parts still to draw
    train = np.arange(len(raw.y_train))
    test: Part
    if raw.x_test is None or raw.y_test is None:
        rows = max(1, round(params.test_fraction * len(raw.y_train)))
        how = "whole groups" if raw.groups else "class-balanced"
        log.info("%s has no test split: %d training rows become test rows, %s", params.dataset, rows, how)
        drawn, train = _draw(raw, train, rows, params, "test_fraction", left)
        left -= 1
        test = (raw.x_train, raw.y_train, drawn)
    else:
        test = (raw.x_test, raw.y_test, None)
    usual = usual or max(2, len(train) // 10)
    if shares is not None:
        usual = round(shares.validation * len(train))
        held_out_rows = held_out_rows or round(shares.held_out * len(train))
    val = brought_val
    if val is None:
        drawn, train = _draw(raw, train, params.validation_size or usual, params, "validation_size", left)
        left -= 1
        val = (raw.x_train, raw.y_train, drawn)
    held_out: dict[str, Part] = {}
    if held_out_rows is not None:
        drawn, train = _draw(raw, train, held_out_rows, params, "held_out_size", left)
        held_out = {HELD_OUT: (raw.x_train, raw.y_train, drawn)}
    if params.train_size is not None and params.train_size > len(train):
        raise DataError(
            f"{params.dataset}: data.train_size is {params.train_size:,}; allowed is 2..{len(train):,}, or null"
        )
    if params.train_size is not None and params.train_size < len(train):
        train = train[balanced_split(raw.y_train[train], params.train_size, params.split_seed)[0]]
    return {"train": (raw.x_train, raw.y_train, train), "val": val, "test": test, **held_out}


def groups_of(raw: Raw, parts: dict[str, Part]) -> dict[str, groups.Groups]:
    """Return the group of each row of the parts, if the data set has groups."""
    if not raw.groups:
        return {}
    return {
        part: raw.groups["train"][index] if index is not None else raw.groups[part]
        for part, (_, _, index) in parts.items()
    }


def _brought_val(params: Data, raw: Raw) -> Part | None:
    """Return the data set's own validation rows; None if they must be drawn from the training rows."""
    if params.benchmark_val == "val_and_test":
        if not raw.benchmark_val or raw.x_test is None or raw.y_test is None:
            cure = "set it to test; only Tiny-ImageNet and image folders with val/ and without test/ have such rows"
            raise DataError(f"{params.dataset}: data.benchmark_val is val_and_test; {cure}")
        val: Part = (raw.x_test, raw.y_test, None)
    elif raw.x_val is None or raw.y_val is None:
        return None
    else:
        val = (raw.x_val, raw.y_val, None)
    if params.validation_size is not None:
        problem = f"{params.dataset}: data.validation_size is {params.validation_size:,}, and the validation rows"
        raise DataError(f"{problem} are those of its val/; set it to null")
    return val


def _draw(raw: Raw, among: Index, rows: int, params: Data, key: str, parts: int) -> tuple[Index, Index]:
    """Draw (drawn, rest) of the training rows `among`, with `parts` parts still to draw, this one included."""
    labels_N = raw.y_train[among]
    try:
        if raw.groups:
            drawn, rest = groups.draw(labels_N, raw.groups["train"][among], rows, params.split_seed, leave=parts)
        else:
            drawn, rest = balanced_split(labels_N, rows, params.split_seed)
    except ValueError as error:
        raise DataError(f"{params.dataset}: {error} (data.{key} in params.yaml)") from None
    return among[drawn], among[rest]
