"""Parts that learn by looking ahead: their gradient against double backward and differences, what they leave alone."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline import methods, nets
from pipeline.config import OptionValue
from pipeline.methods import penalties
from pipeline.methods.batch import ForwardPass
from pipeline.methods.looking_ahead import Descent, outer_penalty
from pipeline.methods.meta.gamma_net import GammaNet
from pipeline.methods.meta.learned_histogram import LearnedHistogram
from pipeline.methods.meta.learned_weights import LearnedWeights
from pipeline.methods.meta.lookahead import logit_tangent
from pipeline.methods.meta.meta_learner import MetaLearner
from pipeline.methods.meta.outer import OuterLoss
from pipeline.methods.method import Method
from pipeline.methods.positive import POSITIVE
from pipeline.nets.net import Net
from tests.reference_meta import outer_after
from trueodds.errors import ConfigError

CLASSES = 4
PARTS: dict[str, tuple[str, dict[str, OptionValue]]] = {
    "gamma_net": ("focal+gamma_net", {"tau": 0.5}),
    "gamma_net, dual_focal": ("dual_focal+gamma_net+mdca", {"tau": 0.5, "positive": "softplus", "outer": "ce+dece"}),
    "unit_l2": ("ce+unit_l2+smoothing", {"outer": "ce"}),
    "learned_smoothing": ("focal+learned_smoothing", {"per": "class", "outer": "mmce"}),
    "learned_weights": ("focal+learned_weights+mmce+mdca", {"mmce.beta": 2.0, "mdca.schedule": "decay", "outer": "ce"}),
    "learned_weights, relative": ("ce+cpc+learned_weights", {"relative": True, "outer": "ce"}),
    "learned_histogram": ("ce+learned_histogram", {"bins": 4, "outer": "sece", "sece.bandwidth": 0.1}),
}  # fmt: skip


def rows(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, 8, 8, generator=generator, dtype=torch.float64), torch.arange(count) % CLASSES


def made(spec: str, **options: OptionValue) -> tuple[Method, Net]:
    """A method on a small net in float64, its meta parameters away from their start."""
    torch.manual_seed(0)
    net = nets.build("resnet8", 3, CLASSES, width=4).double().train()
    method = methods.resolve(spec, options).build(net)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in learner(method).part.parameters():
            parameter.add_(0.05 * torch.rand(parameter.shape, generator=generator, dtype=torch.float64))
    return method, net


def learner(method: Method) -> MetaLearner:
    assert isinstance(method.meta, MetaLearner)
    return method.meta


def batch(net: Net, count: int = 10) -> ForwardPass:
    inputs, labels = rows(count, 2)
    return ForwardPass.of(net, inputs, labels, labels, 0.5)


def learned(
    method: Method, net: Net, one: ForwardPass, held_out: tuple[Tensor, Tensor], descent: Descent
) -> list[Tensor]:
    """The gradient that a meta step of rate 0 takes."""
    learner(method).learn(method, net, one, held_out, descent)
    return [parameter.grad for parameter in learner(method).part.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("lookahead", ["head", "all"])
@pytest.mark.parametrize(("summed", "clip"), [(True, 0.5), (False, 0.0), (True, 1e6), (False, 0.01)])
def test_the_gradient_is_that_of_double_backward_and_of_differences(
    part: str, lookahead: str, summed: bool, clip: float
) -> None:
    spec, options = PARTS[part]
    method, net = made(spec, **options, lookahead=lookahead, rate=0.0, optimizer="sgd")
    descent, held_out = Descent(0.3, summed, clip), rows(8, 3)
    one = batch(net)
    phi = list(learner(method).part.parameters())
    mine = learned(method, net, one, held_out, descent)
    whole = {"whole": lookahead == "all"}
    exact = torch.autograd.grad(
        outer_after(method, net, one, held_out, learner(method).outer, descent, **whole, graph=True), phi
    )
    size = torch.cat([g.flatten() for g in exact]).norm()
    assert size > 1e-6
    for ours, theirs in zip(mine, exact, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9 * float(size))
    generator, step = torch.Generator().manual_seed(4), 1e-5
    directions = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in phi]
    values = []
    for sign in (1, -1):
        for parameter, direction in zip(phi, directions, strict=True):
            parameter.data += sign * step * direction
        values.append(
            outer_after(method, net, one, held_out, learner(method).outer, descent, **whole, graph=False).detach()
        )
        for parameter, direction in zip(phi, directions, strict=True):
            parameter.data -= sign * step * direction
    slope = sum((g * d).sum() for g, d in zip(mine, directions, strict=True))
    assert float((values[0] - values[1]) / (2 * step)) == pytest.approx(float(slope), rel=1e-5, abs=1e-5 * float(size))


@pytest.mark.parametrize("positive", ["abs", "relu", "softplus", "sigmoid"])
def test_gamma_net_starts_at_1_and_equals_fl1(positive: str) -> None:
    """Whatever the features are, to 1e-6 in float32; with the size that the paper's share of .46% says."""
    torch.manual_seed(0)
    net = nets.build("resnet18", 3, 100)
    method = methods.resolve("flg", {"positive": positive}).build(net)
    size = sum(parameter.numel() for parameter in learner(method).part.parameters())
    assert size == 512 * 100 + 512 == 51_712
    assert learner(method).to_json()["share_of_net"] == pytest.approx(0.0046, abs=5e-5)
    features = 5 * torch.randn(64, 512, generator=torch.Generator().manual_seed(1))
    gamma = method.meta.part.gamma(features)
    assert gamma is not None and torch.allclose(gamma, torch.ones(64), rtol=0, atol=1e-6)
    logits, labels = net.head(features).detach(), torch.arange(64)
    plain = methods.build("fl1").loss(logits, labels)
    assert torch.allclose(method.loss(logits, labels, features), plain, rtol=1e-6)


