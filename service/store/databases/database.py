"""The interface that the store needs of a database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from service.store.work.statements import MakeWork

T = TypeVar("T")


class Database(ABC):
    """Runs work in transactions. All methods raise StoreError when the database fails or is closed."""

    @abstractmethod
    async def write(self, make: MakeWork[T], *, large: bool = False) -> T:
        """Run work in a transaction that is durable when this returns. `large`: not on the event loop.

        Raises:
            RowsError: the database refuses what this work writes; nothing of it is stored.
        """

    @abstractmethod
    async def read(self, make: MakeWork[T]) -> T:
        """Run work that only reads, in one snapshot of what was committed before the call."""

    @abstractmethod
    async def ping(self) -> None:
        """Raise StoreError unless rows could be stored now, as far as can be told without storing one."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what is queued, then close; a second call does nothing."""
