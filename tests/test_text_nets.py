"""The nets of words against their slow twins, their parameters by hand, and the graph of the one that is served."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline import nets
from pipeline.data.raw import LABEL, Tree, TreeRows
from pipeline.data.texts import sst
from pipeline.data.texts.encoding import encode_trees, of_trees
from pipeline.export.to_bundle import Servable, write_onnx
from pipeline.nets.gp_cnn import GPCNN
from pipeline.nets.tree_lstm import TreeLSTM
from tests import reference_nets


def count(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def text_net(words: int = 30) -> GPCNN:
    torch.manual_seed(0)
    net = nets.build("gp_cnn", 6, 3, width=8)
    assert isinstance(net, GPCNN)
    net.embed(torch.randn(words, 6))
    return net.eval()


def test_parameters_are_those_of_the_public_code() -> None:
    assert (
        count(nets.build("gp_cnn", 100, 20)) == 100 * 128 * 5 + 128 + 2 * (128 * 128 * 5 + 128) + 128 * 129 + 20 * 129
    )
    leaf, gates, head = 2 * (300 * 150 + 150), 4 * 2 * (150 * 150 + 150), 150 * 3 + 3
    assert count(nets.build("tree_lstm", 300, 3)) == leaf + gates + head + 2 * 300  # two rows until `embed`


@pytest.mark.parametrize("length", [0, 1, 4, 20, 21, 22, 30, 400])
def test_a_text_as_in_the_code_wherever_its_padding_stands(length: int) -> None:
    net = text_net()
    ids = torch.randint(2, 30, (length,)).tolist()
    expected = reference_nets.gp_cnn(net, ids)
    rows = [[*ids, 0, 0], [0, *ids, 0], [1, *ids, 1], [*ids[: length // 2], 0, 1, *ids[length // 2 :]]]
    together = net(torch.tensor(rows))
    assert torch.allclose(together, expected.expand(4, -1), atol=1e-6)
    both = [torch.autograd.grad(z.square().sum(), list(net.parameters())) for z in (together[0], expected)]
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize("length", [978, 979, 980, 990, 999, 1000, 1001, 1050])
def test_a_long_text_as_in_the_code(length: int) -> None:
    """Fewer zeros than a window sees are left within 1,000, then none; of longer texts the last words count."""
    net = text_net()
    # The words in front differ most, so that a window too many would be seen.
    ids = [*([29] * 12), *torch.randint(2, 10, (length - 12,)).tolist()]
    net.vectors[29] *= 40
    row = torch.tensor([ids])
    assert torch.allclose(net(row)[0], reference_nets.gp_cnn(net, ids), atol=1e-5)
    assert torch.allclose(net(F.pad(row, (0, 40)))[0], reference_nets.gp_cnn(net, ids), atol=1e-5)


def test_texts_of_any_lengths_in_one_batch() -> None:
    net = text_net()
    lengths = torch.randint(0, 200, (40,)).tolist()
    texts = [torch.randint(0, 30, (length,)).tolist() for length in lengths]
    rows = torch.tensor([text + [0] * (200 - len(text)) for text in texts])
    assert torch.allclose(net(rows), torch.stack([reference_nets.gp_cnn(net, text) for text in texts]), atol=1e-6)


def test_only_the_layers_learn() -> None:
    net = text_net().train()
    assert torch.equal(net.vectors[:2], torch.zeros(2, 6)) and "vectors" in net.state_dict()
    before = net.vectors.clone()
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    torch.autograd.backward(net(torch.randint(0, 30, (4, 50))).square().sum())
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in net.parameters())
    optimizer.step()
    assert torch.equal(net.vectors, before)


@pytest.mark.full
def test_the_graph_of_a_text_net(tmp_path: Path) -> None:
    import onnxruntime

    net, path = text_net(), tmp_path / "model.onnx"
    servable = Servable(net, {"mean": [], "std": []}, "text").eval()
    write_onnx(servable, {"input_ids": torch.randint(0, 30, (2, 40)).numpy()}, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for shape in [(1, 1), (3, 7), (5, 400), (2, 985), (1, 1100)]:
        ids = torch.randint(0, 30, shape)
        (logits,) = session.run(["logits"], {"input_ids": ids.numpy()})
        with torch.no_grad():
            assert np.allclose(logits, net(ids).numpy(), atol=1e-5), shape


def random_tree(rng: np.random.Generator, leaves: int) -> Tree:
    """Of random form, with a label at most nodes."""
    words: list[str | None] = []
    left: list[int] = []
    right: list[int] = []

    def add(size: int) -> int:
        children = (-1, -1)
        if size > 1:
            split = int(rng.integers(1, size))
            children = add(split), add(size - split)
        words.append(None if size > 1 else str(rng.integers(8)))
        left.append(children[0])
        right.append(children[1])
        return len(words) - 1

    add(leaves)
    labels = rng.integers(-1, 3, len(words)).tolist()
    labels[-1] = int(rng.integers(2))
    return Tree(words, left, right, labels)


def trees(sizes: tuple[int, ...]) -> tuple[TreeLSTM, Tensor]:
    """A net in float64 and a batch of trees of so many leaves."""
    rng = np.random.default_rng(0)
    rows = TreeRows([random_tree(rng, size) for size in sizes], sst.NODES)
    words = of_trees({"train": rows}, None, seed=0)
    torch.manual_seed(0)
    net = nets.build("tree_lstm", 100, 3, width=5)
    assert isinstance(net, TreeLSTM)
    net.embed(torch.from_numpy(words.vectors_VD))
    net.classes = 2
    return net.double(), torch.from_numpy(encode_trees(rows, words, 2 * max(sizes) + 3))


@pytest.mark.parametrize("sizes", [(1,), (1, 1), (2, 1, 5), (9, 3, 14, 1, 6)])
def test_levels_are_nodes_one_by_one(sizes: tuple[int, ...]) -> None:
    """Outputs and gradients, of nodes in training and of roots in evaluation."""
    net, rows = trees(sizes)
    for dropout in (m for m in net.modules() if isinstance(m, torch.nn.Dropout)):
        dropout.p = 0.0
    labels = rows[..., LABEL][rows[..., LABEL] >= 0].long()
    slow_nodes, slow_roots = reference_nets.tree_logits(net, rows)
    fast = net.train()(rows)
    assert torch.allclose(fast, slow_nodes, rtol=1e-12, atol=1e-12)
    gradients = [
        torch.autograd.grad(F.cross_entropy(z, labels), list(net.parameters()), materialize_grads=True)
        for z in (fast, slow_nodes)
    ]
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)
    net.eval()
    assert torch.allclose(net(rows), slow_roots, rtol=1e-12, atol=1e-12)
    assert torch.equal(net.answers(net.features(rows)), net(rows)[:, :2])


def test_the_gradient_of_a_tree_is_numeric() -> None:
    net, rows = trees((3, 2))
    net.eval()
    weights = (net.leaf_cell.weight, net.left.weight, net.right.bias, net.vectors)
    assert torch.autograd.gradcheck(lambda *_: net(rows), weights, fast_mode=True)


def test_a_tree_does_not_see_its_neighbours() -> None:
    net, rows = trees((4, 7, 2))
    net.eval()
    together = net(rows)
    assert all(torch.allclose(together[k], net(rows[k : k + 1])[0], atol=1e-12) for k in range(3))
