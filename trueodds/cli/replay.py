"""Send a data set to a running service as live traffic, with late and missing labels and with drift.

Rows (images, vectors or texts) are drawn with replacement and arrive at random times (Poisson). The true label of each
follows after a random delay, or never. For a model of independent labels, y_test has a column for each label (0, 1 or
NaN), and each truth is sent or not by itself. An .npz with groups_test has the tag of each row. Every few seconds a
line shows numbers of the service's report: accuracy and ECE of all labels so far, the 95th percentile of a calibrated
model's ECE ("by chance"), and the alarm with its evidence and its threshold. Ctrl-C ends the replay; labels that are
due are still sent.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from trueodds.cli import Subparsers
from trueodds.cli.arguments import number, positive_seconds, seconds_of
from trueodds.processes.choices import SERVICE, URL
from trueodds.processes.stopping import Stop
from trueodds.replay import ReplayError
from trueodds.replay.kinds import BIASES, GRAMMAR, KINDS, SPLITS
from trueodds.texts import LONG, plural, short

EXAMPLE = "  trueodds replay --data artifacts/data/arrays.npz --rate 30 --delay 4s --labelled 0.6 --drift noise:0.3@40s"


def run(arguments: argparse.Namespace) -> int:
    """Run the replay. Return the exit status: 0; 1 if --until-alarm was given and no alarm fired; 130 after Ctrl-C."""
    stop = Stop()
    try:
        fired = _replay(arguments, stop)
    except KeyboardInterrupt:
        return 130
    if stop():
        return 130
    if arguments.until_alarm and not fired:
        raise ReplayError(f"the alarm has not fired within {arguments.seconds:g} s")
    return 0


def _replay(arguments: argparse.Namespace, stop: Stop) -> bool:
    from trueodds.client.keys import Keys
    from trueodds.replay.caller import Caller
    from trueodds.replay.drift import Schedule
    from trueodds.replay.runner import Replay, ReplayPlan
    from trueodds.replay.source import check, read
    from trueodds.replay.stream import Bias, Stream

    def say(line: str) -> None:
        print(line, flush=True)

    drift, bias = Schedule.parse(arguments.drift), Bias.parse(arguments.bias)
    keys, timing = Keys.of_file(arguments.key_file), (arguments.seconds, arguments.speed, arguments.every)
    plan = ReplayPlan(arguments.labelled, bias, *timing, until_alarm=arguments.until_alarm, drain=arguments.drain)
    named = {"model": arguments.model, "version": arguments.version}
    check(arguments.data, arguments.split)  # before the wait for a service
    with Caller(arguments.url, **named, keys=keys, patience=arguments.patience, say=say, is_stopped=stop) as caller:
        model = caller.signature()
        source = read(arguments.data, model, arguments.split)
        # A label of exclusive classes is replaced by another class, independent labels by those of another row
        classes = len(source) if model.multilabel else len(model.classes)
        stream = Stream(source, arguments.rate, arguments.delay, drift, tuple(arguments.tag), classes, arguments.seed)
        who = "/".join(caller.answering or ())
        say(f"{plural(len(source), source.noun)} of {source.name} to {who} at {caller.url}")
        return Replay(caller, stream, plan, say, stop).run()


def add_parser(commands: Subparsers) -> None:
    kinds = "\n".join(f"  {name:<12}{f'{kind.low:g}..{kind.high:g}':<8}{kind.meaning}" for name, kind in KINDS.items())
    biases = "\n".join(f"  {name:<12}{meaning}" for name, meaning in BIASES.items())
    grammar = f"--drift {GRAMMAR}\n{kinds}\n\n--bias NAME:RATIO\n{biases}"
    parser = commands.add_parser("replay", description=__doc__, epilog=f"{grammar}\n\nexamples:\n{EXAMPLE}")
    add = parser.add_argument
    words = ".npz with x_test and y_test, a folder [test/]<class>/*.png or *.txt, or a .csv or .parquet of texts"
    add("--data", type=Path, required=True, help=words)
    add("--split", help=f"rows to send (default: the first existing one of {', '.join(SPLITS)})")
    words = f"URL of the service (default: {URL}; {SERVICE})"
    add("--url", default=os.environ.get(SERVICE) or URL, metavar="URL", help=words)
    add("--model", help="default: the service's")
    add("--version", help="default: the service's")
    add("--rate", type=_rate, default=20.0, help="rows a second, on average (default: 20)")
    add("--delay", type=seconds_of, default=2.0, help="mean delay of a label, such as 4s (default: 2s)")
    add("--labelled", type=_share, default=1.0, metavar="SHARE", help="share of the answers with a label (default: 1)")
    drift, bias = "kind and time of drift, see below; may be repeated", "labels that depend on the answer, see below"
    add("--drift", action="append", default=[], metavar="KIND:STRENGTH@TIME", help=drift)
    add("--bias", action="append", default=[], metavar="NAME:RATIO", help=bias)
    add("--tag", action="append", default=[], help="tag of the rows, instead of their own; one of several at random")
    add(
        "--seconds",
        type=seconds_of,
        default=math.inf,
        metavar="TIME",
        help="length of the replay, such as 2m (default: until Ctrl-C)",
    )
    add("--speed", type=_speed, default=1.0, help="speed-up factor, or max for no pauses (default: 1)")
    add("--every", type=positive_seconds, default=5.0, metavar="TIME", help="time between two lines (default: 5s)")
    add("--until-alarm", action="store_true", help="end when the alarm has fired; fail if it has not within --seconds")
    add("--drain", action="store_true", help="after --seconds, continue until the last label has been sent")
    add("--seed", type=_seed, default=0, help="seed of everything that is random (default: 0)")
    words = "file with the key of /predict and, if that differs, of /feedback in a second line"
    add("--key-file", type=Path, help=words)
    add(
        "--patience",
        type=seconds_of,
        default=30.0,
        metavar="TIME",
        help="time to wait for an unreachable service (default: 30s)",
    )


_rate = number(1e-3, 1e5, "0.001 to 100000 rows a second")
_share = number(0, 1, "a share, 0 to 1")


def _speed(text: str) -> float:
    return math.inf if text == "max" else number(1e-3, 1e4, "0.001 to 10000, or max")(text)


def _seed(text: str) -> int:
    if not (text.isdecimal() and len(text) < LONG):
        raise argparse.ArgumentTypeError(f"{short(text)} is not allowed; allowed are whole numbers from 0 on")
    return int(text)
