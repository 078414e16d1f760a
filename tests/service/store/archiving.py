"""Run as a program: archives the answers of a store in small files, until it is killed or nothing is left."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any

from service.predict.stored.archive import AnswerArchive
from service.store import open_store


async def main(address: str, folder: str, before: int) -> None:
    store = await open_store(address)
    small: Any = partial(store.move_to_archive, most=120, limit=20)
    store.move_to_archive = small  # type: ignore[method-assign]
    print("ready", flush=True)
    await AnswerArchive(store, folder).run(before)
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
