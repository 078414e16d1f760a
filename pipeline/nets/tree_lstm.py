"""The binary constituency Tree-LSTM (Tai et al. 2015, section 3.2), as the focal paper's public code trains it on SST.

A leaf of the word x has the cell c = W x + b and h = sigmoid(W' x + b') tanh(c). A node with children l and r has

    (i, f_l, f_r, u) = U_l h_l + b_l + U_r h_r + b_r
    c = sigmoid(i) tanh(u) + sigmoid(f_l) c_l + sigmoid(f_r) c_r,    h = tanh(c)

The code has no output gate, although the paper has one. The word vectors learn.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.data.raw import HEIGHT, LABEL, LEFT, RIGHT, WORD
from pipeline.nets.text import SKIPPED, WordNet

GATES = 4


class Levels(NamedTuple):
    """The T nodes of a batch of trees ordered by height, leaves first.

    Attributes:
        word_T: Word id of each node; 0 for inner nodes.
        left_T: Index of the left child in this order; arbitrary for leaves.
        right_T: Index of the right child in this order; arbitrary for leaves.
        counts: Number of nodes of each height.
        place_NM: Index in this order of each node of each tree.
    """

    word_T: Tensor
    left_T: Tensor
    right_T: Tensor
    counts: list[int]
    place_NM: Tensor

    @classmethod
    def of(cls, nodes_NM5: Tensor) -> Levels:
        """Order the nodes of trees by height."""
        rows, places, _ = nodes_NM5.shape
        flat = nodes_NM5.reshape(rows * places, -1).long()
        nodes = (flat[:, WORD] >= 0).nonzero().squeeze(1)
        heights = flat[nodes, HEIGHT]
        nodes_T = nodes[torch.argsort(heights, stable=True)]
        place = torch.zeros(rows * places, dtype=torch.long, device=flat.device)
        place[nodes_T] = torch.arange(len(nodes_T), device=flat.device)
        first_T = nodes_T // places * places
        left_T, right_T = (place[first_T + flat[nodes_T, side].clamp_min(0)] for side in (LEFT, RIGHT))
        counts: list[int] = torch.bincount(heights).tolist()
        return cls(flat[nodes_T, WORD], left_T, right_T, counts, place.view(rows, places))


class TreeLSTM(WordNet):
    """Trees int N x M x 5 (`pipeline.data.texts.encoding.encode_trees`) -> logits.

    It computes level by level over all trees. In training mode there is a row of features for each labelled node, tree
    by tree in post-order. In evaluation mode there is one for each tree, that of its root.
    """

    def __init__(self, inside: int, classes: int, *, width: int, dropout: float) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.zeros(SKIPPED, inside))
        self.leaf_cell = nn.Linear(inside, width)
        self.leaf_gate = nn.Linear(inside, width)
        self.left = nn.Linear(width, GATES * width)
        self.right = nn.Linear(width, GATES * width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, classes)

    def embed(self, vectors_VD: Tensor) -> None:
        """Copy the word vectors, which then learn."""
        self.vectors = nn.Parameter(vectors_VD.to(self.vectors).clone())

    def features(self, inputs: Tensor) -> Tensor:
        """Return the outputs of labelled nodes in training mode, of roots in evaluation mode (T, width)."""
        levels = Levels.of(inputs)
        if self.training:
            place_T = levels.place_NM[inputs[..., LABEL] >= 0]
        else:
            root_N1 = (inputs[..., WORD] >= 0).sum(1, keepdim=True) - 1
            place_T = levels.place_NM.gather(1, root_N1).squeeze(1)
        outputs_TD: Tensor = self.dropout(self._outputs(levels).index_select(0, place_T))
        return outputs_TD

    def _outputs(self, levels: Levels) -> Tensor:
        """Return h of every node (T, width), in the order of `levels`."""
        width = self.head.in_features
        leaves, *heights = levels.counts
        words = F.embedding(levels.word_T[:leaves], self.vectors)
        cell = self.leaf_cell(words)
        # h and c of a node are side by side, so that one gather fetches both.
        states = torch.cat([torch.sigmoid(self.leaf_gate(words)) * torch.tanh(cell), cell], 1)
        begin = leaves
        for count in heights:
            here = slice(begin, begin + count)
            left, right = (states.index_select(0, side[here]) for side in (levels.left_T, levels.right_T))
            gates = self.left(left[:, :width]) + self.right(right[:, :width])
            i, f_left, f_right, u = gates.chunk(GATES, 1)
            cell = torch.sigmoid(i) * torch.tanh(u)
            cell = cell + torch.sigmoid(f_left) * left[:, width:] + torch.sigmoid(f_right) * right[:, width:]
            states = torch.cat([states, torch.cat([torch.tanh(cell), cell], 1)])
            begin += count
        return states[:, :width]
