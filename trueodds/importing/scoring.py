"""Logits of labelled rows: onnxruntime at its own rate, while the next images are decoded beside it. And the trial of a
bundle."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.bundle import Bundle, trial
from trueodds.importing import onnx_file
from trueodds.importing.errors import LabelledRowsError, ModelFileError
from trueodds.importing.rows import LabelledRows
from trueodds.inputs import Input, InputError, Inputs, Limits
from trueodds.processes.limited import progress
from trueodds.processes.progress import bar

VALUES = 2_400_000
"""Of a batch's inputs: 16 images of 224 x 224; onnxruntime gains nothing by more."""
AHEAD = 2
"""Batches of images that are decoded before they are scored."""
LISTED = 20
"""Files that cannot be read, by name; of the others the number."""


def score(session: Any, kind: Input, rows: LabelledRows, what: str) -> npt.NDArray[np.float32]:
    """The logits of rows, N x C, with a progress bar that says `what`.

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
    """The rows, batch by batch; errors as `score`, for images that cannot be read."""
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
