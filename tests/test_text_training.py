"""Texts and trees through the stages: small ones that a net can learn, the loss of a tree, and what is refused."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from pipeline import data, stages
from pipeline.cli.stages import _result
from pipeline.config import Data, Params, Training
from pipeline.data import DataError, DataSet
from pipeline.data.raw import LABEL, Kind
from pipeline.data.texts import sst
from pipeline.nets.text import net_of
from pipeline.nets.tree_lstm import TreeLSTM
from pipeline.training import loop
from pipeline.training.batches import Batches, node_labels, node_weights
from pipeline.training.checkpoint import Checkpoint
from pipeline.training.resolution import plan_of
from pipeline.training.training_state import TrainingState
from service.models.model import Model
from tests import reference_nets
from trueodds import logits
from trueodds.bundle import Bundle, BundleError
from trueodds.errors import ConfigError
from trueodds.files import read_json
from trueodds.inputs import Limits

GOOD, BAD = ("good", "fine", "great"), ("bad", "poor", "awful")


def write_texts(path: Path, rows: int = 240) -> None:
    """One word of each decides the class."""
    rng = random.Random(0)
    lines = ["text,label"]
    for row in range(rows):
        words = [f"w{rng.randrange(20)}" for _ in range(rng.randrange(3, 12))]
        words.insert(rng.randrange(len(words)), rng.choice((BAD, GOOD)[row % 2]))
        lines.append(f"{' '.join(words)},{('no', 'yes')[row % 2]}")
    path.write_text("\n".join(lines) + "\n")


def write_trees(folder: Path, train: int = 60) -> None:
    """Sentences of one word that decides and others; a node has the label of what is below it, 2 of nothing."""
    rng = random.Random(1)
    folder.mkdir()

    def tree(words: list[str]) -> tuple[str, int]:
        if len(words) == 1:
            label = 4 if words[0] in GOOD else 0 if words[0] in BAD else 2
            return f"({label} {words[0]})", label
        cut = rng.randrange(1, len(words))
        (left, a), (right, b) = tree(words[:cut]), tree(words[cut:])
        label = a if a != 2 else b
        return f"({label} {left} {right})", label

    for name, rows in zip(sst.FILES.values(), (train, 24, 24), strict=True):
        lines = []
        for row in range(rows):
            words = [f"w{rng.randrange(9)}" for _ in range(rng.randrange(6))]
            words.insert(rng.randrange(len(words) + 1), rng.choice((BAD, GOOD)[row % 2]))
            lines.append(tree(words)[0])
        (folder / name).write_text("\n".join(lines) + "\n")


def params(dataset: str, **training: Any) -> Params:
    return Params(data=Data(dataset=dataset), training=Training(threads=1, device="cpu", **training))


def run(settings: Params) -> float:
    """The stages up to evaluation; the error on the test rows."""
    for stage in (stages.fetch, stages.plan, stages.train, stages.calibrate, stages.evaluate):
        stage(settings)
    z = logits.read(stages.LOGITS, "test")
    assert z.logits_NC.shape[1] == len(data.read(stages.DATA).card["classes"])
    return float((z.logits_NC.argmax(1) != z.labels_N).mean())


def test_texts_of_ones_own_are_learned(workspace: Path) -> None:
    write_texts(workspace / "datasets" / "mine.csv")
    settings = params("mine", width=24, epochs=8, batch_size=16, learning_rate=0.005)
    assert data.kind_of(settings.data) == "text"
    assert run(settings) < 0.2
    dataset = data.read(stages.DATA)
    assert dataset.vectors is not None and dataset.tokenizer and dataset.card["input"]["kind"] == "text"
    assert "are random" in read_json(stages.EVALUATION / "metrics.json")["notes"][0]
    plan = read_json(stages.PLAN)
    assert plan["net"]["name"] == "gp_cnn" and plan["recipe"]["optimizer"] == "adam"


@pytest.mark.full
def test_texts_are_exported_and_answered(workspace: Path) -> None:
    """The bundle's probabilities are the calibrator's of the logits that the net had in the pipeline."""
    write_texts(workspace / "datasets" / "mine.csv")
    settings = params("mine", width=24, epochs=2, batch_size=16, learning_rate=0.005)
    run(settings)
    stages.export(settings)
    served, z = Model.load(stages.BUNDLE, threads=1), logits.read(stages.LOGITS, "test")
    rows = data.read(stages.DATA).arrays["test"][0]
    assert np.allclose(served.score(rows).probabilities_NC, served.bundle.calibrator(z.logits_NC), atol=1e-5)
    one = served.bundle.card.input.from_json(["w1 Good w3, w4"], Limits())
    assert served.score(one).index_N.tolist() == [1]


def test_trees_are_learned_and_not_served(workspace: Path) -> None:
    write_trees(workspace / "datasets" / "sst")
    settings = params("sst-binary", width=16, epochs=10)
    assert run(settings) < 0.1
    assert read_json(stages.PLAN)["recipe"]["vectors_rate"] == 0.1
    stages.BUNDLE.mkdir()
    (stages.BUNDLE / "card.json").write_text("of an earlier run")
    stages.export(settings)
    with pytest.raises(
        BundleError, match=r"holds no bundle: .*'sst-binary' holds trees, which the service does not take"
    ):
        Bundle.load(stages.BUNDLE)
    shown = _result()
    assert re.search(r"^Accuracy 9\d\.\d% on \d+ test rows.*\n.* the ECE from 0\.", shown)
    assert shown.endswith(f"evaluate stage.\nNext: look at {stages.EVALUATION}")


def trees(workspace: Path) -> DataSet:
    write_trees(workspace / "datasets" / "sst")
    return data.load(Data(dataset="sst-binary"))


def test_a_batch_is_the_mean_over_trees_of_the_sum_over_nodes(workspace: Path) -> None:
    """One step: AdaGrad with decay for the net, plain SGD for the words' vectors, by the gradient of a slow loss."""
    dataset = trees(workspace)
    plan = plan_of(Training(width=6, dropout=0.0), "sst-binary", "tree", held_out=False)
    net, twin = (net_of(plan.net, dataset) for _ in range(2))
    assert isinstance(net, TreeLSTM) and isinstance(twin, TreeLSTM) and net.head.out_features == 3
    twin.load_state_dict(net.state_dict())
    state = TrainingState.initial(plan, net.train())
    rows = torch.from_numpy(dataset.arrays["train"][0][:5])
    labels = node_labels(rows)
    loss = state.method.loss(net(rows), labels)
    state.descend(loss, len(labels), rows=len(rows))
    slow, _ = reference_nets.tree_logits(twin, rows)
    torch.autograd.backward(F.cross_entropy(slow, labels, reduction="sum") / 5)
    for name, parameter in twin.named_parameters():
        assert parameter.grad is not None
        if name == "vectors":
            g = parameter.grad
            expected = parameter - 0.1 * g
        else:
            g = parameter.grad + 1e-4 * parameter
            expected = parameter - 0.05 * g / (g.abs() + 1e-10)
        clear = g.abs() > 1e-5  # AdaGrad's first step is the gradient's sign, which rounding decides at 0
        assert torch.allclose(net.get_parameter(name)[clear], expected[clear], atol=1e-6), name