def test_gamma_net_is_the_papers_formula_row_by_row() -> None:
    """Eqs. 4 and 5 with x~ written out, of features that are constants."""
    method, net = made("flg", cap=1.5)
    part = learner(method).part
    assert isinstance(part, GammaNet)
    x_ND = torch.randn(7, net.head.in_features, dtype=torch.float64, requires_grad=True)
    heads, weight = part.heads_DK.detach(), part.weight_D.detach()
    values = [min(abs(float(torch.softmax(x @ heads, 0) @ heads.T @ weight)) / 0.01, 1.5) for x in x_ND.detach()]
    gamma = part.gamma(x_ND)
    assert gamma.tolist() == pytest.approx(values, rel=1e-12)
    assert max(values) == 1.5 and torch.autograd.grad(gamma.sum(), x_ND, allow_unused=True)[0] is None
    part.count(x_ND.detach())
    assert part.to_json() == {"share_at_cap": pytest.approx(values.count(1.5) / 7)}


def test_gamma_net_counts_on_the_device_of_its_net() -> None:
    """The meta device stands for a GPU: it also refuses to be mixed with tensors of the CPU."""
    method, net = made("flg")
    part = learner(method).part.to("meta")
    part.count(torch.empty(7, net.head.in_features, dtype=torch.float64, device="meta"))
    assert part.capped.is_meta


def test_forms_that_make_gamma_positive() -> None:
    raw = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=torch.float64)
    values = {name: form(raw) for name, (form, _) in POSITIVE.items()}
    assert values["abs"].tolist() == [2, 0, 0.5, 3] and values["relu"].tolist() == [0, 0, 0.5, 3]
    assert values["minmax"].tolist() == pytest.approx([0, 0.8, 1.0, 2])
    assert values["sigmoid"][1] == 1 and values["softplus"].tolist() == pytest.approx(raw.exp().log1p().tolist())
    assert POSITIVE["minmax"][0](torch.full((3,), 0.7)).tolist() == [0, 0, 0]
    for form, start in POSITIVE.values():
        assert start is None or float(form(torch.tensor(start, dtype=torch.float64))) == pytest.approx(1, abs=1e-12)


def test_the_spread_of_gamma_grows_within_50_steps() -> None:
    method, net = made("flg_sece", rate=1e-3)
    part = learner(method).part
    assert isinstance(part, GammaNet)
    part.attach(net, whole=False)
    learner(method).attach(net)
    one, held_out = batch(net, 40), rows(40, 3)
    assert float(part.gamma(one.features).detach().std()) < 1e-6
    for _ in range(50):
        learner(method).learn(method, net, one, held_out, Descent(0.1, True, 2.0))
    assert float(part.gamma(one.features).detach().std()) > 1e-3


