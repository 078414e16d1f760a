"""A data set as its source has it: arrays or files with labels and classes, before any validation split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from trueodds.errors import UserError
from trueodds.sums.group_names import GroupNames

Images = npt.NDArray[np.uint8]
Vectors = npt.NDArray[np.float32]
TokenRows = npt.NDArray[np.int32]
Nodes = npt.NDArray[np.int32]
Inputs: TypeAlias = Images | Vectors | TokenRows | Nodes
"""Rows of one kind. Images are N x H x W x C. Vectors are N x D, with NaN for a missing value. Texts are as in
`trueodds.inputs.TextInput`. Trees are N x M x 5, nodes in post-order (`pipeline.data.texts.encoding`).
"""
Labels = npt.NDArray[np.int64]
Kind = Literal["image", "vector", "text", "tree"]
"""Kind of the rows: the `kind` of the card's entry `input` (`trueodds.inputs`)."""
PIXELS: tuple[Kind, ...] = ("image",)
"""Kinds of rows with pixels, which can be moved, scaled and corrupted."""
WORDS: tuple[Kind, ...] = ("text", "tree")
"""Kinds of rows whose words have vectors."""


@dataclass(frozen=True)
class ImageFiles:
    """Images that are still files, one per row. Shape and dtype are those of the array that they will become.

    Attributes:
        folder: Folder of the data set, which contains all paths.
        paths: The files.
        height: Height of the decoded images.
        width: Width of the decoded images.
        channels: 1 or 3.
        side: Edge to which each image is scaled (`trueodds.inputs.image.pictures.Scaling`); None if the files have the
            right size.
    """

    folder: Path
    paths: Sequence[Path]
    height: int
    width: int
    channels: int
    side: int | None = None
    dtype = np.dtype(np.uint8)
    ndim = 4

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the decoded array."""
        return len(self.paths), self.height, self.width, self.channels

    def take(self, rows: npt.NDArray[np.intp]) -> ImageFiles:
        """Return some of the files, in the order of `rows`."""
        return replace(self, paths=[self.paths[row] for row in rows])


COLUMNS = 5
WORD, LEFT, RIGHT, LABEL, HEIGHT = range(COLUMNS)
"""Columns of a node of a tree (`pipeline.data.texts.encoding.encode_trees`)."""


class Tree(NamedTuple):
    """A binary tree of words. Nodes are in post-order: children before their parents, the root last.

    Attributes:
        words: Word of each node; None for an inner node.
        left: Index of each node's left child; -1 for a leaf.
        right: Index of each node's right child; -1 for a leaf.
        labels: Class of each node; -1 without one.
    """

    words: Sequence[str | None]
    left: Sequence[int]
    right: Sequence[int]
    labels: Sequence[int]


@dataclass(frozen=True)
class TextRows:
    """Rows of texts."""

    texts: Sequence[str]
    dtype = np.dtype(object)
    ndim = 1

    @property
    def shape(self) -> tuple[int]:
        """Number of rows."""
        return (len(self.texts),)

    def take(self, rows: npt.NDArray[np.intp]) -> TextRows:
        """Return some of the texts, in the order of `rows`."""
        return TextRows([self.texts[row] for row in rows])


@dataclass(frozen=True)
class TreeRows:
    """Rows of trees.

    Attributes:
        trees: The trees.
        node_classes: Classes that a node may have; the classes of the roots come first.
    """

    trees: Sequence[Tree]
    node_classes: tuple[str, ...]
    dtype = np.dtype(object)
    ndim = 1

    @property
    def shape(self) -> tuple[int]:
        """Number of rows."""
        return (len(self.trees),)

    def take(self, rows: npt.NDArray[np.intp]) -> TreeRows:
        """Return some of the trees, in the order of `rows`."""
        return TreeRows([self.trees[row] for row in rows], self.node_classes)


Rows: TypeAlias = Inputs | ImageFiles | TextRows | TreeRows
"""Rows as arrays, image files to decode (`pipeline.data.image_files.gather`), or as texts or trees whose words have
no ids yet.
"""
EXPECTED = "images, uint8 (rows, height, width, channels) with 1 or 3 channels, or vectors, numbers (rows, features)"


class DataError(UserError, ValueError):
    """Data that cannot be used. The message names the file, the problem, what is allowed, and what to do."""


@dataclass(frozen=True)
class Raw:
    """Training and test rows, with labels int64 0..len(classes)-1.

    Attributes:
        x_train: Training rows.
        y_train: Their labels.
        x_test: Test rows; None if the data set has no test split.
        y_test: Their labels.
        classes: Names of the classes.
        is_resized: Whether images are scaled to one size.
        features: Names of the columns of vectors; empty for other rows.
        x_val: Validation rows, if the data set has a validation split.
        y_val: Their labels.
        benchmark_val: Whether the test rows are the data set's `val`, as in benchmarks with secret test labels.
        groups: `train`, `val` and `test` -> number of each row's group, which the split keeps together
            (`data.group_column`); empty without such groups.
        tags: `train`, `val` and `test` -> group of each row for a calibrator by group (`data.groups`, see
            `pipeline.data.tags`); empty without such groups.
    """

    x_train: Rows
    y_train: Labels
    x_test: Rows | None
    y_test: Labels | None
    classes: tuple[str, ...]
    is_resized: bool = False
    features: tuple[str, ...] = ()
    x_val: Rows | None = None
    y_val: Labels | None = None
    benchmark_val: bool = False
    groups: Mapping[str, Labels] = field(default_factory=dict)
    tags: Mapping[str, GroupNames] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """Kind of the rows."""
        if isinstance(self.x_train, TextRows | TreeRows):
            return "text" if isinstance(self.x_train, TextRows) else "tree"
        return "vector" if self.features else "image"


def check_raw(raw: Raw, source: str) -> Raw:
    """Return `raw` if its arrays match.

    Raises:
        DataError: The message names the source and the array.
    """
    if len(raw.classes) < 2 or len(set(raw.classes)) != len(raw.classes):
        raise DataError(f"{source}: class_names must be at least two different names; found {list(raw.classes)[:10]}")
    _check_split(source, "train", raw, raw.x_train, raw.y_train)
    for split, x, y in (("val", raw.x_val, raw.y_val), ("test", raw.x_test, raw.y_test)):
        if x is None or y is None:
            continue
        _check_split(source, split, raw, x, y)
        if x.shape[1:] != raw.x_train.shape[1:]:
            noun = f"{raw.kind}s"
            raise DataError(
                f"{source}: {split} {noun} are {_size(x)}, training {noun} {_size(raw.x_train)}; scale both to one size"
            )
    return raw


def _check_split(source: str, split: str, raw: Raw, x: Rows, y: Labels) -> None:
    """Raise DataError if rows or labels of a split are invalid."""
    if 0 in x.shape or not _FORMS[raw.kind](x):
        raise DataError(f"{source}: x_{split} is {x.dtype} of shape {x.shape}; expected {EXPECTED}")
    if y.shape != x.shape[:1]:
        raise DataError(
            f"{source}: y_{split} has shape {y.shape}; expected ({x.shape[0]},), one label for each row of x_{split}"
        )
    most = len(raw.classes) - 1
    if y.min() < 0 or y.max() > most:
        bad = int(y[(y < 0) | (y > most)][0])
        raise DataError(f"{source}: y_{split} holds the label {bad}; allowed are 0..{most}, the indices of class_names")


_FORMS: dict[Kind, Callable[[Rows], bool]] = {
    "image": lambda x: x.dtype == np.uint8 and x.ndim == 4 and x.shape[-1] in (1, 3),
    "vector": lambda x: x.dtype == np.float32 and x.ndim == 2,
    "text": lambda x: isinstance(x, TextRows),
    "tree": lambda x: isinstance(x, TreeRows),
}


def _size(x: Rows) -> str:
    """Return the size of a row as text."""
    return " x ".join(map(str, x.shape[1:]))
