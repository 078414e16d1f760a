"""Optimizers without the compiler of torch.compile take the steps of torch's own."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch

from pipeline.training.recipe import eager_class
from tests.conftest import ROOT

KINDS: list[tuple[Any, dict[str, Any]]] = [
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    (torch.optim.Adam, {}),
    (torch.optim.AdamW, {"amsgrad": True}),
    (torch.optim.Adagrad, {}),
]


def steps(optimizer: torch.optim.Optimizer, targets: range) -> None:
    """Steps down a quadratic function of the parameters, with gradients that differ from step to step."""
    for n in targets:
        optimizer.zero_grad()
        loss = sum(((p - n) ** 2).sum() for group in optimizer.param_groups for p in group["params"])
        assert isinstance(loss, torch.Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def begun(kind: Any, options: dict[str, Any]) -> torch.optim.Optimizer:
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.nn.Parameter(torch.randn(5, generator=generator)) for _ in range(2))
    optimizer: torch.optim.Optimizer = kind([first], lr=0.1, weight_decay=0.01, **options)
    optimizer.add_param_group({"params": [second], "lr": 0.02})
    return optimizer


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=lambda value: getattr(value, "__name__", ""))
def test_steps_and_state_are_those_of_torch(kind: Any, options: dict[str, Any]) -> None:
    theirs, ours, resumed = begun(kind, options), begun(eager_class(kind), options), begun(eager_class(kind), options)
    steps(theirs, range(4))
    steps(ours, range(2))
    for group, other in zip(resumed.param_groups, ours.param_groups, strict=True):
        group["params"][0].data.copy_(other["params"][0])
    resumed.load_state_dict(copy.deepcopy(ours.state_dict()))
    for one in (ours, resumed):
        steps(one, range(2, 4))
        assert isinstance(one, kind) and one.param_groups[0]["params"][0].grad is not None
        state, expected = one.state_dict(), theirs.state_dict()
        assert state["param_groups"] == expected["param_groups"]
        torch.testing.assert_close(state["state"], expected["state"], rtol=0, atol=0)
        for group, other in zip(one.param_groups, theirs.param_groups, strict=True):
            assert torch.equal(group["params"][0], other["params"][0])


TRAINING = """
import sys
import torch
from pipeline.training.machine.device import repeatable
from pipeline.training.recipe import Recipe

for name in ("sgd", "adam", "adamw", "adagrad"):
    net = torch.nn.Linear(3, 2)
    with repeatable(torch.device("cpu"), 1):
        assert torch.are_deterministic_algorithms_enabled()
        optimizer = Recipe(net="mlp", epochs=1, optimizer=name).optimizer_of(net)
        optimizer.zero_grad()
        net(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    assert not torch.are_deterministic_algorithms_enabled()
print(*sys.modules)
"""


@pytest.mark.full
def test_training_loads_no_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", TRAINING], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch._dynamo", "sympy"} & set(done.stdout.split())
