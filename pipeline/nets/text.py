"""Base class of nets of words, which have a table with a vector for each word."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from pipeline.data.dataset import DataSet
from pipeline.nets.net import Net
from pipeline.nets.shape import Shape

VECTORS = "vectors"
"""Name of the table; it is a parameter if the vectors learn."""
SKIPPED = 2
"""Smallest id of a word. Smaller ids are padding and words that are not in the vocabulary."""


class WordNet(Net, ABC):
    """A net of words; `embed` sets its word vectors after it is built.

    Attributes:
        classes: Number of classes of a row; None means all outputs of the head. Parts of a row (nodes of a tree) may
            have more classes; the classes of the row come first.
    """

    classes: int | None = None

    @abstractmethod
    def embed(self, vectors_VD: Tensor) -> None:
        """Copy the vectors, one for each id of the vocabulary."""

    def answers(self, features_ND: Tensor) -> Tensor:
        """Return the logits of the classes that a row may have (N, C)."""
        return super().answers(features_ND)[:, : self.classes]


def net_of(shape: Shape, data: DataSet) -> Net:
    """Build the net for a data set's rows, with random weights from torch's generator and the vectors of its words."""
    card, vectors = data.card, data.vectors
    if vectors is None:
        return shape.build(data.arrays["val"][0].shape[-1], len(card["classes"]))
    net = shape.build(vectors.shape[1], len(card["input"].get("node_classes", card["classes"])))
    assert isinstance(net, WordNet)
    net.classes = len(card["classes"])
    net.embed(torch.from_numpy(vectors))
    return net
