"""Makes a bundle of your own ONNX model: the probabilities of `model` calibrated on labelled rows.

Labelled rows: an .npz with x and y, a folder of class folders of images, or a .csv or .parquet table with a column of
labels; of texts a table with the columns text and label, or class folders of .txt files. The model may take float or
uint8 images in either order of axes, vectors, or the ids of a text's tokens, and answer with logits or probabilities,
which is found out by their sum.

The files are read in a process of its own, which is ended when a step makes no progress or takes too much memory. The
bundle is tried as the service will use it before it is written. Nothing is written or published where that fails.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib.util
import pickle
import re
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueodds.bundle import Bundle, open_models
from trueodds.cli import Subparsers, status_of
from trueodds.errors import UserError
from trueodds.evaluation.measurement import FailedFit, Measurement
from trueodds.importing import rows
from trueodds.importing.options import PRESETS, Options, Preprocessing
from trueodds.processes import limited
from trueodds.reports.table.evaluation import aligned
from trueodds.texts import plural

if TYPE_CHECKING:
    from trueodds.importing.importer import Outcome

OUT = Path("imported")
BUNDLE = "bundle"
WORK = "trueodds.importing.command:work"
"""The function that runs in a process with limits."""
NEEDED = ("onnx", "onnxruntime")
SECONDS, SHARE = 120.0, 0.75
"""Default limits: seconds of a step without progress, and the share of the machine's memory."""
GB = 10**9
COLUMNS = ("calibrator", "chosen by NLL", "error", "NLL", "ECE", "its interval", "noise floor (95%)")
OF_POSITIVE = ("calibrator", "mean p", "Brier (0 to 1)", "ECE", "its interval", "noise floor (95%)")
EXAMPLES = (
    "import model.onnx --labelled val.npz --preprocess imagenet --classes cat,dog",
    "import model.onnx --labelled photos/ --preprocess '{mean: 0.5, std: 0.5, crop: 0.9}' --publish models",
    "import model.onnx --labelled table.csv --label species --test later.csv",
    "import model.onnx --labelled reviews.csv --input text --tokenizer tokenizer.json",
)


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("import", description=__doc__, epilog=epilog, intermixed=True)
    parser.add_argument("model", type=Path, help="the ONNX file; weights in files beside it are taken along")
    parser.add_argument("--labelled", type=Path, required=True, metavar="ROWS", help=rows.FORMS)
    words = "rows to judge by, in the same form (default: half of the labelled rows, class-balanced)"
    parser.add_argument("--test", type=Path, metavar="ROWS", help=words)
    words = "in the order of the model's outputs: a,b,c, or a file with one a line"
    parser.add_argument("--classes", default="", metavar="NAMES", help=f"{words} (default: as model or rows name them)")
    words = "the one of two classes that the model is asked about, such as malignant: answers give its probability"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    words = f"the maker's own probabilities for the labelled rows, which the model must give: {rows.EXPECTED_FORMS}"
    parser.add_argument("--expected", type=Path, metavar="FILE", help=words)
    words = "some classes may have no labelled row: nothing is learned or measured about them"
    parser.add_argument("--allow-unseen", action="store_true", help=words)
    words = f"the column of a table that holds the labels (default: {rows.LABEL})"
    parser.add_argument("--label", default=rows.LABEL, metavar="COLUMN", help=words)
    words = "what the model takes (default: by its rank; text with --tokenizer)"
    parser.add_argument("--input", choices=("image", "vector", "text"), help=words)
    words = "of a model of texts: its tokenizer.json, as Hugging Face's tokenizers writes it"
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help=words)
    words = "tokens of a text that the model reads (default: as tokenizer.json, and tokenizer_config.json and"
    parser.add_argument("--max-tokens", type=int, metavar="N", help=f"{words} config.json beside it, say)")
    words = "characters that a text may have, fewer than the service takes by default: for a tokenizer that is slow"
    parser.add_argument("--max-characters", type=int, metavar="N", help=words)
    words = "what makes the model's input of pixels or features: " + ", ".join(PRESETS)
    words += ", a mapping {mean, std, scale, size, crop, interpolation, layout}, or a YAML file"
    parser.add_argument("--preprocess", metavar="HOW", help=words)
    parser.add_argument("--output", metavar="NAME", help="which of several outputs holds logits or probabilities")
    parser.add_argument("--name", default="", help="of the model (default: that of its file)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help=f"(default: {OUT}/, in it NAME/)")
    words = "publish the bundle to this model directory, or s3://bucket/prefix"
    parser.add_argument("--publish", metavar="MODELS", help=words)
    words = f"seconds that a step may take without progress (default: {SECONDS:g})"
    parser.add_argument("--seconds", type=_positive, default=SECONDS, metavar="N", help=words)
    words = f"memory that reading the files may take (default: {SHARE:.0%} of the machine's; on Linux)"
    parser.add_argument("--memory", type=_positive, metavar="GB", help=words.replace("%", "%%"))
    words = "the files are your own: read them in this process, without limits"
    parser.add_argument("--trusted", action="store_true", help=words)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def run(arguments: argparse.Namespace) -> int:
    name = arguments.name or re.sub(r"[^A-Za-z0-9._-]+", "-", arguments.model.stem).lstrip("-._") or "model"
    if not arguments.model.is_file():
        raise MissingModelError(f"{arguments.model} does not exist; give the path of an ONNX file")
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(name=package)
    is_new = not arguments.out.exists()
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".import-", dir=arguments.out) as folder:
            if status := _confined(arguments, name, Path(folder)):
                return status
            bundle = _moved(Path(folder), arguments.out / name)
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it holds something
                arguments.out.rmdir()
    published = None
    print(f"\nBundle: {bundle}; beside it logits.npz, metrics.json and calibrators.csv")
    if arguments.publish:
        models = open_models(arguments.publish)
        key = models.publish(bundle, why="imported").parts[-2:]
        published = models.given
        print(f"Published: {models.address(*key)}", models.standing(*key), sep="\n")
    print(_next_step(bundle, published))
    return 0


