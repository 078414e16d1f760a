"""Fits a calibrator on the live labels of what answers, and puts it under judgement beside it, whatever net waits.

One that is under judgement already is judged by later labels, and promoted or withdrawn by the verdict; as long as
there is none, no other is fitted. The shadow, a net, is judged too; about that a person decides (--promote-net).
Of a model that another server serves, whose answers are observed, the calibrator is written to a file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.cli import common
from pipeline.recalibrate import LABELS, Choice, Outcome, Recalibration, Rules, recalibrate
from pipeline.recalibrate.gains import SMOOTHING
from trueodds.calibrators.selection import default_words
from trueodds.cli import Parser, Subparsers
from trueodds.metrics.alarms.weighted_e_process import FLOOR


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("recalibrate", "recalibrate --model digits --candidates temperature vector --wait 600")
    parser = commands.add_parser("recalibrate", description=__doc__, epilog=epilog)
    add_judgement(parser)
    displace = "a better fit takes the place of a calibrator under judgement, and its evidence ends"
    parser.add_argument("--displace", action="store_true", help=displace)
    parser.add_argument(
        "--version", help="do nothing if another one answers by now; of an observed model: whose labels"
    )
    out = "file of the calibrator for a model that another server serves (default: calibrator.json)"
    parser.add_argument("--out", type=Path, default=Path("calibrator.json"), metavar="FILE", help=out)
    labels = f"the number of labels to fit on, at most; the last ones (default: {LABELS:,})"
    parser.add_argument("--labels", type=int, default=LABELS, metavar="N", help=labels)
    candidates = f"calibrators to choose from (default: {default_words()})"
    parser.add_argument("--candidates", nargs="+", default=(), metavar="NAME", help=candidates)


def run(arguments: argparse.Namespace) -> int:
    fit = {name: getattr(arguments, name) for name in ("version", "labels", "out", "displace")}
    request = request_of(arguments, **fit, candidates=tuple(arguments.candidates))
    print(outcome_text(recalibrate(request)))
    return 0


def add_judgement(parser: Parser) -> None:
    """Adds the options of `recalibrate` and `judge`."""
    parser.add_argument("--model", help="(default: the one that answers calls without a model's name)")
    wait = "how long to wait for labels that decide (default: 0)"
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help=wait)
    common.add_promote(parser)
    margin = "nats a label that the candidate may be worse by, for a simpler or cheaper one (default: 0)"
    parser.add_argument("--margin", type=float, default=0.0, metavar="M", help=margin)
    smoothing = f"e: scored are (1 - e) p + e/K; choose it before the first label (default: {SMOOTHING:g})"
    parser.add_argument("--smoothing", type=float, default=SMOOTHING, metavar="E", help=smoothing)
    smallest = (
        f"leave out answers of a smaller propensity, where propensities are known; choose it before the first label"
        f" (default: {FLOOR:g})"
    )
    parser.add_argument("--smallest-propensity", type=float, default=FLOOR, metavar="P", help=smallest)
    budget = (
        "each: 5%% of the candidates may be judged wrongly; together: the chance that any one of all candidates of the"
        " model ever is is 5%% (default: each)"
    )
    parser.add_argument("--budget", choices=("each", "together"), default="each", help=budget)
    common.add_service(parser)
    common.add_models(parser)
    common.add_why(parser)


def request_of(arguments: argparse.Namespace, **fit: object) -> Recalibration:
    """The request that the options of `add_judgement` describe."""
    return Recalibration(
        common.client_of(arguments),
        arguments.models,
        arguments.model,
        wait_seconds=arguments.wait,
        promote=arguments.promote,
        promote_net=arguments.promote_net,
        why=arguments.why,
        say=print,
        rules=Rules(arguments.margin, arguments.smoothing, arguments.smallest_propensity, budget=arguments.budget),
        **fit,  # type: ignore[arg-type]
    )


def outcome_text(outcome: Outcome) -> str:
    """The candidates, where a calibrator was fitted, and what came of it."""
    return "\n".join([*([_table_text(outcome.choice)] if outcome.choice else []), outcome.words])


def _table_text(choice: Choice) -> str:
    """The candidates with their NLL, ECE before and after, and what the chosen fit warns of."""
    lines = [f"{choice.rows:,} live labels, cross-validated", ""]
    lines.append(f"{'calibrator':<28}{'NLL':>10}{'gain':>12}{'+-':>10}")
    served = (f"{choice.served.name} (served)", choice.served)
    for name, line in (served, *((line.name, line) for line in choice.table)):
        if line.nll is None or line.gain is None or line.gain_standard_error is None:
            lines.append(f"{name:<28}{line.problem}")
        else:
            mark = "  <" if line is choice.best and choice.better else f"  {line.problem}" if line.problem else ""
            lines.append(f"{name:<28}{line.nll:>10.4f}{line.gain:>12.4f}{line.gain_standard_error:>10.4f}{mark}")
    lines += ["", f"{choice.best.name}: {choice.best.reason}"]
    for when, judged in (("before", choice.before), ("after", choice.after)):
        v = judged.values
        interval = f"{choice.settings.level:.0%} interval {v['ece_lower']:.4f} .. {v['ece_upper']:.4f}"
        lines += [""] * (when == "before") + [
            f"ECE {when:<7} {v['ece']:.4f}, {interval}, noise floor {v['floor_p95']:.4f}"
        ]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in choice.calibrator.warnings), ""])
