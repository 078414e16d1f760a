"""Slow and obvious nets of words: a text at a time, a node at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.nets.gp_cnn import GPCNN
from pipeline.nets.tree_lstm import TreeLSTM


def gp_cnn(net: GPCNN, ids: Sequence[int]) -> Tensor:
    """Logits (C,) of a text as the focal paper's code has them: known words, the last 1,000, zeros before them."""
    known = [word for word in ids if word >= 2][-1000:]
    padded = torch.tensor([0] * (1000 - len(known)) + known)
    x = net.vectors[padded].T.unsqueeze(0)
    x = F.max_pool1d(F.relu(net.conv1(x)), kernel_size=5, stride=1)
    x = F.max_pool1d(F.relu(net.conv2(x)), kernel_size=5, stride=1)
    x = F.relu(net.conv3(x)).max(dim=2).values
    logits: Tensor = net.head(F.relu(net.hidden(x)))
    return logits[0]


def tree_outputs(net: TreeLSTM, tree_M5: Sequence[Sequence[int]], node: int) -> list[tuple[int, Tensor, Tensor]]:
    """(place, h, c) of a node and of all below it, in post-order, one at a time."""
    word, left, right, _, _ = tree_M5[node]
    if left < 0:
        x = net.vectors[word]
        c = net.leaf_cell(x)
        return [(node, torch.sigmoid(net.leaf_gate(x)) * torch.tanh(c), c)]
    below_left, below_right = (tree_outputs(net, tree_M5, child) for child in (left, right))
    (_, h_left, c_left), (_, h_right, c_right) = below_left[-1], below_right[-1]
    width = len(h_left)

    def gate(k: int) -> Tensor:
        rows = slice(k * width, (k + 1) * width)
        total = torch.zeros_like(h_left)
        for side, h in ((net.left, h_left), (net.right, h_right)):
            total = total + nn.functional.linear(h, side.weight[rows], side.bias[rows])
        return total

    c = (
        torch.sigmoid(gate(0)) * torch.tanh(gate(3))
        + torch.sigmoid(gate(1)) * c_left
        + torch.sigmoid(gate(2)) * c_right
    )
    return [*below_left, *below_right, (node, torch.tanh(c), c)]


def tree_logits(net: TreeLSTM, trees_NM5: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of each labelled node, tree by tree in post-order, and those of the roots; without dropout."""
    nodes, roots = [], []
    for tree in trees_NM5.tolist():
        real = [node for node in tree if node[0] >= 0]
        outputs = tree_outputs(net, real, len(real) - 1)
        nodes += [net.head(h) for place, h, _ in sorted(outputs, key=lambda one: one[0]) if real[place][3] >= 0]
        roots.append(net.head(outputs[-1][1]))
    return torch.stack(nodes), torch.stack(roots)
