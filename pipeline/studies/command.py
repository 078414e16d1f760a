"""Many runs as one question: each run once, in a workspace of its own, then a table with what chance explains.

FILE is a study's .yaml, or a paper's table by its place, such as focal/table1. What is done is kept in .run/studies and
not run again, unless its settings, its data or code that changes its numbers change; a study that was stopped goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.studies import OUT
from trueodds.cli import Subparsers
from trueodds.texts import plural

if TYPE_CHECKING:
    from pipeline.studies.running import Estimate

EXAMPLES = ("study mine.yaml --dry-run", "study mine.yaml", "study --list")
PARAMS = Path("params.yaml")
NOTHING = "no run of like work was measured on this device"
SHOWN = 20
"""Runs that --dry-run lists."""


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("study", description=__doc__, epilog=epilog)
    parser.add_argument("study", nargs="?", metavar="FILE", help="a .yaml file, or <paper>/<table or figure>")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and how long it will take")
    parser.add_argument("--list", action="store_true", help="the papers' studies")
    parser.add_argument("--theory", action="store_true", help="what the papers prove, in numbers; seconds")
    parser.add_argument("--params", type=Path, default=PARAMS, metavar="FILE", help=f"(default: {PARAMS})")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help=f"(default: {OUT}/, in it NAME/)")


def run(arguments: argparse.Namespace) -> int:
    from pipeline.studies import format as study_format

    if arguments.theory:
        from pipeline.figures import soft_steps, weights
        from pipeline.studies import theory

        print(theory.lines(theory.findings()))
        drawn = {"weights": weights.simplex, "memberships": soft_steps.memberships}
        drawn["uncertainty"] = soft_steps.uncertainty
        for name, draw in drawn.items():
            print(f"written: {draw(arguments.out / 'theory' / name)}")
        return 0
    if arguments.list or arguments.study is None:
        names = study_format.names()
        print("\n".join(names) if names else "no study of a paper is installed; give a file: trueodds study mine.yaml")
        return 0
    from pipeline.studies import choice, running, runs

    study = study_format.read(arguments.study)
    expanded = runs.expand(study, arguments.params)
    home = Path.cwd()
    places = runs.places(home, expanded)
    if tries := runs.places(home, choice.trials(study, expanded, arguments.params)):
        print(f"{study.title}: tuning takes {plural(len(tries), 'run')} at most; then, with other settings than now:")
    print(f"{study.title}: {_plan(running.estimate(home, places))}", flush=True)
    if arguments.dry_run:
        for place in places[:SHOWN]:
            print(f"  {'done' if place.is_done else '    '}  {place.key}  {place.run.name}")
        if len(places) > SHOWN:
            print(f"  and {len(places) - SHOWN:,} more")
        return 0
    from pipeline.studies import reporting

    done = running.carry_out(study, arguments.params, home, lambda line: print(line, flush=True))
    out = arguments.out / Path(arguments.study).with_suffix("").name
    print(reporting.report(study, done, out))
    done.check()
    return 0


def _plan(estimate: Estimate) -> str:
    left = estimate.runs - estimate.done
    words = f"{plural(estimate.runs, 'run')}, {estimate.done} done"
    if not left:
        return words
    known = left - estimate.unknown
    if not known:
        return f"{words}; how long the others take is not known: {NOTHING}"
    about = f"about {_duration(estimate.seconds)}, scaled by FLOPs, rows and epochs from runs on this device"
    if not estimate.unknown:
        return f"{words}; the others will take {about}"
    return f"{words}; {known} of the others will take {about}; of {estimate.unknown} it is not known: {NOTHING}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return (
        f"{seconds / 60:.0f} minutes"
        if seconds < 5400
        else f"{seconds / 3600:.1f} hours"
        if seconds < 172_800
        else f"{seconds / 86_400:.0f} days"
    )
