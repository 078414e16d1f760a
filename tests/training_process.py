"""One of several processes under torchrun: gradients of methods in float64, as JSON files in the folder given."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from pipeline import methods, nets
from pipeline.methods.batch import ForwardPass
from pipeline.methods.looking_ahead import Descent
from pipeline.training.machine.processes import Processes, join
from pipeline.training.recipe import Recipe
from pipeline.training.training_state import TrainingState, WeightSelection

METHODS = ("ce", "mmce", "sb_ece", "mdca", "ce_meta_sece", "flg_sece", "mmce_separate", "ls05", "consistency")
ROWS, FEATURES, CLASSES = 23, 6, 4


def step(method_name: str, processes: Processes, folder: Path) -> None:
    """A whole step of the loop: the first process writes the loss, and the gradients that the optimizer is given."""
    torch.manual_seed(0)
    net = nets.resolve("mlp", width=8, depth=2, dropout=0.0).build(FEATURES, CLASSES).double()
    method = methods.resolve(method_name, {}).build(net)
    if isinstance(method.meta, torch.nn.Module):
        method.meta.double()
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(ROWS, FEATURES, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES, (ROWS,), generator=generator)
    held_out = inputs.flip(0) + 0.1, labels.flip(0)
    recipe = Recipe("mlp", 1, reduction="sum", clip=2.0)
    state = TrainingState(recipe, net, recipe.optimizer_of(net), method, WeightSelection("last"), processes=processes)

    def features_of(x: torch.Tensor) -> torch.Tensor:
        with processes.own_draws(torch.device("cpu")):
            features = net.features(processes.share(x))
        return processes.gather(features, len(x))

    state.set_rate(0.3)
    torch.manual_seed(2)
    batch = ForwardPass.of(net, inputs, labels, labels, 0.3, features_of=features_of)
    meta = [one.learn(method, net, batch, held_out, Descent(0.1, True, 2.0)) for one in method.meta.due(1)]
    loss = method.objective(batch)
    gradients: list[list[float]] = []
    state.optimizer.register_step_pre_hook(
        lambda *_: gradients.extend(g.flatten().tolist() for p in net.parameters() if (g := p.grad) is not None)
    )
    state.descend(loss, ROWS, method.apart(batch.logits, labels, progress=0.3))
    found = {
        "loss": float(loss.detach()),
        "gradients": gradients,
        "meta": [float(value) for value in method.meta.figures().values() if value is not None],
        "leaks": [sum(float(leak.sum()) for leak in one) for one in meta],
    }
    state.agree()
    if processes.is_first:
        (folder / f"{method_name}-{processes.world}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    with join("cpu") as together:
        for name in METHODS:
            step(name, together, Path(sys.argv[1]))