class MissingModelError(UserError, FileNotFoundError):
    """There is no file where the model should be."""


class EndedError(UserError, RuntimeError):
    """The process that read the files met a limit, or died."""


def _confined(arguments: argparse.Namespace, name: str, folder: Path) -> int:
    """Calls `write` in a process with limits, unless the files are trusted; returns the exit status.

    Raises:
        EndedError: a limit was met, or the process died.
    """
    if arguments.trusted:
        return write(arguments, name, folder)
    memory = int(arguments.memory * GB) if arguments.memory else int(SHARE * limited.memory_of_machine())
    word = base64.b64encode(pickle.dumps((arguments, name, folder))).decode()
    end = limited.run(WORK, [word], limited.ProcessLimits(arguments.seconds, memory))
    step, nothing = end.step or f"importing {arguments.model}", "nothing was written or published"
    if end.limit == "seconds":
        problem = f"{step} made no progress in {arguments.seconds:g} s, the limit; {nothing}"
        raise EndedError(f"{problem}. Look for a loop that does not end, or allow more time: --seconds N")
    if end.limit == "memory":
        problem = f"{step} took more than {memory / GB:.3g} GB of memory, the limit; {nothing}"
        raise EndedError(f"{problem}. Give a smaller model or fewer rows, or allow more memory: --memory GB")
    if end.status < 0:
        problem = f"{step} ended the process by {signal.Signals(-end.status).name}; {nothing}"
        cure = "free some memory" if end.status == -signal.SIGKILL else "export the model or write the file again"
        raise EndedError(f"{problem}. One of the files breaks the library that reads it: {cure}")
    return end.status


def work(word: str) -> int:
    """Calls `write` and returns the exit status; `word` is its arguments, pickled, in base64."""
    return status_of(lambda: write(*pickle.loads(base64.b64decode(word))))


def write(arguments: argparse.Namespace, name: str, folder: Path) -> int:
    """Writes the bundle of the model called `name` and the files beside it to `folder`, and prints the summary.

    Raises:
        UserError: as `importer.import_model` and `rows.read`.
    """
    from trueodds.importing.importer import import_model

    texts = arguments.tokenizer is not None or arguments.input == "text"
    options = Options(
        input="text" if texts and arguments.input is None else arguments.input,
        output=arguments.output,
        preprocessing=None if arguments.preprocess is None else Preprocessing.parse(arguments.preprocess),
        classes=_classes(arguments.classes),
        expected=arguments.expected,
        allow_unseen=arguments.allow_unseen,
        tokenizer=arguments.tokenizer,
        max_tokens=arguments.max_tokens,
        max_characters=arguments.max_characters,
    )
    limited.step(f"reading {arguments.labelled}")
    labelled = rows.read(arguments.labelled, arguments.label, texts=texts)
    test = None
    if arguments.test:
        limited.step(f"reading {arguments.test}")
        test = rows.read(arguments.test, arguments.label, texts=texts)
    outcome = import_model(
        arguments.model, labelled, folder, name=name, options=options, test=test, positive=arguments.positive
    )
    print(summary(outcome))
    return 0


