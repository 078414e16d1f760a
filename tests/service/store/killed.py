"""Run as a program: stores predictions and labels without end, and prints each batch once it is acknowledged."""

from __future__ import annotations

import asyncio
import json
import sys

from service.store import Store, open_store
from service.store.rows import Label
from tests.service.store.rows import HOUR, START, batch, version


async def main(address: str, first: int) -> None:
    store = Store((await open_store(address)).database, compact_commits=20)
    await store.put_version(version())

    async def client(seed: int) -> None:
        for k in range(seed, 10**9, 3):
            own = [f"own-{k}-{n}" for n in range(3)] if k % 2 else None
            held = own is not None and k % 4 == 1
            labels = [Label(id_, 0, model="m") for id_ in own or []]
            if held:
                await store.put_labels(labels)
                tell(k, labels, [])
            answers = batch(3, now=START + k % 50 * HOUR, seed=k, own=own)
            await store.put_predictions(answers)
            tell(k, [], answers.ids)
            if not held:
                labels = [Label(id_, 0) for id_ in answers.ids]
                await store.put_labels(labels)
                tell(k, labels, [])
            await store.update_state("m", "v1", "count", lambda state, block: (state or 0) + len(block))

    await asyncio.gather(*(client(first + k) for k in range(3)))


def tell(seed: int, labels: list[Label], ids: list[str]) -> None:
    sys.stdout.write(json.dumps([seed, ids, [label.id for label in labels]]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
