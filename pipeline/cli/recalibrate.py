"""Fits a calibrator on live labels of the served version, and publishes it under judgement beside that version.

If a calibrator is already under judgement, it is judged by later labels, and promoted or withdrawn by the verdict. No
other is fitted before the verdict. The shadow, a net, is judged too, but a person decides about it (--promote-net). For
an observed model, which another server serves, the calibrator is written to a file. --prior-shift needs no labels: it
corrects the served calibrator for new class shares.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.choices import GROUPS, LABELS, SMOOTHING
from pipeline.cli import common
from trueodds.cli import Parser, Subparsers
from trueodds.cli.calibrate import group_lines
from trueodds.processes.choices import SMALLEST_PROPENSITY

if TYPE_CHECKING:
    from pipeline.recalibrate import CalibratorChoice, LabelChoice, Recalibration, RecalibrationOutcome


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples(
        "recalibrate",
        "recalibrate --model digits --candidates temperature vector --wait 600",
        "recalibrate --groups tag",
        "recalibrate --prior-shift --since 2026-11-01T00:00",
    )
    parser = commands.add_parser("recalibrate", description=__doc__, epilog=epilog)
    add_judgement(parser)
    displace = "let a better fit replace the calibrator under judgement; the evidence about the replaced one ends"
    parser.add_argument("--displace", action="store_true", help=displace)
    parser.add_argument(
        "--version",
        help="stop if another version is served by now; for an observed model: the version whose labels are used",
    )
    out = "file for the calibrator of a model that another server serves (default: calibrator.json)"
    parser.add_argument("--out", type=Path, default=Path("calibrator.json"), metavar="FILE", help=out)
    labels = f"the largest number of labels to fit on, the newest first (default: {LABELS:,})"
    parser.add_argument("--labels", type=int, default=LABELS, metavar="N", help=labels)
    candidates = "calibrators to choose from (default: see `trueodds calibrators`)"
    parser.add_argument("--candidates", nargs="+", default=(), metavar="NAME", help=candidates)
    groups = "tag: a temperature for each tag is a candidate (default: only if the served calibrator has groups)"
    parser.add_argument("--groups", choices=GROUPS, help=groups)
    prior_shift = (
        "fit nothing: correct the served calibrator for the class shares of answers without labels. Refused where the"
        " live report does not give these shares"
    )
    parser.add_argument("--prior-shift", action="store_true", help=prior_shift)
    since = "with --prior-shift: only answers given since this time (ISO 8601, UTC without an offset; default: all)"
    parser.add_argument("--since", metavar="TIME", help=since)


def run(arguments: argparse.Namespace) -> int:
    from pipeline.recalibrate import recalibrate

    names = ("version", "labels", "out", "displace", "groups", "prior_shift", "since")
    fit = {name: getattr(arguments, name) for name in names}
    request = request_of(arguments, **fit, candidates=tuple(arguments.candidates))
    print(outcome_text(recalibrate(request)))
    return 0


def add_judgement(parser: Parser) -> None:
    """Add the options that `recalibrate` and `judge` share."""
    parser.add_argument("--model", help="(default: the model for calls that name none)")
    wait = "seconds to wait for enough labels for a verdict (default: 0)"
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help=wait)
    common.add_promote(parser)
    margin = "nats per label by which a simpler or cheaper candidate may be worse (default: 0)"
    parser.add_argument("--margin", type=float, default=0.0, metavar="M", help=margin)
    smoothing = f"e in the scored probabilities (1 - e) p + e/K; fix it before the first label (default: {SMOOTHING:g})"
    parser.add_argument("--smoothing", type=float, default=SMOOTHING, metavar="E", help=smoothing)
    smallest = (
        "leave out answers with a smaller propensity, if propensities are known; fix it before the first label"
        f" (default: {SMALLEST_PROPENSITY:g})"
    )
    parser.add_argument("--smallest-propensity", type=float, default=SMALLEST_PROPENSITY, metavar="P", help=smallest)
    budget = (
        "each: a wrong verdict on at most 5%% of the candidates; together: a chance of at most 5%% that any verdict on"
        " this model's candidates is ever wrong (default: each)"
    )
    parser.add_argument("--budget", choices=("each", "together"), default="each", help=budget)
    common.add_service(parser)
    common.add_models(parser)
    common.add_why(parser)


def request_of(arguments: argparse.Namespace, **fit: object) -> Recalibration:
    """Return the request that the options of `add_judgement` describe."""
    from pipeline.recalibrate import Recalibration, Rules

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


def outcome_text(outcome: RecalibrationOutcome) -> str:
    """Return the outcome in words, after the table of candidates if a calibrator was fitted."""
    from pipeline.recalibrate import LabelChoice

    choice = outcome.choice
    tables = [_labels_text(choice) if isinstance(choice, LabelChoice) else _table_text(choice)] if choice else []
    return "\n".join([*tables, outcome.words])


def _labels_text(choice: LabelChoice) -> str:
    """Return the served and the new curves of independent labels: all labels together, then each label."""
    from trueodds.cli.multi_label import comparison_lines

    lines = comparison_lines(
        choice.calibrator, choice.before, choice.after, "the card has all labels", ("  served", "* multilabel_platt")
    )
    gain = f"Gain {choice.gain:.4f} +- {choice.gain_standard_error:.4f} nats a label, by answer."
    warnings = [f"warning: {warning}" for warning in choice.calibrator.warnings]
    return "\n".join([f"{choice.rows:,} labelled answers, cross-validated", "", *lines, "", gain, *warnings, ""])


def _table_text(choice: CalibratorChoice) -> str:
    """Return the candidates with their NLL, the ECE before and after, and the warnings of the best fit."""
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
            f"ECE {when:<7} {v['ece']:.4f}, {interval}, noise floor up to {v['floor_p95']:.4f}"
        ]
    lines += group_lines(choice.calibrator)
    return "\n".join([*lines, *(f"warning: {warning}" for warning in choice.calibrator.warnings), ""])
