"""Makes a bundle of your own ONNX model: the probabilities of `model` calibrated on labelled rows.

Labelled rows: an .npz with x and y, a folder of class folders of images, or a .csv or .parquet table with a column of
labels; of texts a table with the columns text and label, or class folders of .txt files. The model may take float or
uint8 images in either order of axes, vectors, or the ids of a text's tokens, and answer with logits or probabilities,
which is found out by their sum.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from trueodds.bundle import open_models
from trueodds.cli import Subparsers
from trueodds.errors import UserError
from trueodds.importing import importer, rows
from trueodds.importing.conversion import Options
from trueodds.importing.kinds import LENGTH
from trueodds.importing.preprocessing import PRESETS, Preprocessing
from trueodds.importing.signature import Kind
from trueodds.importing.summary import next_step, summary

OUT = Path("imported")
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
    words = (
        "in the order of the model's outputs: a,b,c, or a file with one a line (default: as model or rows name them)"
    )
    parser.add_argument("--classes", default="", metavar="NAMES", help=words)
    words = "the one of two classes that the model is asked about, such as malignant: answers give its probability"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    words = "some classes may have no labelled row: nothing is learned or measured about them"
    parser.add_argument("--allow-unseen", action="store_true", help=words)
    words = f"the column of a table that holds the labels (default: {rows.LABEL})"
    parser.add_argument("--label", default=rows.LABEL, metavar="COLUMN", help=words)
    words = "what the model takes (default: by its rank; text with --tokenizer)"
    parser.add_argument("--input", choices=("image", "vector", "text"), help=words)
    words = "of a model of texts: its tokenizer.json, as Hugging Face's tokenizers writes it"
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help=words)
    words = f"tokens of a text that the model reads (default: as the tokenizer says, or {LENGTH})"
    parser.add_argument("--max-tokens", type=int, metavar="N", help=words)
    words = "what makes the model's input of pixels or features: " + ", ".join(PRESETS)
    words += ", a mapping {mean, std, scale, size, crop, interpolation, layout}, or a YAML file"
    parser.add_argument("--preprocess", metavar="HOW", help=words)
    parser.add_argument("--output", metavar="NAME", help="which of several outputs holds logits or probabilities")
    parser.add_argument("--name", default="", help="of the model (default: that of its file)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help=f"(default: {OUT}/, in it NAME/)")
    parser.add_argument(
        "--publish", metavar="MODELS", help="publish the bundle to this model directory, or s3://bucket/prefix"
    )


def run(arguments: argparse.Namespace) -> int:
    preprocessing = None if arguments.preprocess is None else Preprocessing.parse(arguments.preprocess)
    name = arguments.name or re.sub(r"[^A-Za-z0-9._-]+", "-", arguments.model.stem).lstrip("-._") or "model"
    if not arguments.model.is_file():
        raise MissingModelError(f"{arguments.model} does not exist; give the path of an ONNX file")
    texts = arguments.tokenizer is not None or arguments.input == "text"
    kind: Kind | None = "text" if texts and arguments.input is None else arguments.input
    imported = importer.import_model(
        arguments.model,
        rows.read(arguments.labelled, arguments.label, texts=texts),
        arguments.out / name,
        name=name,
        options=Options(kind, arguments.output, preprocessing, arguments.tokenizer, arguments.max_tokens),
        test=rows.read(arguments.test, arguments.label, texts=texts) if arguments.test else None,
        classes=_classes(arguments.classes),
        positive=arguments.positive,
        allow_unseen=arguments.allow_unseen,
    )
    bundle, published = imported.bundle.directory, None
    print(summary(imported))
    print(f"\nBundle: {bundle}; beside it logits.npz, metrics.json and calibrators.csv")
    if arguments.publish:
        models = open_models(arguments.publish)
        key = models.publish(bundle, why="imported").parts[-2:]
        published = models.given
        print(f"Published: {models.address(*key)}", models.standing(*key), sep="\n")
    print(next_step(bundle, published))
    return 0


class MissingModelError(UserError, FileNotFoundError):
    """There is no file where the model should be."""


def _classes(text: str) -> list[str]:
    """Names of a list with commas, or of a file with one a line."""
    if text and Path(text).is_file():
        return [line.strip() for line in Path(text).read_text(encoding="utf-8").splitlines() if line.strip()]
    return [name.strip() for name in text.split(",") if name.strip()]