@pytest.mark.parametrize("lookahead", ["head", "all"])
def test_a_meta_step_leaves_statistics_weights_and_random_numbers_alone(lookahead: str) -> None:
    method, net = made("flg_dece", lookahead=lookahead)
    one = batch(net)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    kept = dict(net.named_buffers())
    random = torch.get_rng_state()
    learner(method).learn(method, net, one, rows(8, 3), Descent(0.3, True, 2.0))
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert all(buffer is kept[name] for name, buffer in net.named_buffers())
    assert torch.equal(torch.get_rng_state(), random)
    method.loss(one.logits, one.labels, one.features).backward()  # type: ignore[no-untyped-call]  # torch's
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_the_forward_mode_pass_sees_the_same_dropout() -> None:
    torch.manual_seed(0)
    net = nets.build("mlp", 6, CLASSES, dropout=0.5).double().train()
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(20, 6, generator=generator, dtype=torch.float64)
    one = ForwardPass.of(net, inputs, torch.arange(20) % 4, torch.arange(20) % 4, 0.0)
    v = {n: torch.randn(p.shape, generator=generator, dtype=torch.float64) for n, p in net.named_parameters()}
    mine = logit_tangent(net, v, inputs, one.random)
    for n in range(0, 20, 7):
        gradients = torch.autograd.grad(one.logits[n, 1], list(net.parameters()), retain_graph=True)
        slope = sum((g * v[name]).sum() for g, (name, _) in zip(gradients, net.named_parameters(), strict=True))
        assert float(mine[n, 1]) == pytest.approx(float(slope), rel=1e-10)


def test_their_code_also_trains_the_net_on_the_held_out_rows() -> None:
    """The step of the public code, by autograd alone: sum of the losses, nothing clipped, no gradient cleared."""
    method, net = made("ce_meta_dece", variant="official", outer="ce+dece", outer_weight=0.5)
    one, (inputs, labels) = batch(net), rows(8, 3)
    theta, part = [net.head.weight, net.head.bias], learner(method).part
    statistics = net.get_buffer("norm.running_mean").clone()
    penalty = part.penalty()
    assert penalty is not None
    loss = torch.nn.functional.cross_entropy(one.logits, one.labels, reduction="sum") + penalty
    ahead = [
        p - 0.3 * g for p, g in zip(theta, torch.autograd.grad(loss, theta, create_graph=True), strict=True)
    ]  # fmt: skip
    logits = torch.nn.functional.linear(net.features(inputs), *ahead)
    outer = torch.nn.functional.cross_entropy(logits, labels) + 0.5 * penalties.dece(logits, labels)
    expected = torch.autograd.grad(outer, [*part.parameters(), *net.parameters()], retain_graph=True)
    moved = net.get_buffer("norm.running_mean").clone()
    net.get_buffer("norm.running_mean").data.copy_(statistics)
    leak = learner(method).learn(method, net, one, (inputs, labels), Descent(0.3, False, 1e-3))
    mine = [*(parameter.grad for parameter in part.parameters()), *leak]
    assert len(mine) == len(expected) and any(float(part.abs().sum()) > 0 for part in leak[:-2])
    for ours, theirs in zip(mine, expected, strict=True):
        assert ours is not None and torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    assert torch.allclose(net.get_buffer("norm.running_mean"), moved) and not torch.equal(moved, statistics)


def test_learned_smoothing_stays_between_0_and_a_half() -> None:
    for start, sign in ((0.0, 1.0), (0.5, -1.0)):
        method, net = made("ce+learned_smoothing", epsilon=start, rate=10.0, optimizer="sgd", outer="ce")
        (epsilon,) = learner(method).part.parameters()
        epsilon.data.fill_(start)
        learner(method).learn(method, net, batch(net), rows(8, 3), Descent(0.3 * sign, True, 0.0))
        assert 0 <= float(epsilon.detach()) <= 0.5
    method, net = made("ce+learned_smoothing", per="class")
    logits, labels = batch(net).logits.detach(), batch(net).labels
    (epsilon,) = learner(method).part.parameters()
    epsilon.data = torch.tensor([0.0, 0.1, 0.2, 0.3], dtype=torch.float64)
    by_class = [methods.build("ce+smoothing", epsilon=k / 10).per_sample(logits, labels) for k in range(4)]
    expected = torch.stack(by_class)[labels, torch.arange(len(labels))]
    assert torch.allclose(method.per_sample(logits, labels), expected)
    mixed = torch.nn.functional.one_hot(labels, CLASSES).double()
    assert torch.allclose(method.per_sample(logits, mixed), expected)


