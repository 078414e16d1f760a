"""When a penalty acts: in the objective, by a gradient of its own, or in steps of its own. Against slow twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline import data, methods, nets
from pipeline.config import Data, OptionValue, Training
from pipeline.methods import penalties
from pipeline.methods.gradients import backward
from pipeline.methods.roles import When
from pipeline.methods.weighted_penalty import WeightedPenalty
from pipeline.training.batches import Batches
from pipeline.training.recipes import resolve
from tests.methods.batches import batch
from tests.training_runs import train
from trueodds.errors import ConfigError


def net_and_rows() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    return net, *batch(6, rows=20)[:1], torch.arange(20) % 4


def gradients(net: nn.Module, value: Tensor) -> list[Tensor]:
    net.zero_grad()
    value.backward(retain_graph=True)  # type: ignore[no-untyped-call]  # torch's
    return [parameter.grad.clone() for parameter in net.parameters()]  # type: ignore[union-attr]


def norm(parts: list[Tensor]) -> float:
    return float(np.sqrt(sum(float(value) ** 2 for part in parts for value in part.flatten())))


def test_separate_gradients_have_the_stated_norms() -> None:
    """g + .7 |g| h / |h| + 2 |g| e / |e|, every gradient by its own backward pass."""
    net, images, labels = net_and_rows()
    options: dict[str, OptionValue] = {"mdca.beta": 3, "mmce.beta": 0.7, "entropy.beta": 2}
    options |= {"mmce.when": "separate", "entropy.when": "separate"}
    method = methods.build("focal+mdca+mmce+entropy", **options)
    logits = net(images)
    primary = gradients(net, methods.build("focal+mdca", beta=3).loss(logits, labels))
    own = [gradients(net, one(logits, labels)) for one in (penalties.mmce, penalties.entropy)]
    expected = [
        g + sum(w * norm(primary) / norm(h) * h[i] for w, h in zip((0.7, 2.0), own, strict=True))
        for i, g in enumerate(primary)
    ]
    net.zero_grad()
    backward(method.loss(logits, labels), method.apart(logits, labels), net)
    for parameter, gradient in zip(net.parameters(), expected, strict=True):
        assert parameter.grad is not None and torch.allclose(parameter.grad, gradient, rtol=1e-10, atol=1e-14)


def test_a_penalty_without_gradient_leaves_the_objectives() -> None:
    net, images, labels = net_and_rows()
    logits = net(images)
    plain = gradients(net, methods.build("ce").loss(logits, labels))
    backward(methods.build("ce").loss(logits, labels), [(1.0, logits.sum() * 0.0)], net)
    assert all(torch.equal(p.grad, g) for p, g in zip(net.parameters(), plain, strict=True))  # type: ignore[arg-type]


def test_joint_and_separate_and_interleaved_set_in_at_their_start() -> None:
    logits, labels = batch(4)
    late: dict[str, Any] = {"start": 0.5, "beta": 2.0}
    plain = methods.build("ce").loss(logits, labels)
    joint = methods.build("ce+mmce", **late)
    assert joint.loss(logits, labels, progress=0.49) == plain < joint.loss(logits, labels, progress=0.5)
    separate = methods.build("ce+mmce", when="separate", **late)
    assert separate.loss(logits, labels, progress=0.5) == plain
    assert separate.apart(logits, labels, progress=0.49) == [] == joint.apart(logits, labels, progress=0.5)
    (vector,) = separate.apart(logits, labels, progress=0.5)
    assert vector == (2.0, penalties.mmce(logits, labels))
    halfway = methods.build("ce+mmce", when="separate", schedule="ramp", **late).apart(logits, labels, progress=0.75)
    assert halfway == [(1.0, penalties.mmce(logits, labels))]
    interleaved = methods.build("ce+mmce", when="interleaved", every=3, **late)
    assert interleaved.loss(logits, labels, progress=0.5) == plain
    assert [bool(interleaved.due(step, 0.5)) for step in range(1, 8)] == [False, False, True] * 2 + [False]
    assert not interleaved.due(3, 0.49) and not joint.due(3, 1.0)
    needs = {when: methods.resolve("ce+mmce", {"when": when}).held_out_parts != () for when in get_args(When)}
    assert needs == {"joint": False, "separate": False, "interleaved": True}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_interleaved_steps_are_those_of_a_plain_loop(
    reduction: Literal["mean", "sum"], workspace: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two epochs with every second step followed by one on set-aside rows, written out."""
    digits = data.load(Data(train_size=200, held_out_size=100))
    decay = 0.1
    training = Training(epochs=2, width=4, threads=1, reduction=reduction, clip=2.0, method="mmce_interleaved",
                        method_options={"every": 2, "beta": 3.0}, milestones=[0.5], device="cpu",
                        weight_decay=decay)  # fmt: skip
    orders: list[list[Tensor]] = []
    permutation = torch.randperm

    def recorded(n: int, **options: Any) -> Tensor:
        orders.append([permutation(n, **options)])
        return orders[-1][0]

    monkeypatch.setattr(torch, "randperm", recorded)
    monkeypatch.setattr("pipeline.training.batches.Augmentation._move", lambda _self, images, _generator: images)
    result = train(digits, training, tmp_path / "c")
    held_out_orders = [order for (order,) in orders if len(order) == 100]
    train_orders = [order for (order,) in orders if len(order) == 200]
    assert len(train_orders) == 2 and len(held_out_orders) == 2

    recipe = resolve(training, "digits", "image")
    torch.manual_seed(0)
    net = nets.build("resnet8", 1, 10, width=4).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    batches = {split: Batches.of(digits, split, torch.device("cpu")) for split in ("train", "held_out")}

    def step(loss: Tensor, rows: int, weight_decay: float) -> None:
        optimizer.param_groups[0]["weight_decay"] = weight_decay
        optimizer.zero_grad()
        (loss * (rows if reduction == "sum" else 1)).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        optimizer.step()

    net.train()
    done = 0
    for order, held_out_order in zip(train_orders, held_out_orders, strict=True):
        waiting = list(held_out_order.tensor_split(2))
        for rows in order.tensor_split(4):
            optimizer.param_groups[0]["lr"] = recipe.rate_at(done / 8)
            part = batches["train"]
            step(nn.functional.cross_entropy(net(part.normalise(part.rows[rows])), part.labels_N[rows]), 50, decay)
            done += 1
            if done % 2 == 0:
                part, rows = batches["held_out"], waiting.pop(0)
                step(3.0 * penalties.mmce(net(part.normalise(part.rows[rows])), part.labels_N[rows]), 50, 0.0)
    for name, value in net.state_dict().items():
        assert torch.allclose(value, result.net.state_dict()[name], rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("ce+mmce", {"when": "seperate"}, "unknown value of option when .*: 'seperate'; allowed: joint, separate,"),
        (
            "ce+mmce",
            {"every": 2},
            "option every of .* only with when: interleaved, and when of mmce is joint; set when: interleaved, or",
        ),
        ("ce+mmce", {"when": "interleaved", "every": 0}, r"every = 0 .* allowed is 1 to"),
        ("ce+augmix+mixup", {}, "mixup mixes images that augmix has views of; leave one out"),
    ],
)
def test_what_does_not_fit_is_explained(spec: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        methods.build(spec, **options)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("mbls", {}, [("margin", 12, 0)]),
        ("mbls", {"margin": 0}, [("margin", 12, 12)]),
        ("mmce_late", {}, [("mmce", 6, 6)]),
        ("mmce_late+entropy", {"mmce.start": 1, "entropy.beta": 0}, [("mmce", 0, 0), ("entropy", 12, 12)]),
        (
            "mmce_interleaved+margin+ks",
            {"mmce.every": 5, "margin.when": "separate"},
            [("mmce", 2, 2), ("margin", 12, 0), ("ks", 12, 12)],
        ),
    ],
)
def test_a_penalty_that_never_acted_is_said(
    name: str, options: dict[str, OptionValue], expected: list[tuple[str, int, int]], workspace: Path, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Counted over steps of training alone; a margin of 6 is never exceeded by the logits of so short a run."""
    caplog.set_level("INFO")
    rows = data.load(Data(train_size=200, held_out_size=100))
    settings = train(rows, Training(epochs=3, width=4, method=name, method_options=options), tmp_path / "c").settings
    tallies = [(line["name"], line["steps"], line["acted"]) for line in settings["penalties"]]
    assert tallies == expected
    assert [line["mean"] != 0 for line in settings["penalties"]] == [acted > 0 for _, _, acted in expected]
    notes = {
        ("margin", 12, 0): "The penalty margin never acted: it was 0 at each of its 12 steps.",
        ("mmce", 0, 0): "The penalty mmce never acted: no step of the run was its own (start 1).",
        ("entropy", 12, 12): "The penalty entropy never acted: its weight beta is 0.",
    }
    of_parts = [notes[line] for line in expected if line in notes]
    assert settings["notes"][-len(of_parts) or len(settings["notes"]) :] == of_parts
    assert settings["notes"][: len(settings["notes"]) - len(of_parts)] == (
        ["Training also used the 100 set-aside rows."] if "interleaved" in name else []
    )
    assert all(note in caplog.text for note in of_parts)
    for part, steps, acted in expected:
        assert f"penalty {part}: not 0 at {acted} of its {steps} steps, mean" in caplog.text


def test_a_tally_counts_what_is_not_0_where_gradients_are_on() -> None:
    values = iter([0.0, 0.5, 0.0, -2.0, 1.0])
    term = WeightedPenalty(lambda logits, labels: torch.tensor(next(values)))
    for _ in range(4):
        term.value(torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64))
    with torch.no_grad():
        assert term.value(torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64)) == 1
    assert (term.tally.steps, *term.tally.read()) == (4, 2, -0.375)


def test_a_relative_weight_follows_the_loss() -> None:
    """weight m(L) / m(penalty), written out over three steps; a step that is looked at moves nothing."""
    method = methods.build("ce+mmce", beta=0.5, relative=True)
    loss_mean = penalty_mean = 0.0
    for step in range(3):
        logits, labels = batch(4, rows=20, seed=step)
        ce = methods.build("ce").loss(logits, labels).item()
        value = penalties.mmce(logits, labels).item()
        loss_mean = ce if step == 0 else 0.99 * loss_mean + 0.01 * ce
        penalty_mean = value if step == 0 else 0.99 * penalty_mean + 0.01 * value
        with torch.no_grad():
            looked = method.loss(logits, labels)
        total = method.loss(logits.requires_grad_(), labels)
        assert total.item() == pytest.approx(ce + 0.5 * loss_mean / penalty_mean * value, rel=1e-12)
        assert looked.item() == pytest.approx(total.item(), rel=1e-12)
    assert method.figures() == {"relative_mmce": pytest.approx(0.5 * loss_mean / penalty_mean)}
    again = methods.build("ce+mmce", beta=0.5, relative=True)
    again.restore(method.state())
    assert again.loss(logits, labels).item() == pytest.approx(method.loss(logits, labels).item(), rel=1e-12)


def test_a_relative_weight_makes_the_scale_of_a_penalty_no_matter() -> None:
    logits, labels = batch(4, rows=20)
    logits.requires_grad_()
    plain, scaled = methods.build("ce+mmce", relative=True), methods.build("ce+mmce", relative=True)
    scaled.penalties[0].__dict__["penalty"] = lambda z, y: 30 * penalties.mmce(z, y)
    losses = [method.loss(logits, labels) for method in (plain, scaled)]
    assert losses[0].item() == pytest.approx(2 * methods.build("ce").loss(logits, labels).item())
    slopes = [torch.autograd.grad(loss, logits)[0] for loss in losses]
    assert torch.allclose(slopes[0], slopes[1], rtol=1e-10)
    term = WeightedPenalty(lambda z, y: z.sum() * 0, 1.0, relative=True)
    assert term.joint_term(logits, labels, 0.0, torch.tensor(2.0), is_step=True).item() == 0


def test_a_relative_weight_is_for_joint_penalties() -> None:
    with pytest.raises(ConfigError, match=r"option relative .* has an effect only with when: joint"):
        methods.build("mmce_separate", relative=True)
