"""The Stanford Sentiment Treebank (Socher et al. 2013): sentences as binary trees with a sentiment at every node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline.data.raw import DataError, Labels, Raw, Tree, TreeRows

FOLDERS = ("sst", "trees")
"""Names of the folder; trees/ is what trainDevTestTrees_PTB.zip unpacks to."""
FILES = {"train": "train.txt", "val": "dev.txt", "test": "test.txt"}
FINE = ("very negative", "negative", "neutral", "positive", "very positive")
BINARY = ("negative", "positive")
NODES = (*BINARY, "neutral")
"""Classes of nodes in the binary task. Sentences with a neutral root are left out, but inner nodes may be neutral."""
_OF_FINE = np.array([0, 0, 2, 1, 1])
_TOKEN = re.compile(r"[()]|[^() \t\r]+")
"""Pattern of a bracket or a word. A word may contain a non-breaking space, such as 5 1/2."""
ESCAPED = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


def is_layout(folder: Path) -> bool:
    """Return whether a folder holds the three files."""
    return all((folder / name).is_file() for name in FILES.values())


def read(folder: Path, *, fine: bool) -> Raw:
    """Read the trees; dev.txt has the validation rows.

    `fine` gives five classes and 8,544 / 1,101 / 2,210 trees. Otherwise there are the two classes BINARY, 6,920 / 872 /
    1,821 trees whose root is not neutral, and three classes NODES of nodes.

    Raises:
        DataError: A file is missing, or a line is not a binary tree; the message names the line.
    """
    rows: dict[str, tuple[TreeRows, Labels]] = {}
    for split, name in FILES.items():
        if not (folder / name).is_file():
            raise DataError(f"{folder / name} does not exist; unpack trainDevTestTrees_PTB.zip there")
        trees = list(parse(folder / name))
        if not fine:
            trees = [tree._replace(labels=_OF_FINE[list(tree.labels)].tolist()) for tree in trees]
            trees = [tree for tree in trees if tree.labels[-1] < len(BINARY)]
        labels = np.array([tree.labels[-1] for tree in trees], dtype=np.int64)
        rows[split] = TreeRows(trees, FINE if fine else NODES), labels
    (x_val, y_val) = rows["val"]
    return Raw(*rows["train"], *rows["test"], FINE if fine else BINARY, x_val=x_val, y_val=y_val)


def parse(path: Path) -> Iterator[Tree]:
    """Yield the trees of a file, one per line, such as (3 (2 It) (4 (2 's) (4 good))).

    A node has a label, 0 to 4, and a word or two nodes.
    Raises:
        DataError: Brackets do not balance, a label is invalid, or a node has another form; the message names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 at byte {error.start:,}; unpack the archive again") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _tree(line)
        except _TreeError as error:
            expected = "expected a binary tree such as (3 (2 so) (4 good))"
            raise DataError(f"{path}, line {number:,}: {error}; {expected}") from None
    if not any(map(str.strip, lines)):
        raise DataError(f"{path} is empty; unpack the archive again")


class _TreeError(ValueError):
    """Reason why a line is not a tree."""


def _tree(line: str) -> Tree:
    """Return the tree of a line."""
    words: list[str | None] = []
    left: list[int] = []
    right: list[int] = []
    labels: list[int] = []
    stack: list[tuple[int, list[int], list[str]]] = []  # open nodes: label, indices of the children, words
    tokens = _TOKEN.findall(line)
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token == "(":
            if not stack and labels:
                raise _TreeError("a second tree begins, or a bracket is closed too early")
            label = tokens[at + 1] if at + 1 < len(tokens) else "nothing"
            if label not in ("0", "1", "2", "3", "4"):
                raise _TreeError(f"the label {label[:20]!r} is not one of 0 to 4")
            stack.append((int(label), [], []))
            at += 1
        elif not stack:
            unopened = "the brackets are unbalanced: one is closed that was not opened"
            raise _TreeError(unopened if token == ")" else f"{token[:20]!r} is outside all brackets")
        elif token == ")":
            label_of, children, own = stack.pop()
            if (len(children), len(own)) not in ((2, 0), (0, 1)):
                raise _TreeError(f"a node has {len(children)} nodes and {len(own)} words; expected two nodes or a word")
            words.append(ESCAPED.get(own[0], own[0]) if own else None)
            left.append(children[0] if children else -1)
            right.append(children[1] if children else -1)
            labels.append(label_of)
            if stack:
                stack[-1][1].append(len(labels) - 1)
        else:
            stack[-1][2].append(token)
        at += 1
    if stack:
        raise _TreeError(f"the brackets are unbalanced: {len(stack)} are not closed")
    return Tree(words, left, right, labels)
