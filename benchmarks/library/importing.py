"""Speed of `trueodds import` on labelled rows, relative to onnxruntime alone on the same model.

    python -m benchmarks.library.importing                 # two minutes on two cores
    python -m benchmarks.library.importing --write         # the same, to benchmarks/results/importing.json

A ResNet-50 with random weights takes float images N x 3 x 224 x 224. `raw` gives onnxruntime float32 batches in memory,
which are normalised before the measurement. `array` scores a uint8 array, normalised in the graph. `folder` also
decodes, crops and scales JPEGs of 500 x 375. The three take turns, and each is compared with `raw` of its own turn;
results are medians.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from PIL import Image

from benchmarks.record import RESULTS, conclude, options_parser
from trueodds.importing.import_options import ImportOptions, Preprocessing
from trueodds.importing.importer import convert
from trueodds.importing.labelled_rows import VALUES, ImportRows, read
from trueodds.importing.rewriting import ServableModel
from trueodds.importing.scoring import logits_of

RESULT = RESULTS / "importing.json"
SIDE, WIDTH, HEIGHT, CLASSES = 224, 500, 375, 2
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
AIMS = {"array": 0.95, "folder": 0.80}


def write_model(path: Path) -> None:
    """Write torchvision's ResNet-50 with random weights and a dynamic batch."""
    import torch

    from pipeline.data.vision import torchvision

    net = torchvision().models.resnet50().eval()
    shapes = ({0: torch.export.Dim("batch")},)
    example = (torch.zeros(2, 3, SIDE, SIDE),)
    torch.onnx.export(net, example, str(path), dynamic_shapes=shapes, dynamo=True, external_data=False, verbose=False)


def photograph(folder: Path, count: int) -> None:
    """Write JPEG photos in class folders, with smooth colours and grain so that they compress like photos."""
    rng = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), dtype=np.float64)
        pixels = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
        path = folder / f"class{number % CLASSES}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)


def turns(model: Path, folder: Path, count: int, rounds: int) -> dict[str, list[float]]:
    """Return images per second, one number per round."""
    x = np.random.default_rng(1).integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)
    options = ImportOptions(preprocessing=Preprocessing.parse("imagenet"))
    rows = {"array": ImportRows("array", x, np.zeros(count, np.int64)), "folder": read(folder)}
    converted = {name: convert(model, each, options) for name, each in rows.items()}
    work: dict[str, Callable[[], object]] = {"raw": raw(model, x)}
    work |= {name: scored(converted[name], each) for name, each in rows.items()}
    rates: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            started = time.perf_counter()
            run()
            rates[name].append(count / (time.perf_counter() - started))
    return rates


def raw(model: Path, x: Any) -> Callable[[], object]:
    """Run onnxruntime alone in the batches of the import."""
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    size = VALUES // (SIDE * SIDE * 3)
    taken = ((x / 255 - MEAN) / STD).astype(np.float32).transpose(0, 3, 1, 2)
    batches = [np.ascontiguousarray(taken[start : start + size]) for start in range(0, len(x), size)]
    name = session.get_inputs()[0].name
    return lambda: [session.run(None, {name: batch}) for batch in batches]


def scored(converted: ServableModel, rows: ImportRows) -> Callable[[], object]:
    """Score the rows as `trueodds import` does."""
    return lambda: logits_of(converted, {"rows": rows})


def markdown(record: dict[str, Any]) -> str:
    """Return the record as a table of docs/explanation/results.md."""
    setting, rates, ratios = record["setting"], record["rates"], record["ratios"]
    rows = [f"| {name} | {rates[name]:.1f} | {ratios[name]:.2f} | {AIMS[name]:.2f} |" for name in AIMS]
    return "\n".join(
        [
            f"ResNet-50 at {SIDE} pixels, {setting['count']} images, {setting['rounds']} turns; onnxruntime alone"
            f" {rates['raw']:.1f} images a second.",
            "",
            "| rows | images a second | of onnxruntime alone | aim |",
            "|---|---:|---:|---:|",
            *rows,
        ]
    )


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--count", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_model(folder / "resnet50.onnx")
        photograph(folder / "photos", options.count)
        rates = turns(folder / "resnet50.onnx", folder / "photos", options.count, options.rounds)
    ratios = {
        name: statistics.median(own / of for own, of in zip(rates[name], rates["raw"], strict=True)) for name in AIMS
    }
    conclude(
        RESULT if options.write else None,
        markdown,
        packages=("onnxruntime",),
        setting={"count": options.count, "rounds": options.rounds},
        rates={name: statistics.median(each) for name, each in rates.items()},
        ratios=ratios,
    )


if __name__ == "__main__":
    main()
