"""Make a bundle of your own ONNX model, with probabilities calibrated on labelled rows.

Labelled rows: an .npz with x and y, a folder of class folders of images, or a .csv or .parquet table with a column of
labels. Texts: a table with the columns text and label, or class folders of .txt files. The model may take float or
uint8 images in either order of axes, vectors, or the ids of a text's tokens. Its output may be logits or probabilities;
the sum shows which.

The files are read in a separate process, which is ended if a step makes no progress or takes too much memory. The
bundle is tried as the service will use it before it is written. If that fails, nothing is written or published.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import re
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueodds.cli import Subparsers, status_of
from trueodds.cli.conformal_options import add_conformal, set_lines, sets_of
from trueodds.errors import UserError
from trueodds.importing import forms
from trueodds.importing.errors import no_file
from trueodds.processes import limited
from trueodds.processes.choices import LABEL
from trueodds.processes.limited import SECONDS, SHARE
from trueodds.texts import plural

if TYPE_CHECKING:
    from trueodds.evaluation.measurement import FailedFit, Measurement
    from trueodds.importing.importer import Outcome

OUT = Path("imported")
BUNDLE = "bundle"
WORK = "trueodds.cli.import_model:work"
"""Function that runs in a process with limits."""
NEEDED = ("onnx", "onnxruntime")
GB = 10**9
COLUMNS = ("calibrator", "CV NLL", "error", "NLL", "ECE", "its interval", "noise floor (95%)")
OF_POSITIVE = ("calibrator", "mean p", "Brier (0 to 1)", "ECE", "its interval", "noise floor (95%)")
EXAMPLES = (
    "import model.onnx --labelled val.npz --preprocess imagenet --classes cat,dog",
    "import model.onnx --labelled photos/ --preprocess '{mean: 0.5, std: 0.5, crop: 0.9}' --publish models",
    "import model.onnx --labelled table.csv --label species --test later.csv",
    "import model.onnx --labelled reviews.csv --input text --tokenizer tokenizer.json",
    "import model.onnx --labelled val.npz --conformal lac --levels .9,.95",
    "import model.onnx --labelled table.csv --groups country",
    "import tagger.onnx --multi-label --labelled photos.csv --classes rain,snow,fog",
)


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("import", description=__doc__, epilog=epilog, intermix=True)
    parser.add_argument("model", type=Path, help="the ONNX file; its weights may be in files beside it")
    parser.add_argument("--labelled", type=Path, required=True, metavar="ROWS", help=forms.ROWS)
    words = "test rows, in the same form (default: half of the labelled rows, class-balanced)"
    parser.add_argument("--test", type=Path, metavar="ROWS", help=words)
    words = "class names in the order of the model's outputs: a,b,c, or a file with one name per line"
    parser.add_argument("--classes", default="", metavar="NAMES", help=f"{words} (default: as model or rows name them)")
    words = "the positive class of two, such as malignant: answers contain its probability"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    words = "the classes are levels, the lowest first, such as stars: the report of the service has their figures, and"
    words += " calibrators that keep the order are candidates"
    parser.add_argument("--ordered", action="store_true", help=words)
    words = (
        "each output is a yes/no label of its own, with a sigmoid; the rows have a truth for each label, which may be"
    )
    words += f" unknown:  {forms.LABEL_ROWS}"
    parser.add_argument("--multi-label", action="store_true", help=words)
    words = "the column of a table that holds the rows' groups, or their array in an .npz, or a column of the table"
    words += " groups.csv in a folder, whose column file has the files' paths: a temperature for each group"
    words += " becomes a candidate, and the service takes the group from the tag of each input"
    parser.add_argument("--groups", metavar="COLUMN", help=words)
    add_conformal(parser)
    words = f"the maker's own probabilities of the labelled rows, for comparison:  {forms.EXPECTED}"
    parser.add_argument("--expected", type=Path, metavar="FILE", help=words)
    words = "allow classes without a labelled row; nothing is learned or measured about them"
    parser.add_argument("--allow-unseen", action="store_true", help=words)
    words = f"the column of a table that holds the labels (default: {LABEL})"
    parser.add_argument("--label", default=LABEL, metavar="COLUMN", help=words)
    words = "kind of the model's input (default: by its rank; text with --tokenizer)"
    parser.add_argument("--input", choices=("image", "vector", "text"), help=words)
    words = "tokenizer.json of a text model, as Hugging Face's tokenizers writes it"
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help=words)
    words = "number of tokens that a text model reads (default: from tokenizer.json, and tokenizer_config.json and"
    parser.add_argument("--max-tokens", type=int, metavar="N", help=f"{words} config.json in the same folder)")
    words = "largest number of characters of a text, below the service's default: for a slow tokenizer"
    parser.add_argument("--max-characters", type=int, metavar="N", help=words)
    words = "preprocessing of pixels or features: " + ", ".join(forms.PRESETS)
    words += ", a mapping {mean, std, scale, size, crop, interpolation, layout}, or a YAML file"
    parser.add_argument("--preprocess", metavar="HOW", help=words)
    parser.add_argument("--output", metavar="NAME", help="the output of logits or probabilities, if there are several")
    parser.add_argument("--name", default="", help="name of the model (default: that of its file)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help=f"(default: NAME/ in {OUT}/)")
    words = "publish the bundle to this model directory, or s3://bucket/prefix"
    parser.add_argument("--publish", metavar="MODELS", help=words)
    words = f"largest number of seconds without progress (default: {SECONDS:g})"
    parser.add_argument("--seconds", type=_positive, default=SECONDS, metavar="N", help=words)
    words = f"largest memory for reading the files (default: {SHARE:.0%} of the machine's; on Linux)"
    parser.add_argument("--memory", type=_positive, metavar="GB", help=words.replace("%", "%%"))
    words = "read the files in this process, without limits, because they are your own"
    parser.add_argument("--trusted", action="store_true", help=words)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def run(arguments: argparse.Namespace) -> int:
    """Import the model, and publish it if requested."""
    from trueodds.bundle import open_models

    name = arguments.name or re.sub(r"[^A-Za-z0-9._-]+", "-", arguments.model.stem).lstrip("-._") or "model"
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(name=package)
    if not arguments.model.is_file():
        raise MissingModelError(f"{arguments.model} {no_file(arguments.model)}")
    is_new = not arguments.out.exists()
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".import-", dir=arguments.out) as folder:
            if status := _write_in_process(arguments, name, Path(folder)):
                return status
            bundle = _move(Path(folder), arguments.out / name)
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                arguments.out.rmdir()
    published = None
    beside = "" if arguments.multi_label else "; in the same folder: logits.npz, metrics.json and calibrators.csv"
    print(f"\nBundle: {bundle}{beside}")
    if arguments.publish:
        models = open_models(arguments.publish)
        key = models.publish(bundle, why="imported").parts[-2:]
        published = models.given_place
        print(f"Published: {models.address(*key)}", models.standing(*key), sep="\n")
    print(_next_step(bundle, published))
    return 0


class MissingModelError(UserError, FileNotFoundError):
    """The model's file does not exist."""