def test_learned_weights_multiply_the_betas() -> None:
    method, net = made("ce+learned_weights+mmce+mdca", **{"mmce.beta": 2.0, "most": 1.5})
    one, part = batch(net), learner(method).part
    assert isinstance(part, LearnedWeights)
    for name, log in (("mmce", 0.25), ("mdca", -0.5)):
        part.logs[name].data.fill_(log)
    betas = {"mmce.beta": 2.0 * math.exp(0.25), "mdca.beta": math.exp(-0.5)}
    plain = methods.build("ce+mmce+mdca", **betas).loss(one.logits, one.labels)
    assert torch.allclose(method.loss(one.logits, one.labels), plain, rtol=1e-12)
    part.project()
    assert learner(method).figures()["factor_mmce"] == pytest.approx(math.exp(0.25))
    assert learner(method).figures()["factor_mdca"] == pytest.approx(1 / 1.5)
    fresh = methods.resolve("ce+learned_weights+mmce", {}).build(net)
    assert torch.equal(fresh.loss(one.logits, one.labels), methods.build("ce+mmce").loss(one.logits, one.labels))


def test_learned_weights_move_against_a_harmful_penalty() -> None:
    """The outer loss is cross entropy, and the penalty rewards wrong answers: its weight falls."""
    method, net = made("ce+mmce+learned_weights", beta=1.0, rate=0.1, outer="ce")
    method.penalties[0].__dict__["penalty"] = lambda z, y: -torch.nn.functional.cross_entropy(z, y)
    one = batch(net, 40)
    (log,) = learner(method).part.parameters()
    log.data.zero_()
    for _ in range(5):
        learner(method).learn(method, net, one, rows(40, 2), Descent(0.1, False, 0.0))
    assert float(log.detach()) < -0.1


def slow_histogram(
    logits: Tensor, labels: Tensor, centres: list[float], widths: list[float], beta: float
) -> float:  # fmt: skip
    total, bins = 0.0, len(centres)
    for centre, width in zip(centres, widths, strict=True):
        gap = 0.0
        for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
            p = [math.exp(z - max(row)) for z in row]
            c = min(max(max(p) / sum(p), 0.5 / bins), 1 - 0.5 / bins)
            right = float(row.index(max(row)) == label)
            gap += max(0.0, 1 - abs(c - centre) / width) * (right - max(p) / sum(p))
        total += abs(gap) / len(logits)
    return beta * total