def test_weights_of_nodes(workspace: Path) -> None:
    dataset = trees(workspace)
    nodes = torch.from_numpy(dataset.arrays["train"][0][:4])
    weights, labels = node_weights(nodes, 0.25), node_labels(nodes)
    assert len(weights) == len(labels) == int((nodes[..., LABEL] >= 0).sum())
    assert int((weights == 1).sum()) == 4 and set(weights.tolist()) <= {1.0, 0.25}
    assert torch.equal(labels[weights == 1], torch.from_numpy(dataset.arrays["train"][1][:4]))
    batches = Batches.of(dataset, "train", torch.device("cpu"))
    assert batches.weights(nodes, 1.0) is None
    inputs, of_nodes = next(batches.shuffle(10, torch.Generator()))
    assert len(of_nodes) == int((inputs[..., LABEL] >= 0).sum()) and batches.rows_of(inputs) == len(inputs)
    inputs, of_roots = next(batches.in_order(10))
    assert torch.equal(of_roots, torch.from_numpy(dataset.arrays["train"][1][:10]))


def test_weights_multiply_the_losses_of_their_rows(workspace: Path) -> None:
    dataset = trees(workspace)
    plan = plan_of(Training(width=6, node_weight=0.0), "sst-binary", "tree", held_out=False)
    assert plan.recipe.node_weight == 0
    from pipeline.methods.batch import Batch

    rows = torch.from_numpy(dataset.arrays["train"][0][:4])
    labels, weights = node_labels(rows), node_weights(rows, 0.0)
    z = torch.randn(len(labels), 3)
    weighted = plan.method.build().objective(Batch(logits=z, targets=labels, labels=labels, weights=weights))
    roots = weights == 1
    assert torch.allclose(weighted, F.cross_entropy(z[roots], labels[roots], reduction="sum") / len(labels))