class EndedError(UserError, RuntimeError):
    """The process that read the files reached a limit, or died."""


def _write_in_process(arguments: argparse.Namespace, name: str, folder: Path) -> int:
    """Call `write` in a process with limits, unless the files are trusted. Return the exit status."""
    if arguments.trusted:
        return write(arguments, name, folder)
    memory = int(arguments.memory * GB) if arguments.memory else int(SHARE * limited.memory_of_machine())
    end = limited.run(WORK, [arguments, name, folder], limited.ProcessLimits(arguments.seconds, memory))
    step, nothing = end.step or f"importing {arguments.model}", "nothing was written or published"
    if end.limit == "seconds":
        problem = f"{step} made no progress in {arguments.seconds:g} s, which is the limit; {nothing}"
        raise EndedError(f"{problem}. Check for an endless loop, or allow more time: --seconds N")
    if end.limit == "memory":
        problem = f"{step} took more than {memory / GB:.3g} GB of memory, which is the limit; {nothing}"
        raise EndedError(f"{problem}. Use a smaller model or fewer rows, or allow more memory: --memory GB")
    if end.status < 0:
        problem = f"{step} ended the process by {signal.Signals(-end.status).name}; {nothing}"
        cure = "free some memory" if end.status == -signal.SIGKILL else "export the model or write the file again"
        raise EndedError(f"{problem}. One of the files crashes the library that reads it: {cure}")
    return end.status


def work(arguments: argparse.Namespace, name: str, folder: Path) -> int:
    """Call `write` and return the exit status, also for an error that it raises."""
    return status_of(lambda: write(arguments, name, folder))


def write(arguments: argparse.Namespace, name: str, folder: Path) -> int:
    """Write the bundle of the model called `name`, and the other files, to `folder`, and print the summary.

    Raises:
        UserError: As in `importer.import_model` and `labelled_rows.read`.
    """
    from trueodds.importing import labelled_rows
    from trueodds.importing.import_options import ImportOptions, Preprocessing
    from trueodds.importing.importer import import_model

    texts = arguments.tokenizer is not None or arguments.input == "text"
    options = ImportOptions(
        input="text" if texts and arguments.input is None else arguments.input,
        output=arguments.output,
        preprocessing=None if arguments.preprocess is None else Preprocessing.parse(arguments.preprocess),
        classes=_classes(arguments.classes),
        expected=arguments.expected,
        allow_unseen=arguments.allow_unseen,
        tokenizer=arguments.tokenizer,
        max_tokens=arguments.max_tokens,
        max_characters=arguments.max_characters,
        multilabel=arguments.multi_label,
    )
    if arguments.multi_label:
        from trueodds.cli import multi_label

        return multi_label.import_model(arguments, name, folder, options)
    limited.step(f"reading {arguments.labelled}")
    labelled = labelled_rows.read(arguments.labelled, arguments.label, texts=texts, groups=arguments.groups)
    test = None
    if arguments.test:
        limited.step(f"reading {arguments.test}")
        test = labelled_rows.read(arguments.test, arguments.label, texts=texts, groups=arguments.groups)
    outcome = import_model(
        arguments.model,
        labelled,
        folder,
        name=name,
        options=options,
        test=test,
        positive=arguments.positive,
        ordered=arguments.ordered,
        sets=sets_of(arguments),
    )
    print(summary(outcome))
    return 0


