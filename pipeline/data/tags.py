"""Tags of rows, which `data.groups` names: the groups of a calibrator with a temperature for each group.

They are no features and change no split. The train stage writes those of validation and test rows to logits.npz. In the
service, the tag of a request takes their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.config import Data
from pipeline.data.image_files import Part
from pipeline.data.raw import DataError, ImageFiles, Raw, Rows
from pipeline.data.splitting import groups
from pipeline.data.texts import own
from trueodds.files import FileError
from trueodds.inputs import columns, row_groups
from trueodds.sums.group_names import GroupNames, check_groups
from trueodds.texts import quotes

SPLITS = ("val", "test")
"""Splits whose tags are kept. Training reads none."""
NAMES = {"val": "validation", "test": "test"}
NAMED = 5
SETTING = "data.groups"
Tags = dict[str, GroupNames]
"""Split -> tag of each row, None for a row without one."""


def of(raw: Raw, path: Path | None, params: Data) -> Raw:
    """Return `raw` with the tags that `data.groups` names.

    Args:
        raw: The data set.
        path: Its file or folder; None if it is not the user's own.
        params: The section `data` of params.yaml.

    Raises:
        DataError: There is no such column, array or table, a file of it is not one of the rows, or no row has a tag.
    """
    name = params.groups or ""
    if path is None:
        problem = f"{SETTING} is {name!r}, and the data set {params.dataset} has no groups"
        raise DataError(f"{problem}; set it to null, or use data of your own with a column of groups")
    try:
        if path.is_dir():
            tags = _of_folder(raw, path, name)
        elif path.suffix in columns.SUFFIXES:
            tags = {"train": row_groups.of_table(path, name, params.label_column, setting=SETTING)}
        else:
            tags = _of_arrays(raw, path, name)
        row_groups.check_any(path, np.concatenate([*tags.values()]), name, setting=SETTING)
    except FileError as error:
        raise DataError(str(error)) from None
    return replace(raw, tags=tags)


def check_column(path: Path, params: Data) -> None:
    """Check that a table has the column of `data.groups`. An unnamed column would be read as a feature.

    Raises:
        DataError: It has no such column, or the column holds the labels.
    """
    if params.groups is not None:
        try:
            row_groups.check_column(path, params.groups, params.label_column, setting=SETTING)
        except FileError as error:
            raise DataError(str(error)) from None


def of_parts(raw: Raw, parts: Mapping[str, Part]) -> Tags:
    """Return the tags of the validation and test rows; empty if the data set has none."""
    if not raw.tags:
        return {}
    return {
        part: raw.tags["train"][index] if index is not None else raw.tags[part]
        for part, (_, _, index) in parts.items()
        if part in SPLITS
    }


def select(tags: Tags, *masks: Mapping[str, npt.NDArray[np.bool_]]) -> Tags:
    """Return the tags of the rows that masks leave, one mask after another. A split without a mask keeps all."""
    for mask in masks:
        tags = {part: tags_N[mask[part]] if part in mask else tags_N for part, tags_N in tags.items()}
    return tags


def notes(name: str, tags: Tags) -> list[str]:
    """Return sentences about the tags of the validation and test rows."""
    known = sorted({tag for tag in tags["val"].tolist() if tag is not None})
    lines = [f"Groups for temperatures ({SETTING}: {name}): {len(known):,} in {len(tags['val']):,} validation rows."]
    for part, tags_N in tags.items():
        if none := sum(tag is None for tag in tags_N.tolist()):
            lines.append(f"{none:,} of {len(tags_N):,} {NAMES[part]} rows have no group.")
    counts = Counter(tag for tag in tags["test"].tolist() if tag is not None)
    if unseen := sorted(counts.keys() - {*known}):
        lines.append(
            f"{sum(counts[tag] for tag in unseen):,} test rows are of groups without validation rows, and get the"
            f" temperature of all rows: {quotes(unseen, NAMED)}."
        )
    return lines


def _of_arrays(raw: Raw, path: Path, name: str) -> Tags:
    """Return the tags of an .npz: the array `name`, or `name`_train and `name`_test with a test split.

    Raises:
        FileError: There is no such array, or it does not have one tag per row.
    """
    rows = {split: len(y) for split, y in (("train", raw.y_train), ("test", raw.y_test)) if y is not None}
    tags: Tags = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for split, count in rows.items():
                array = f"{name}_{split}" if len(rows) > 1 else name
                tags[split] = row_groups.of_arrays(path, file, array)
                if len(tags[split]) != count:
                    problem = f"{path}: {array} has {len(tags[split]):,} entries for {count:,} rows"
                    raise FileError(f"{problem}; give one for each row ({SETTING})")
    except FileError:
        raise
    except ValueError as error:  # an array of objects
        raise FileError(f"{path}: {error} ({SETTING}: {name}); save texts or whole numbers") from None
    return tags


def _of_folder(raw: Raw, folder: Path, name: str) -> Tags:
    """Return the tags of files: the folder below that of the class, or a column of the table groups.csv.

    Raises:
        FileError, DataError: There is no such folder or table, or it does not fit the files.
    """
    if name == groups.FOLDER:
        names = groups.names_of_folders(raw, folder, SETTING)
        return {split: check_groups(of_split, len(of_split)) for split, of_split in names.items()}
    files = {split: _files_of(x, folder / split, raw.classes) for split, x in groups.rows_of(raw).items()}
    every = [file for of_split in files.values() for file in of_split]
    tags_N = row_groups.of_files(folder, every, name, setting=SETTING)
    ends = np.cumsum([len(of_split) for of_split in files.values()])
    return dict(zip(files, np.split(tags_N, ends[:-1]), strict=True))


def _files_of(x: Rows, folder: Path, classes: Sequence[str]) -> Sequence[Path]:
    """Return the file of each row of a split, whose class folders are in `folder`."""
    return x.paths if isinstance(x, ImageFiles) else own.files_of(folder, classes)
