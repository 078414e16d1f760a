"""python -m pipeline <stage> [name=value ...]: one stage with the parameters of params.yaml, or another command.

fetch | train | calibrate | evaluate | export    a stage of dvc.yaml (`dvc repro` runs those that are out of date)
export --fold                                    artifacts/model_calibrated.onnx from the bundle, to serve elsewhere
export --int8                                    artifacts/bundle_int8 from the bundle: quantised and calibrated anew
all          every stage in order, without DVC: on a machine that has only torch
curves       draw artifacts/model: the epochs, and those that training.curves names, into artifacts/curves
gamma-curve  draw g(p, gamma), what focal loss makes of the gradient, into artifacts/curves
repro        `dvc repro` of this checkout as it is, in .run/workspace, so that the checkout stays untouched
demo         what `make run` does after `repro`: publish, serve, predict, label, report, summary
demo --live  what `make demo` does: two minutes of traffic in which the model's calibration breaks, with the page open
methods | recipes | calibrators | params         what can be written into params.yaml
publish | recalibrate | judge | promote | shadow | rollback | default | versions | doctor
             what is served: `publish --help` says what each is for
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from pipeline import config, parameters
from trueodds import processes
from trueodds.errors import ConfigError, UserError

LISTS = ("methods", "recipes", "calibrators")
PICTURES = ("curves", "gamma-curve")
SERVED = ("publish", "recalibrate", "judge", "promote", "shadow", "rollback", "default", "versions", "doctor")
"""See pipeline/cli/commands.py."""


def main(argv: list[str] | None = None) -> int:
    """Run a command; an error that the user can mend is one message on stderr and exit status 1 (2: usage)."""
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in SERVED:
        from pipeline.cli import commands

        return _obeyed(lambda: commands.run(words))
    parser = argparse.ArgumentParser(
        prog="python -m pipeline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*_stage_names(), "all", *PICTURES, "repro", "demo", *LISTS, "params", *SERVED]
    parser.add_argument("command", choices=names)
    parser.add_argument("parameters", nargs="*", metavar="name=value", help="parameters that the stage reads")
    parser.add_argument("--params", default="params.yaml", help="the file to read (default: params.yaml)")
    parser.add_argument("--work", type=Path, help="demo: its own directory, emptied at start (default: in .run/)")
    parser.add_argument("--artifacts", type=Path, help="demo: what the stages made (default: artifacts)")
    parser.add_argument(
        "--fold", action="store_true", help="export: calibrated probabilities in one ONNX graph instead"
    )
    parser.add_argument("--int8", action="store_true", help="export: the quantised twin of the bundle")
    parser.add_argument("--live", action="store_true", help="demo: the alarm on live traffic, in two minutes")
    arguments = parser.parse_intermixed_args(argv)
    processes.obey()
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("pipeline").setLevel(logging.INFO)
    training = arguments.command in (*_stage_names(), "all", "repro")
    return _obeyed(lambda: _run(arguments), "; the next run goes on from the last checkpoint" if training else "")


def _obeyed(command: Callable[[], None], stopped: str = "") -> int:
    try:
        command()
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"stopped{stopped}", file=sys.stderr)
        return 130
    return 0


def _run(arguments: argparse.Namespace) -> None:
    from pipeline import stages

    command = arguments.command
    if arguments.parameters and command in ("repro", "demo", *PICTURES, *LISTS):
        raise ConfigError(f"{command} takes no parameters; given: {' '.join(arguments.parameters)}")
    if arguments.fold and command != "export":
        raise ConfigError(f"--fold belongs to export, not to {command}: python -m pipeline export --fold")
    if (arguments.work or arguments.artifacts) and command != "demo":
        raise ConfigError(f"--work and --artifacts belong to demo, not to {command}")
    if arguments.live and command != "demo":
        raise ConfigError(f"--live belongs to demo, not to {command}: python -m pipeline demo --live")
    if arguments.int8 and (command != "export" or arguments.fold):
        raise ConfigError("--int8 belongs to export and to publish, alone: python -m pipeline export --int8")
    if command in LISTS:
        from pipeline.cli import tables

        print(getattr(tables, f"{command}_text")())
        return
    if command in PICTURES:
        print(*(stages.draw_curves() if command == "curves" else stages.draw_gamma_curve()), sep="\n")
        return
    if command == "repro":
        from pipeline.cli.repro import repro

        repro(Path.cwd())
        return
    if command == "demo":
        from pipeline.cli import demo, live_demo

        run, work = (live_demo.live_demo, "live") if arguments.live else (demo.demo, "service")
        run(arguments.work or Path(".run", work), arguments.artifacts or stages.ARTIFACTS)
        return
    overrides = parameters.parse_overrides(arguments.parameters)
    if command in stages.STAGES:
        flag = " --int8" if arguments.int8 else " --fold" if arguments.fold else ""
        parameters.check_stage(command + flag, overrides)
    params = config.load(arguments.params, overrides)
    if command == "params":
        for name, value in params.leaves().items():
            print(f"{name} = {value!r}")
        return
    if command in ("fetch", "train", "all"):
        stages.check_names(params)
    if arguments.fold:
        print(stages.fold())
        return
    if arguments.int8:
        print(stages.quantise(params))
        return
    for name, stage in stages.STAGES.items():
        if command in (name, "all"):
            stage(params)


def _stage_names() -> list[str]:
    from pipeline.stages import STAGES

    return list(STAGES)


if __name__ == "__main__":
    sys.exit(main())