def _classes(text: str) -> tuple[str, ...]:
    """Return the names of a list separated by commas, or of a file with one name per line."""
    is_file = text and Path(text).is_file()
    names = Path(text).read_text(encoding="utf-8").splitlines() if is_file else text.split(",")
    return tuple(name.strip() for name in names if name.strip())


def _move(folder: Path, out: Path) -> Path:
    """Move the written files to the folder `out`. Return the bundle's new place."""
    from trueodds.bundle import load_bundle

    out.mkdir(exist_ok=True)
    bundle = load_bundle(folder / BUNDLE).move_to(out / BUNDLE)
    for file in folder.iterdir():
        if file.is_file():
            file.replace(out / file.name)
    return bundle.directory


def _next_step(bundle: Path, models: str | None) -> str:
    """Return the next command for the user."""
    if models is None:
        return f"Publish it:  trueodds publish --bundle {bundle}"
    return f"Serve it:  TRUEODDS_MODELS={models} trueodds serve"


def summary(outcome: Outcome) -> str:
    """Format the table of calibrators, with the notes of the card and the reason for the choice."""
    from trueodds.cli.calibrate import group_lines
    from trueodds.reports.words import align

    card, results = outcome.bundle.card, outcome.results
    size = card.input.size
    nll = {one.name: one.nll for one in outcome.selection.table}
    by_group = group_lines(outcome.bundle.calibrator)
    named: list[tuple[str, Measurement | FailedFit]] = [("none", results.before)]
    named.append((f"* {results.after.name}", results.after))
    named += [(f"  {one.name}", one) for one in results.others]
    rows = [COLUMNS, *(_line(name, one, nll.get("identity" if name == "none" else one.name)) for name, one in named)]
    lines = [
        f"{card.name}: {plural(len(card.classes), 'class', 'classes')}, {card.input.kind} {size};"
        f" {plural(outcome.calibration, 'calibration row')}, {plural(results.after.sums.n, 'test row')}",
        *(f"note: {note}" for note in card.notes),
        "",
        *align(rows, "<" * len(COLUMNS)),
        "",
        *(f"{one.name} was chosen: {one.chosen}." for one in outcome.selection.table if one.chosen),
        *(f"{one.name} was passed over: {one.passed_over}." for one in outcome.selection.table if one.passed_over),
        *_of_positive(named),
        *set_lines(card.sets),
        *([*by_group, ""] if by_group else []),
        "All numbers are measured on the test rows, except the CV NLL: the NLL by which the calibrator is chosen, which"
        " is cross-validated on the calibration rows. *: the chosen calibrator. ECE: of the more probable class, with"
        f" {results.settings.bins} bins and its {results.settings.level:.0%} interval. Noise floor: the mean ECE of"
        " calibrated probabilities on this number of rows, and its 95th percentile.",
    ]
    return "\n".join(lines)


def _line(name: str, one: Measurement | FailedFit, chosen_by: float | None) -> tuple[str, ...]:
    """Format the line of a calibrator."""
    from trueodds.evaluation.measurement import FailedFit

    cross = "" if chosen_by is None else f"{chosen_by:.4f}"
    if isinstance(one, FailedFit):
        return (name, cross, "", "", "", "", one.reason)
    return (name, cross, *_numbers(one.values, "error_rate", "nll", "ece"))


def _numbers(values: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """Return values, the interval of the ECE and its noise floor."""
    interval = f"{values['ece_lower']:.4f} .. {values['ece_upper']:.4f}"
    floor = f"{values['floor_mean']:.4f} ({values['floor_p95']:.4f})"
    return (*(f"{values[key]:.4f}" for key in keys), interval, floor)


def _of_positive(measurements: Sequence[tuple[str, Measurement | FailedFit]]) -> list[str]:
    """Return the table of p(positive), with its title and a blank line; empty without a positive class."""
    from trueodds.evaluation.measurement import Measurement
    from trueodds.reports.words import align

    known = [(name, one.positive) for name, one in measurements if isinstance(one, Measurement) and one.positive]
    if not known:
        return []
    first = known[0][1]
    rows = [OF_POSITIVE, *((name, *_numbers(p, "mean_probability", "brier", "ece")) for name, p in known)]
    title = f"p({first['class']}), over all of 0 to 1; {first['prevalence']:.4f} of the test rows are {first['class']}"
    return [title, *align(rows, "<" * len(OF_POSITIVE)), ""]
