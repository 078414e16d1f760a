"""Scores labelled rows with onnxruntime, while the next images are decoded beside it, and tries a bundle."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.bundle import Bundle, trial
from trueodds.importing import onnx_file
from trueodds.importing.errors import LabelledRowsError, ModelFileError
from trueodds.importing.rows import LabelledRows
from trueodds.inputs import Input, InputError, Inputs, Limits, TextInput, VectorInput
from trueodds.processes.limited import progress
from trueodds.processes.progress import bar

VALUES = 2_400_000
"""Numbers in a batch: 16 images of 224 x 224; onnxruntime gains nothing by more."""
AHEAD = 2
"""Batches of images that are decoded before they are scored."""
LISTED = 20
"""Files that cannot be read which a message names; of the others it gives the number."""


def inputs_of(kind: Input, rows: LabelledRows) -> LabelledRows:
    """Returns the rows as the kind has them; files stay files.

    Raises:
        LabelledRowsError: another shape.
        InputError: values that the kind does not take.
    """
    if isinstance(rows.x, tuple):
        return rows
    if isinstance(kind, TextInput):
        texts = kind.of_checked(rows.x.tolist(), Limits(), lambda n: f"{rows.source}: row {n + 1:,}")
        return LabelledRows(rows.source, texts, rows.y, rows.classes)
    if isinstance(kind, VectorInput):
        rows = rows.ordered(kind.features)
        x = rows.x
    else:
        x = rows.images()
    assert not isinstance(x, tuple)
    if x.shape[1:] != kind.shape:
        raise LabelledRowsError(f"{rows.source}: x has the shape {x.shape}; the model takes rows of shape {kind.shape}")
    return LabelledRows(rows.source, kind.checked(x, f"x of {rows.source}"), rows.y, rows.classes, rows.features)


def sample(kind: Input, rows: LabelledRows, count: int) -> Inputs:
    """Returns up to `count` of the rows, evenly spread, as one batch of the kind; errors as `inputs_of` and `score`."""
    return np.concatenate(list(batches(kind, inputs_of(kind, rows.take(rows.spread(count))))))


@dataclass(frozen=True)
class Answers:
    """A model's logits of the rows of each split, and of one row alone."""

    logits: dict[str, npt.NDArray[np.float32]]
    golden: Inputs
    """The first row of the first split."""
    golden_logits: npt.NDArray[np.float32]
    """The answer for it alone, (classes,)."""


def answer(data: bytes, path: Path, kind: Input, splits: Mapping[str, LabelledRows]) -> Answers:
    """Runs a servable model on the rows of each split; `path` is for messages.

    Raises:
        ModelFileError, LabelledRowsError, InputError: as `inputs_of` and `score`.
    """
    parts = {split: inputs_of(kind, rows) for split, rows in splits.items()}
    first = next(iter(parts.values()))
    session = onnx_file.session(data, path, spinning=not isinstance(first.x, tuple))
    logits = {split: score(session, kind, part, f"score {part.source}") for split, part in parts.items()}
    golden = next(batches(kind, first.take([0])))
    return Answers(logits, golden[0], session.run(None, kind.feed(golden, [kind.tensor]))[0][0])


def score_sample(data: bytes, path: Path, kind: Input, rows: LabelledRows) -> npt.NDArray[np.float32]:
    """Computes the logits of a few rows at once; `path` is for messages."""
    inputs = sample(kind, rows, len(rows))
    logits_NC: npt.NDArray[np.float32] = onnx_file.session(data, path).run(None, kind.feed(inputs, [kind.tensor]))[0]
    return logits_NC


def score(session: Any, kind: Input, rows: LabelledRows, what: str) -> npt.NDArray[np.float32]:
    """Computes the logits of rows, N x C, with a progress bar that says `what`.

    Raises:
        LabelledRowsError: images that cannot be read, all of them by one message.
        ModelFileError: rows that onnxruntime cannot run, logits that are not finite.
    """
    parts: list[npt.NDArray[np.float32]] = []
    with bar(len(rows), what, kind.noun) as shown:
        for batch in batches(kind, rows):
            try:
                parts.append(session.run(None, kind.feed(batch, [kind.tensor]))[0])
            except Exception as error:  # onnxruntime has a dozen exception types without a common base
                raise ModelFileError(
                    f"{rows.source}: onnxruntime cannot run its rows: {' '.join(str(error).split())}"
                ) from None
            shown.update(len(batch))
            progress()
    logits_NC = np.concatenate(parts)
    if len(bad := np.flatnonzero(~np.isfinite(logits_NC).all(axis=1))):
        first = rows.x[bad[0]] if isinstance(rows.x, tuple) else f"row {bad[0]}"
        problem = (
            f"{rows.source}: the logits of {len(bad):,} of {len(rows):,} rows are not finite, the first of {first}"
        )
        raise ModelFileError(
            f"{problem}; look for missing or extreme values in the row, and for an overflow (float16) in the model"
        )
    return logits_NC


def try_bundle(bundle: Bundle) -> None:
    """Loads a bundle's graph as the service does and checks its answers, one row at a time and in a full batch.

    Raises:
        ModelFileError: onnxruntime refuses the graph.
        BundleError: the service would refuse the bundle, or an answer depends on the rows beside it.
    """
    session = onnx_file.session(str(bundle.model_path), bundle.model_path)
    names = [tensor.name for tensor in session.get_inputs()]

    def infer(rows: Inputs) -> Any:
        return session.run([session.get_outputs()[0].name], bundle.card.input.feed(rows, names))[0]

    rows = trial.check(bundle, session.get_inputs(), session.get_outputs(), infer)
    trial.check_batch(bundle, rows, infer)


def batches(kind: Input, rows: LabelledRows) -> Iterator[npt.NDArray[Any]]:
    """Yields the rows, batch by batch.

    Raises:
        LabelledRowsError: images that cannot be read, all of them by one message.
    """
    size = max(1, min(kind.together, VALUES // int(np.prod(kind.shape))))
    if not isinstance(rows.x, tuple):
        for start in range(0, len(rows), size):
            yield np.ascontiguousarray(rows.x[start : start + size])
        return
    unreadable: dict[Path, str] = {}
    waiting: deque[Future[npt.NDArray[Any] | InputError]] = deque()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, len(rows.x), size):
            while len(waiting) < min((AHEAD + 1) * size, len(rows.x) - start):
                waiting.append(pool.submit(_decoded, kind, rows.x[start + len(waiting)]))
            images = [waiting.popleft().result() for _ in range(min(size, len(waiting)))]
            for path, image in zip(rows.x[start:], images, strict=False):
                if isinstance(image, InputError):
                    unreadable[path] = str(image)
            if not unreadable:  # otherwise the rest is read for its faults alone
                yield np.concatenate([image for image in images if not isinstance(image, InputError)])
    if unreadable:
        raise _unreadable(unreadable, len(rows.x))


def _decoded(kind: Input, path: Path) -> npt.NDArray[Any] | InputError:
    try:
        return kind.from_files([(str(path), path.read_bytes())], Limits())
    except InputError as error:
        return error


def _unreadable(files: dict[Path, str], total: int) -> LabelledRowsError:
    lines = [f"  {files[path]}" for path in sorted(files)[:LISTED]]
    more = [f"  and {len(files) - LISTED:,} more"] if len(files) > LISTED else []
    which = f"{len(files):,} of {total:,} images cannot be read; mend or remove them:"
    return LabelledRowsError("\n".join([which, *lines, *more]))
