"""A data set as it comes: named arrays, checked, before any validation split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from trueodds.errors import UserError

Images = npt.NDArray[np.uint8]
Vectors = npt.NDArray[np.float32]
TokenRows = npt.NDArray[np.int32]
Nodes = npt.NDArray[np.int32]
Inputs: TypeAlias = Images | Vectors | TokenRows | Nodes
"""Rows of one kind: images N x H x W x C; vectors N x D with NaN where a value is missing; texts as
`trueodds.inputs.TextInput` has them; trees N x M x 5 of nodes in post-order (`pipeline.data.texts.encoding`)."""
Labels = npt.NDArray[np.int64]
Kind = Literal["image", "vector", "text", "tree"]
"""What the rows are: the `kind` of the card's entry `input` (`trueodds.inputs`)."""
PIXELS: tuple[Kind, ...] = ("image",)
"""Kinds of rows with pixels to move, scale and spoil."""
WORDS: tuple[Kind, ...] = ("text", "tree")
"""Kinds of rows whose words have vectors."""


@dataclass(frozen=True)
class ImageFiles:
    """Images that are still files, a row each: what its array will be, height x width x channels, without the array.

    folder: the data set's, which all paths are below.
    side: the edge to which each image is brought (`trueodds.inputs.image.pictures.Scaling`); None: they
        have that size already.
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
        return len(self.paths), self.height, self.width, self.channels

    def take(self, rows: npt.NDArray[np.intp]) -> ImageFiles:
        """Some of the files, in the order of `rows`."""
        return replace(self, paths=[self.paths[row] for row in rows])


COLUMNS = 5
WORD, LEFT, RIGHT, LABEL, HEIGHT = range(COLUMNS)
"""What numbers say of a node of a tree (`pipeline.data.texts.encoding.encoded_trees`)."""


class Tree(NamedTuple):
    """A binary tree of words, its nodes in post-order: children before their parents, the root last.

    words: of each node, None of an inner one. left, right: places of its children, -1 of a leaf. labels: the class of
    each node, -1 where it has none.
    """

    words: Sequence[str | None]
    left: Sequence[int]
    right: Sequence[int]
    labels: Sequence[int]


@dataclass(frozen=True)
class TextRows:
    """A text each row."""

    texts: Sequence[str]
    dtype = np.dtype(object)
    ndim = 1

    @property
    def shape(self) -> tuple[int]:
        return (len(self.texts),)

    def take(self, rows: npt.NDArray[np.intp]) -> TextRows:
        """Some of the texts, in the order of `rows`."""
        return TextRows([self.texts[row] for row in rows])


@dataclass(frozen=True)
class TreeRows:
    """A tree each row. node_classes: what nodes beside the root may be, the classes of the roots first."""

    trees: Sequence[Tree]
    node_classes: tuple[str, ...]
    dtype = np.dtype(object)
    ndim = 1

    @property
    def shape(self) -> tuple[int]:
        return (len(self.trees),)

    def take(self, rows: npt.NDArray[np.intp]) -> TreeRows:
        """Some of the trees, in the order of `rows`."""
        return TreeRows([self.trees[row] for row in rows], self.node_classes)


Rows: TypeAlias = Inputs | ImageFiles | TextRows | TreeRows
"""Rows as an array, images as files that are still to be decoded (`pipeline.data.image_files.gather`), or texts and
trees whose words are still to be numbered."""
EXPECTED = "images, uint8 (rows, height, width, channels) with 1 or 3 channels, or vectors, numbers (rows, features)"


class DataError(UserError, ValueError):
    """Data that cannot be used; the message names the file, what was found, what is allowed and the cure."""


@dataclass(frozen=True)
class Raw:
    """Training and test rows, with labels int64 0..len(classes)-1.

    features: names of the columns of vectors; empty: the rows are images.
    x_val, y_val: validation rows, where the data set brings some.
    benchmark_val: the test rows are what the data set calls `val`, as benchmarks do whose test labels are secret.
    groups: by `train`, `val` and `test`, the number of the group that each row is of, where rows belong together.
    """

    x_train: Rows
    y_train: Labels
    x_test: Rows | None
    y_test: Labels | None
    classes: tuple[str, ...]
    resized: bool = False
    features: tuple[str, ...] = ()
    x_val: Rows | None = None
    y_val: Labels | None = None
    benchmark_val: bool = False
    groups: Mapping[str, Labels] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """What the rows are."""
        if isinstance(self.x_train, TextRows | TreeRows):
            return "text" if isinstance(self.x_train, TextRows) else "tree"
        return "vector" if self.features else "image"


def checked(raw: Raw, source: str) -> Raw:
    """`raw`, if its arrays fit together.

    Raises:
        DataError: naming the source and the array.
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
                f"{source}: {split} {noun} are {_size(x)}, training {noun} {_size(raw.x_train)}; bring both to one size"
            )
    return raw


def _check_split(source: str, split: str, raw: Raw, x: Rows, y: Labels) -> None:
    if 0 in x.shape or not _FORMS[raw.kind](x):
        raise DataError(f"{source}: x_{split} is {x.dtype} of shape {x.shape}; expected {EXPECTED}")
    if y.shape != x.shape[:1]:
        raise DataError(
            f"{source}: y_{split} has shape {y.shape}; expected ({x.shape[0]},), one label for each of x_{split}"
        )
    most = len(raw.classes) - 1
    if y.min() < 0 or y.max() > most:
        bad = int(y[(y < 0) | (y > most)][0])
        raise DataError(
            f"{source}: y_{split} holds the label {bad}; allowed are 0..{most}, one for each of class_names"
        )


_FORMS: dict[Kind, Callable[[Rows], bool]] = {
    "image": lambda x: x.dtype == np.uint8 and x.ndim == 4 and x.shape[-1] in (1, 3),
    "vector": lambda x: x.dtype == np.float32 and x.ndim == 2,
    "text": lambda x: isinstance(x, TextRows),
    "tree": lambda x: isinstance(x, TreeRows),
}


def _size(x: Rows) -> str:
    return " x ".join(map(str, x.shape[1:]))