def _classes(text: str) -> tuple[str, ...]:
    """Names of a list with commas, or of a file with one a line."""
    is_file = text and Path(text).is_file()
    names = Path(text).read_text(encoding="utf-8").splitlines() if is_file else text.split(",")
    return tuple(name.strip() for name in names if name.strip())


def _moved(written: Path, out: Path) -> Path:
    """Moves what was written to the folder `out`; returns the bundle's place there."""
    out.mkdir(exist_ok=True)
    bundle = Bundle.load(written / BUNDLE).moved(out / BUNDLE)
    for file in written.iterdir():
        if file.is_file():
            file.replace(out / file.name)
    return bundle.directory


def _next_step(bundle: Path, published: str | None) -> str:
    """The command that comes next."""
    if published is None:
        return f"Publish it:  trueodds publish --bundle {bundle}"
    return f"Serve it:  TRUEODDS_MODELS={published} trueodds serve"


def summary(outcome: Outcome) -> str:
    """Formats the table of calibrators, with the notes of the card and the reason of the choice."""
    card, results = outcome.bundle.card, outcome.results
    size = card.input.size
    nll = {one.name: one.nll for one in outcome.selection.table}
    named: list[tuple[str, Measurement | FailedFit]] = [("none", results.before)]
    named.append((f"* {results.after.name}", results.after))
    named += [(f"  {one.name}", one) for one in results.others]
    rows = [COLUMNS, *(_line(name, one, nll.get("identity" if name == "none" else one.name)) for name, one in named)]
    lines = [
        f"{card.name}: {plural(len(card.classes), 'class', 'classes')}, {card.input.kind} {size};"
        f" {plural(outcome.calibration, 'calibration row')}, {plural(results.after.sums.n, 'test row')}",
        *(f"note: {note}" for note in card.notes),
        "",
        *aligned(rows, "<" * len(COLUMNS)),
        "",
        *(f"{one.name} was chosen: {one.chosen}." for one in outcome.selection.table if one.chosen),
        *(f"{one.name} was passed over: {one.passed_over}." for one in outcome.selection.table if one.passed_over),
        *_of_positive(named),
        "On the test rows, but for the NLL that chose: cross-validated, on the calibration rows. *: chosen, of the"
        " least that is sound. ECE: of the more probable class, a fraction, of"
        f" {results.settings.bins} bins, with its {results.settings.level:.0%} interval; the noise floor is the"
        " mean ECE of right probabilities in samples of this size, and what it stays below in 95 of 100.",
    ]
    return "\n".join(lines)


def _line(name: str, one: Measurement | FailedFit, chosen_by: float | None) -> tuple[str, ...]:
    cross = "" if chosen_by is None else f"{chosen_by:.4f}"
    if isinstance(one, FailedFit):
        return (name, cross, "", "", "", "", one.reason)
    return (name, cross, *_numbers(one.values, "error_rate", "nll", "ece"))


def _numbers(values: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """Values, then the interval of the ECE and its noise floor."""
    interval = f"{values['ece_lower']:.4f} .. {values['ece_upper']:.4f}"
    floor = f"{values['floor_mean']:.4f} ({values['floor_p95']:.4f})"
    return (*(f"{values[key]:.4f}" for key in keys), interval, floor)


def _of_positive(named: Sequence[tuple[str, Measurement | FailedFit]]) -> list[str]:
    """The table of p(positive), with its title and a blank line; empty where there is no positive class."""
    known = [(name, one.positive) for name, one in named if isinstance(one, Measurement) and one.positive]
    if not known:
        return []
    first = known[0][1]
    rows = [OF_POSITIVE, *((name, *_numbers(p, "mean_probability", "brier", "ece")) for name, p in known)]
    title = f"p({first['class']}), over all of 0 to 1; {first['prevalence']:.4f} of the test rows are {first['class']}"
    return [title, *aligned(rows, "<" * len(OF_POSITIVE)), ""]
