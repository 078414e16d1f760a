"""What a step of the Tree-LSTM costs level by level over a batch of trees, and node by node.

    python -m benchmarks.trees                         # 25 trees a batch, as the recipe `sst`: a minute
    python -m benchmarks.trees --trees 100 --threads 1

One interleaved run: a round takes a new batch and times a step of each way, forward, cross entropy over the nodes and
backward, with the same weights. `ratio` is the median over rounds of the two times' ratio. Trees are of random form
with 2 to 37 leaves, 19 in the mean, as in the Stanford Sentiment Treebank; the node-by-node loop computes the four
gates of a node at once, as the levels do. Both ways' logits are compared in each round.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.interval_coverage import processor
from pipeline import nets
from pipeline.data.raw import LABEL, Tree, TreeRows
from pipeline.data.texts import sst
from pipeline.data.texts.encoding import PAD, UNKNOWN, Words, encoded_trees
from pipeline.nets.tree_lstm import GATES, TreeLSTM

RESULT = Path(__file__).parent / "results" / "trees.json"
GOAL = 5.0
LEAVES = (2, 37)
WORDS = 18_000


def random_tree(rng: np.random.Generator) -> Tree:
    """Neighbours are joined at random until one is left; every node has a label."""
    words: list[str | None] = []
    left: list[int] = []
    right: list[int] = []

    def add(leaves: int) -> int:
        children = (-1, -1)
        if leaves > 1:
            first = int(rng.integers(1, leaves))
            children = add(first), add(leaves - first)
        words.append(None if leaves > 1 else str(rng.integers(WORDS)))
        left.append(children[0])
        right.append(children[1])
        return len(words) - 1

    add(int(rng.integers(LEAVES[0], LEAVES[1] + 1)))
    return Tree(words, left, right, rng.integers(0, 3, len(words)).tolist())


def node_by_node(net: TreeLSTM, trees_NM5: Tensor) -> Tensor:
    """The logits of all nodes, tree by tree in post-order; without dropout."""
    outputs = []
    for tree in trees_NM5.tolist():
        states: list[tuple[Tensor, Tensor]] = []
        for word, left, right, _, height in tree:
            if word < 0:
                break
            if not height:
                x = net.vectors[word]
                cell = net.leaf_cell(x)
                states.append((torch.sigmoid(net.leaf_gate(x)) * torch.tanh(cell), cell))
                continue
            (h_left, c_left), (h_right, c_right) = states[left], states[right]
            i, f_left, f_right, u = (net.left(h_left) + net.right(h_right)).chunk(GATES)
            cell = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f_left) * c_left + torch.sigmoid(f_right) * c_right
            states.append((torch.tanh(cell), cell))
        outputs += [net.head(h) for h, _ in states]
    return torch.stack(outputs)


def seconds(net: TreeLSTM, logits_of: Callable[[Tensor], Tensor], trees: Tensor) -> tuple[float, Tensor]:
    """Of a step, and its logits."""
    net.zero_grad()
    started = time.perf_counter()
    logits = logits_of(trees)
    torch.autograd.backward(F.cross_entropy(logits, trees[..., LABEL][trees[..., LABEL] >= 0].long()))
    return time.perf_counter() - started, logits.detach()


def measure(count: int, rounds: int, width: int, seed: int) -> dict[str, Any]:
    """The figures of a run."""
    torch.manual_seed(seed)
    rng, order = np.random.default_rng(seed), random.Random(seed)
    net = nets.build("tree_lstm", width, len(sst.NODES), dropout=0.0)
    assert isinstance(net, TreeLSTM)
    table = (PAD, UNKNOWN, *map(str, range(WORDS)))
    words = Words(table, rng.standard_normal((len(table), width)).astype(np.float32))
    net.embed(torch.from_numpy(words.vectors_VD))
    ways: dict[str, Callable[[Tensor], Tensor]] = {"levels": net.train(), "nodes": lambda rows: node_by_node(net, rows)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    nodes, difference = [], 0.0
    for turn in range(rounds + 1):
        trees = torch.from_numpy(
            encoded_trees(TreeRows([random_tree(rng) for _ in range(count)], sst.NODES), words, 2 * LEAVES[1])
        )
        logits = {}
        for name in order.sample(list(ways), len(ways)):
            took, logits[name] = seconds(net, ways[name], trees)
            if turn:  # the first warms up
                times[name].append(took)
        nodes.append(int((trees[..., LABEL] >= 0).sum()))
        difference = max(difference, float((logits["levels"] - logits["nodes"]).abs().max()))
    return {
        "nodes": statistics.mean(nodes),
        **{f"{name}_ms": round(1000 * statistics.median(values), 2) for name, values in times.items()},
        "ratio": round(statistics.median(n / k for n, k in zip(times["nodes"], times["levels"], strict=True)), 2),
        "largest_difference": difference,
    }


def markdown(record: dict[str, Any]) -> str:
    """A row for each way."""
    levels, nodes = f"{record['levels_ms']:.0f} ms", f"{record['nodes_ms']:.0f} ms"
    setting = record["setting"]
    return "\n".join(
        [
            "| a step of the Tree-LSTM | time | times as fast |",
            "|---|---:|---:|",
            f"| node by node | {nodes} | 1 |",
            f"| level by level | {levels} | {record['ratio']:.1f} (goal {record['goal']:g}) |",
            "",
            f"Batches of {setting['trees']} trees, {record['nodes']:.0f} nodes; logits differ by"
            f" {record['largest_difference']:.1g} at most. {record['processor']}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--width", type=int, default=50, help="numbers of a word's vector")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    record = {
        "command": shlex.join(["python", "-m", "benchmarks.trees", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "processor": processor(),
        "setting": {key: getattr(options, key) for key in ("trees", "rounds", "width", "threads")},
        "goal": GOAL,
        **measure(options.trees, options.rounds, options.width, options.seed),
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(markdown(record))


if __name__ == "__main__":
    main()