@pytest.mark.parametrize("epochs", [3])
def test_a_killed_run_of_trees_goes_on_to_the_same_weights(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    dataset = trees(workspace)
    plan = plan_of(Training(width=6, epochs=epochs, threads=1, device="cpu"), "sst-binary", "tree", held_out=False)
    whole = loop.train(dataset, plan, workspace / "a")
    save = Checkpoint.save

    def killed(self: Checkpoint, state: TrainingState, *, last: bool = False) -> None:
        save(self, state, last=last)
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        loop.train(dataset, plan, workspace / "b")
    monkeypatch.setattr(Checkpoint, "save", save)
    again = loop.train(dataset, plan, workspace / "b")
    for name, tensor in whole.net.state_dict().items():
        assert torch.equal(tensor, again.net.state_dict()[name]), name
    assert np.array_equal(whole.logits["test"], again.logits["test"])


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("text", {"method": "mixup"}, r"mixup mixes the numbers of rows, and data set 'mine' holds texts"),
        ("tree", {"method": "mixup"}, r"mixup mixes .* holds trees"),
        ("text", {"method": "augmix"}, r"augmix changes the pixels of images, and data set 'mine' holds texts"),
        ("text", {"flip": True}, r"they move the pixels of images, .* recipe: newsgroups"),
        ("tree", {"padding": 2}, r"they move the pixels of images, .* recipe: sst"),
        ("text", {"randaugment": 2}, r"change the pixels of images"),
        ("text", {"net": "resnet8"}, r"'resnet8', which takes images, .* holds texts; set net: gp_cnn"),
        ("image", {"net": "gp_cnn"}, r"'gp_cnn', which takes texts, and data set 'mine' holds images"),
        (
            "text",
            {"node_weight": 0.5},
            r"node_weight is 0\.5, which needs trees, .* holds texts; set it to null",
        ),
        ("image", {"vectors_rate": 0.1}, r"training\.vectors_rate is 0\.1, which needs trees"),
        ("tree", {"method": "flg_sece"}, r"learns from set-aside rows, which trees do not support"),
    ],
)
def test_what_does_not_fit_words(kind: Kind, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(Training(**settings), "mine", kind, held_out=True)


@pytest.mark.parametrize(
    ("recipe", "kind", "epochs", "selection"),
    [("newsgroups", "text", 50, "val_error"), ("newsgroups-official", "text", 22, "val_error"),
     ("sst", "tree", 25, "val_error"), ("sst-official", "tree", 10, "val_error")],
)  # fmt: skip
def test_the_recipes_of_the_focal_paper(recipe: str, kind: Kind, epochs: int, selection: str) -> None:
    plan = plan_of(Training(recipe=recipe), "mine", kind, held_out=False)
    assert (plan.recipe.epochs, plan.recipe.selection, plan.net.kind) == (epochs, selection, kind)
    assert plan.recipe.schedule == "constant"


def test_data_that_are_refused(workspace: Path) -> None:
    with pytest.raises(DataError, match=r"'sst-fine' was not found: searched datasets/sst/, .*trainDevTestTrees_PTB"):
        data.load(Data(dataset="sst-fine"))
    with pytest.raises(DataError, match=r"data\.embeddings is 'glove\.txt', but digits holds images"):
        data.load(Data(embeddings="glove.txt"))
    write_texts(workspace / "datasets" / "mine.csv", rows=20)
    with pytest.raises(DataError, match=r"data\.embeddings is 'nowhere\.txt', which does not exist"):
        data.load(Data(dataset="mine", embeddings="nowhere.txt"))
    with pytest.raises(DataError, match=r"data\.image_size is 8, but mine holds texts"):
        data.load(Data(dataset="mine", image_size=8))
