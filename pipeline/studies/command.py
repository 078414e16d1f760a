"""Runs many settings, each once in a workspace of its own, and prints a table that separates effects from chance.

FILE is the .yaml file of a study, or a study of a paper such as focal/table1. Finished runs are stored in .run/studies.
They run again only if their settings, data or code change. A study that was stopped continues with its missing runs.
With --kept, each finished run is also kept in a file of some 200 kB. On another machine the study takes these runs as
done.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.studies import OUT, names
from trueodds.cli import Subparsers
from trueodds.texts import plural

if TYPE_CHECKING:
    from pipeline.studies.running import Estimate

EXAMPLES = (
    "study mine.yaml --dry-run", "study mine.yaml", "study mine.yaml --kept runs",
    "study mine.yaml --kept runs --code 3f2a91c0", "study --list",
)  # fmt: skip
PARAMS = Path("params.yaml")
NOTHING = "no similar run was measured on this device"
SHOWN = 20
"""Number of runs that --dry-run lists."""


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("study", description=__doc__, epilog=epilog)
    parser.add_argument("study", nargs="?", metavar="FILE", help="a .yaml file, or <paper>/<table or figure>")
    parser.add_argument("--dry-run", action="store_true", help="print what would run, and how long it will take")
    parser.add_argument("--list", action="store_true", help="list the studies of papers")
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="keep finished runs here, and take those of it")
    parser.add_argument(
        "--code", action="append", default=[], metavar="COMMIT", help="also take kept runs of this commit's code, if "
        "settings and data are equal; may be repeated; the report names their commits",
    )  # fmt: skip
    parser.add_argument(
        "--without-dvc", action="store_true", help="train each net in this process: faster for small nets on a GPU, "
        "and needs neither DVC nor git; `dvc exp show` then lists no run",
    )  # fmt: skip
    parser.add_argument("--theory", action="store_true", help="test the papers' claims numerically; takes seconds")
    parser.add_argument("--params", type=Path, default=PARAMS, metavar="FILE", help=f"parameters (default: {PARAMS})")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help=f"results (default: {OUT}/NAME/)")


def run(arguments: argparse.Namespace) -> int:
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
        papers = names()
        print("\n".join(papers) if papers else "no paper's study is installed; give a file: trueodds study mine.yaml")
        return 0
    from pipeline.studies import format as study_format
    from pipeline.studies import kept_runs, running, runs, setting_choice

    kept = kept_runs.of_arguments(arguments.kept, arguments.code)
    find = runs.places if kept is None else kept.places
    study = study_format.read(arguments.study)
    expanded = runs.expand(study, arguments.params)
    home = Path.cwd()
    places = find(home, expanded)
    if tries := find(home, setting_choice.trials(study, expanded, arguments.params)):
        print(f"{study.title}: tuning takes at most {plural(len(tries), 'run')}, which may change the runs below:")
    print(f"{study.title}: {plan_words(running.estimate(home, places))}", flush=True)
    if arguments.dry_run:
        for place in places[:SHOWN]:
            print(f"  {'done' if place.is_done else '    '}  {place.key}  {place.run.name}")
        if len(places) > SHOWN:
            print(f"  and {len(places) - SHOWN:,} more")
        return 0
    from pipeline.studies import direct, reporting

    make = direct.run_here if arguments.without_dvc else running.run_one
    run_all = partial(running.run_all, make=make, kept_runs=kept)
    done = running.carry_out(study, arguments.params, home, lambda line: print(line, flush=True), run_all, kept)
    out = arguments.out / Path(arguments.study).with_suffix("").name
    print(reporting.report(study, done, out))
    done.check()
    return 0


def plan_words(estimate: Estimate) -> str:
    """Return the number of runs and the estimated time in words."""
    left = estimate.runs - estimate.n_done
    words = f"{plural(estimate.runs, 'run')}, {estimate.n_done} done"
    if not left:
        return words
    known = left - estimate.unknown
    if not known:
        return f"{words}; the time of the others is unknown: {NOTHING}"
    about = f"about {_duration(estimate.seconds)}, scaled by FLOPs, rows and epochs from runs on this device"
    if not estimate.unknown:
        return f"{words}; the others will take {about}"
    return f"{words}; {known} of the others will take {about}; for {estimate.unknown} it is unknown: {NOTHING}"


def _duration(seconds: float) -> str:
    """Return seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return (
        f"{seconds / 60:.0f} minutes"
        if seconds < 5400
        else f"{seconds / 3600:.1f} hours"
        if seconds < 172_800
        else f"{seconds / 86_400:.0f} days"
    )
