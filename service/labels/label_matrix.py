"""Labelled answers of a model of independent labels as one matrix, joined by the ids of the answers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from service.errors import ServiceError
from service.models.label_engine import OWN_WORDING
from service.runtime import Runtime
from service.store.rows import LabelledLogits, Version
from trueodds.texts import plural

MOST_TRUTHS = 10_000_000
"""Largest number of labels in one file. They are joined in memory, about 100 bytes for each."""
MOST_CELLS = 100_000_000
"""Largest number of pairs of an answer and a label in one file, known or not. Each takes 13 bytes."""
UNKNOWN = -1
"""Value of a label that is not known."""


@dataclass(frozen=True)
class LabelQuestions:
    """A version of a model of independent labels, and what the store has of it."""

    model: str
    version: str
    labels: tuple[str, ...]
    versions: tuple[Version, ...]
    """Stored version of each label's question, in the order of the labels."""


async def questions(runtime: Runtime, model: str | None, version: str | None) -> LabelQuestions | None:
    """Return the questions of the model of independent labels that a request selects; None for other models.

    Without a version it is the served one or, if none is served, the one that was added last.

    Raises:
        ServiceError: 404 if the model has independent labels, and no version of this name has answered.
    """
    engine = runtime.registry.served_labels(model)
    name = model if engine is None else engine.key[0]
    if name is None:
        return None
    known = await runtime.store.read_versions()
    if any(one.model == name and version in (None, one.version) for one in known) and (engine is None or version):
        return None  # an earlier or later model of this name has exclusive classes
    own = [one.of for one in await runtime.store.read_questions() if one.of.served == name]
    own = [of for of in own if of.wording == OWN_WORDING]
    if engine is None and not own:
        return None
    wanted = version or (engine.key[1] if engine is not None else "")
    by_key = {of.key: of for of in own}
    stored = [one for one in known if one.key in by_key]
    wanted = wanted or stored[-1].version
    chosen = tuple(one for one in stored if one.version == wanted)
    if not chosen:
        message = f"{name}/{wanted} has no labelled answers; send labels to POST /feedback"
        raise ServiceError(404, "no_labels", message)
    labels = tuple(by_key[one.key].name.removeprefix(f"{name}-") for one in chosen)
    return LabelQuestions(name, wanted, labels, chosen)


async def build(runtime: Runtime, of: LabelQuestions, since_ms: int | None, last: int | None) -> IO[bytes]:
    """Build a temporary file of all answers with a known label, of at most the `last` ones.

    Raises:
        ServiceError: 404 if there is none, 422 for more than `MOST_TRUTHS` labels, 503 without space on the disk.
    """
    blocks, truths, rows = list[list[LabelledLogits]](), 0, set[str]()
    for version in of.versions:
        await runtime.mature(version)
    ids: list[str] | None = None
    if last is not None:  # chosen over all labels: the last labels of each are those of different answers
        ids = await runtime.store.read_last_answer_ids([version.key for version in of.versions], since_ms, last)
    for version in of.versions:
        blocks.append([])
        async for block in runtime.store.read_labelled_logits(*version.key, since_ms, ids=ids):
            truths += len(block.ids)
            rows.update(block.ids)
            if truths > MOST_TRUTHS or len(rows) * len(of.labels) > MOST_CELLS:
                many = (
                    plural(MOST_TRUTHS, "label")
                    if truths > MOST_TRUTHS
                    else f"{MOST_CELLS:,} pairs of an answer and a label"
                )
                message = f"{of.model}/{of.version} has more than {many}"
                raise ServiceError(422, "invalid_parameter", f"{message}; give a later start (since), or last")
            blocks[-1].append(block)
    if not truths:
        message = f"{of.model}/{of.version} has no labelled answers; send labels to POST /feedback"
        raise ServiceError(404, "no_labels", message)
    try:
        return await asyncio.to_thread(_write, matrix(blocks, of.labels))
    except OSError as error:
        message = f"the file cannot be built in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR to another folder"
        raise ServiceError(503, "no_space", message) from None


def matrix(blocks: Sequence[Sequence[LabelledLogits]], labels: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Join the blocks of each label by the ids of the answers, in the order of each answer's first label."""
    place: dict[str, int] = {}
    tags: dict[str, int] = {}
    found = []
    for of_label in blocks:
        for block in of_label:
            row_M = np.array([place.setdefault(id_, len(place)) for id_ in block.ids], np.intp)
            places = [-1 if tag is None else tags.setdefault(tag, len(tags)) for tag in block.tags]
            found.append((row_M, np.array(places, np.int64)))
    rows, count, parts = len(place), len(labels), iter(found)
    logits_NL, labels_NL = np.zeros((rows, count), np.float32), np.full((rows, count), UNKNOWN, np.int8)
    arrived_NL = np.zeros((rows, count), np.int64)
    created_N, tag_N, propensity_N = np.zeros(rows, np.int64), np.full(rows, -1, np.int64), np.full(rows, np.nan)
    for label, of_label in enumerate(blocks):
        for block in of_label:
            row_M, tag_M = next(parts)
            logits_NL[row_M, label] = block.logits_NC[:, 1] - block.logits_NC[:, 0]
            labels_NL[row_M, label], arrived_NL[row_M, label] = block.labels_N, block.arrived_ms_N
            created_N[row_M], tag_N[row_M] = block.created_ms_N, tag_M
            propensity_N[row_M] = block.propensity_N
    known_NL = labels_NL != UNKNOWN
    first_N = np.where(known_NL, arrived_NL, np.iinfo(np.int64).max).min(axis=1)
    order_N = np.argsort(first_N, kind="stable")
    return {
        "logits": logits_NL[order_N],
        "labels": labels_NL[order_N],
        "arrived_ms": arrived_NL[order_N],
        "created_ms": created_N[order_N],
        "propensity": propensity_N[order_N],
        "tag": tag_N[order_N],
        "tag_names": np.array(list(tags), np.str_),
        "label_names": np.array(list(labels), np.str_),
    }


def _write(arrays: dict[str, npt.NDArray[Any]]) -> IO[bytes]:
    """Write arrays of the split `val` to a temporary file."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  closed after it is sent
    named: dict[str, Any] = {f"val_{name}": array for name, array in arrays.items()}
    np.savez(file, **named)
    return file