def test_a_learned_histogram_is_the_slow_twin_and_starts_as_the_fixed_one() -> None:
    method, net = made("ce+learned_histogram", bins=5, **{"learned_histogram.beta": 2.0})
    part = learner(method).part
    assert isinstance(part, LearnedHistogram)
    logits = 2 * torch.randn(30, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    labels = torch.arange(30) % CLASSES
    part.attach(net, whole=False)
    start = penalties.soft_histogram(logits, labels, bins=5)
    assert torch.allclose(part.batch_penalty(logits, labels), 2 * start, rtol=1e-12)
    centres, widths = [0.05, 0.31, 0.45, 0.74, 0.88], [0.12, 0.5, 0.2, 0.15, 0.3]
    part.centre_B.data = torch.tensor(centres, dtype=torch.float64)
    part.log_width_B.data = (torch.tensor(widths, dtype=torch.float64) * 5).log()
    expected = slow_histogram(logits, labels, centres, widths, 2.0)
    assert part.batch_penalty(logits, labels).item() == pytest.approx(expected, rel=1e-12)
    parameters = (part.centre_B, part.log_width_B)
    assert torch.autograd.gradcheck(lambda z, *_: part.batch_penalty(z, labels), (logits.requires_grad_(), *parameters))
    part.centre_B.data[0], part.log_width_B.data[1] = -0.5, 9.0
    part.project()
    figures = part.figures()
    assert float(figures["centre_1"]) == 0 and float(figures["width_2"]) == pytest.approx(2.0)


def test_outer_losses() -> None:
    logits, labels = batch(made("flg")[1]).logits.detach(), rows(10, 2)[1]
    ce = torch.nn.functional.cross_entropy(logits, labels)
    assert OuterLoss("ce", 0.5)(logits, labels) == ce
    assert OuterLoss("sece", 0.5, penalties.sece)(logits, labels) == penalties.sece(logits, labels)
    assert OuterLoss("ce+dece", 0.25, penalties.dece)(logits, labels) == ce + 0.25 * penalties.dece(logits, labels)


@pytest.mark.parametrize(
    ("spec", "options", "expected"),
    [
        ("flg_sece", {"sece.bandwidth": 0.2}, {"bandwidth": 0.2, "variant": "soft"}),
        ("ce_meta_sece", {"bandwidth": 0.2, "variant": "official"}, {"bandwidth": 0.2, "variant": "soft"}),
        ("flg", {"outer": "ce+dece", "dece.temperature": 0.1}, {"temperature": 0.1}),
        ("flg", {"gamma_net.outer": "sb_ece", "sb_ece.order": 1.0}, {"order": 1.0}),
        ("focal+sece+gamma_net", {"sece.bandwidth": 0.2, "beta": 2.0}, {"bandwidth": 0.2}),
        ("flg", {}, {}),
    ],
)
def test_an_outer_losss_penalty_has_its_options(
    spec: str, options: dict[str, OptionValue], expected: dict[str, OptionValue]
) -> None:
    composition = methods.resolve(spec, options)
    method, _ = made(spec, **options)
    outer = learner(method).outer
    options_of_it = outer.penalty.keywords if isinstance(outer.penalty, functools.partial) else {}
    assert expected.items() <= options_of_it.items() and not {"beta", "when"} & options_of_it.keys()
    parts = composition.to_json()["parts"]
    assert all(parts[outer_penalty(outer.name)][name] == value for name, value in expected.items())
    logits, labels = 3 * torch.randn(200, CLASSES, dtype=torch.float64), torch.arange(200) % CLASSES
    name = outer_penalty(outer.name)
    plain = OuterLoss(outer.name, outer.weight, getattr(penalties, name) if name else None)
    assert bool(outer(logits, labels) != plain(logits, labels)) == bool(expected)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("ce+gamma_net", {}, "gamma_net sets gamma for each row, and ce has no gamma; use focal, inverse_focal"),
        ("focal+gamma_net", {"gamma": 2.0}, "gamma_net sets gamma for each row; leave the option gamma out"),
        ("focal+gamma_net+unit_l2", {}, "gamma_net and unit_l2 both look a step ahead; name one of them"),
        ("flg", {"outer": "focal"}, "unknown value of option outer .*'focal'; allowed: ce, mmce"),
        ("flg", {"outer": "ce+sec"}, r"unknown value of option outer .*Did you mean 'ce\+sece'"),
        ("flg", {"variant": "official", "lookahead": "all"}, "through the last layer only, as the public code does"),
        ("flg_sece", {"outer_weight": 0.1}, "needs an outer loss of two terms, such as outer: ce.dece; leave"),
        ("consistency+unit_l2", {"gra": False}, "the look-ahead of unit_l2 does not support this; leave gra out"),
        ("flg", {"sece.bandwidth": 0.1}, "unknown option of method 'flg': 'sece.bandwidth'"),
        ("flg_sece", {"sece.bandwidth": 0.0}, "option bandwidth = 0.0 of method 'flg_sece': allowed is 1e-06 to"),
        ("flg_sece", {"sece.beta": 1.0}, "unknown option of method 'flg_sece': 'sece.beta'"),
        (
            "ce+learned_weights",
            {},
            "learned_weights learns the weights of joint penalties, and the method has none; add one",
        ),
        (
            "ce+mmce+learned_weights",
            {"when": "separate"},
            "weights of joint penalties, and the method has none; add one",
        ),
        ("flg", {"lookahead": "tail"}, "unknown value of option lookahead .* allowed: head, all"),
        ("flg", {"every": 0}, "option every = 0 .* allowed is 1 to"),
    ],
)
def test_what_does_not_fit_is_explained(spec: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        methods.resolve(spec, options)


def test_a_part_without_a_net_or_features_says_so() -> None:
    logits, labels = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
    for spec in ("ce+unit_l2", "ce+learned_smoothing", "ce+mmce+learned_weights", "ce+learned_histogram"):
        with pytest.raises(ValueError, match=r"build the method with a net: Composition.build\(net\)"):
            methods.build(spec).loss(logits, labels)
    with pytest.raises(ValueError, match="needs the features before the last layer"):
        methods.build("flg").loss(logits, labels)


class Distances(Net):
    """A net with a layer of which torch has no forward mode."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = torch.nn.Parameter(torch.rand(5, 6))
        self.head = torch.nn.Linear(5, CLASSES)

    def features(self, inputs: Tensor) -> Tensor:
        return torch.cdist(inputs, self.centres)


def test_a_net_without_a_forward_mode_is_refused_before_training() -> None:
    net = Distances()
    methods.resolve("flg", {}).build(net).meta.check(net, torch.rand(2, 6))
    with pytest.raises(ConfigError, match=r"needs forward-mode differentiation, and a layer.*; use lookahead: head"):
        methods.resolve("flg", {"lookahead": "all"}).build(net).meta.check(net, torch.rand(2, 6))
