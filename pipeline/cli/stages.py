"""The stages of dvc.yaml as commands that read params.yaml, and `all`, which runs them in order without DVC."""

from __future__ import annotations

import argparse
import logging
import os
from typing import TYPE_CHECKING

from pipeline import stages
from pipeline.cli import STAGE_COMMANDS, common
from trueodds.cli import Subparsers
from trueodds.errors import ConfigError
from trueodds.processes import binding

if TYPE_CHECKING:
    from pipeline.config import Params

ALL, FOLD, INT8 = "all", "export --fold", "export --int8"
FIT = "fit"
"""The stage `calibrate` by the name that it has in `trueodds`."""
EXAMPLES = {
    "fetch": ("fetch", "fetch dataset=cifar10"),
    "plan": ("plan", "plan method=focal"),
    "train": ("train", "train method=focal method_options.gamma=2 epochs=3"),
    "shift": ("shift shift=cifar-c", "shift shift=cifar-c 'shift_options={corruptions: [fog, snow], rows: 1000}'"),
    "calibrate": ("calibrate", "calibrate calibrator=vector"),
    FIT: (FIT, f"{FIT} calibrator=vector"),
    "evaluate": ("evaluate", "evaluate bins=20 'compare=[isotonic]'"),
    "export": ("export", FOLD, INT8),
    ALL: (ALL, f"{ALL} dataset=cifar10 method=focal epochs=2"),
}
CHECKED = ("fetch", "train", ALL)
"""Commands that take long or come before one that does. They check all names in the parameters first."""


def _all(params: Params) -> None:
    """Run every stage in order, without DVC. Meant for machines that have torch but no DVC."""
    for stage in stages.STAGES.values():
        stage(params)
    print(_result())


def _result() -> str:
    """Return the main numbers of the run in words, and the next command."""
    from trueodds.bundle import why_none
    from trueodds.files import read_json

    metrics = read_json(stages.EVALUATION / "metrics.json")
    before, after, name = metrics["before"], metrics["after"], metrics["calibrator"]["calibrator"]
    lines = [
        f"Accuracy {after['accuracy']:.1%} on {metrics['n']:,} test rows, mean confidence"
        f" {after['mean_confidence']:.1%}.",
        f"{name} changes the ECE from {before['ece']:.4f} to {after['ece']:.4f} (a calibrated model stays below"
        f" {after['floor_p95']:.4f} in 95% of samples), and the NLL from {before['nll']:.4f} to {after['nll']:.4f}.",
    ]
    if reason := why_none(stages.BUNDLE):
        return "\n".join([*lines, f"No bundle: {reason}.", f"Next: look at {stages.EVALUATION}"])
    return "\n".join([*lines, "Next: trueodds publish"])


WORK = stages.STAGES | {
    ALL: _all,
    FOLD: lambda _: print(stages.fold()),
    INT8: lambda params: print(stages.quantise(params)),
}


def add_parser(commands: Subparsers) -> None:
    for name, lines in EXAMPLES.items():
        epilog = common.examples(*lines, program="python -m pipeline" if name in STAGE_COMMANDS else "trueodds")
        work = "calibrate" if name == FIT else name
        parser = commands.add_parser(name, description=WORK[work].__doc__, epilog=epilog, intermix=True)
        parser.set_defaults(work=work)
        common.add_parameters(parser)
    commands.choices["train"].add_argument(
        "--processes", type=int, default=1, metavar="N", help="train in N processes on this machine (default: 1)"
    )
    forms = commands.choices["export"].add_mutually_exclusive_group()
    for option, work, about in (
        ("--fold", FOLD, f"write {stages.FOLDED}: one graph from rows to calibrated probabilities"),
        ("--int8", INT8, f"write {stages.INT8}: the bundle, quantised and calibrated anew"),
    ):
        forms.add_argument(option, dest="work", action="store_const", const=work, help=about)


def run(arguments: argparse.Namespace) -> int:
    binding.obey()
    world, rank = (int(os.environ.get(name, standard)) for name, standard in (("WORLD_SIZE", "1"), ("RANK", "0")))
    common.log_to_stderr(logging.CRITICAL if rank else logging.INFO)
    if world == 1:
        return _run(arguments)
    from pipeline.training.machine.launch import single_message

    with single_message(world, rank):
        if arguments.work != "train":
            raise ConfigError(
                f"torchrun started {world} processes of {arguments.work}, but only train can share its work; run it"
                f" in one process: trueodds {arguments.work}"
            )
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    """Check the parameters and run the command."""
    from pipeline import config, parameters

    work, overrides = arguments.work, parameters.parse_overrides(arguments.parameters)
    if work in parameters.STAGE_PARAMETERS:
        parameters.check_stage(work, overrides)
    params = config.load(arguments.params, overrides)
    if work in CHECKED:
        stages.check_names(params, stages.fetched_card() if work == "train" else None)
    try:
        if work == "train" and arguments.processes != 1:
            return _launch(arguments)
        WORK[work](params)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the next run continues from the last checkpoint") from None
    return 0


def _launch(arguments: argparse.Namespace) -> int:
    """Run `train` in several processes."""
    if arguments.processes < 1:
        raise ConfigError(f"--processes is {arguments.processes}; allowed are whole numbers from 1")
    from pipeline.training.machine.launch import launch

    return launch(arguments.processes, ["train", *arguments.parameters, "--params", str(arguments.params)])
