"""`kill -9` at any moment: what was acknowledged is there, once, and the sums and the evidence agree with it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from service.store import open_store
from service.store.rows import Label
from tests.service.store.rows import assert_same, batch, count

ROOT = Path(__file__).parents[3]


def work_and_die(address: str, first: int, lines: int) -> list[tuple[int, list[str], list[str]]]:
    """What a worker says it has stored until it is killed, some time after so many lines."""
    command = [sys.executable, "-m", "tests.service.store.killed", address, str(first)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    output += process.stdout.read().splitlines()
    process.stdout.close()
    assert process.wait(60) == -signal.SIGKILL
    return [tuple(json.loads(line)) for line in output if line.strip().endswith("]]")]


@pytest.mark.parametrize(
    ("address", "kills"),
    [("sqlite", 1), *(pytest.param(store, 4, marks=pytest.mark.full) for store in ("sqlite", "postgres"))],
    indirect=["address"],
)
async def test_what_was_acknowledged_is_there(address: str, kills: int) -> None:
    rng = np.random.default_rng(kills)
    output = [line for k in range(kills) for line in work_and_die(address, 3_000_000 * k, int(rng.integers(30, 120)))]
    ids = [id_ for _, stored, _ in output for id_ in stored]
    labelled = [id_ for _, _, labels in output for id_ in labels]
    assert len(ids) > 20 * kills and len(labelled) > 20 * kills
    store = await open_store(address)
    answers = await store.read_answers("m", ids)
    assert set(answers) == set(ids)
    for seed, stored, _ in output:
        expected = batch(3, seed=seed)
        for k, id_ in enumerate(stored):
            assert answers[id_].logits == expected.logits_NC[k].tobytes()
    again = await store.put_labels([Label(id_, 0, model="m") for id_ in labelled])
    assert again.already_known == len(labelled)
    # Sums, log and evidence say the same, rows that were stored without a word included.
    log, sums = await store.read_labels("m", "v1"), await store.read_sums("m", "v1")
    assert log.sequence_L.tolist() == list(range(1, len(log) + 1))
    assert sums.labelled.n == len(log) == len(set(log.ids))
    assert sums.labelled.total("correct") == log.correct_L.sum()
    assert sums.labelled.total("nll") == pytest.approx(log.nll_L.sum())
    assert await store.update_state("m", "v1", "count", lambda state, block: (state or 0) + len(block)) == len(log)
    rows = await store.database.read(partial(count, "predictions"))
    assert sums.answers == rows >= len(ids)
    await store.compact()
    assert_same(await store.read_sums("m", "v1"), sums)
    await store.close()
