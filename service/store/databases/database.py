"""Interface between the store and its databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from service.store.work.statements import MakeWork

T = TypeVar("T")


class Database(ABC):
    """Database that runs work in transactions. All methods raise StoreError if it fails or is closed."""

    @abstractmethod
    async def write(self, make: MakeWork[T], *, large: bool = False) -> T:
        """Run work in a transaction that is durable when this returns.

        Args:
            make: Makes the work.
            large: Keep the work's computation off the event loop.

        Raises:
            RowsError: The database refuses the rows of this work. Nothing of it is stored.
        """

    @abstractmethod
    async def read(self, make: MakeWork[T]) -> T:
        """Run work that only reads, in one snapshot of everything committed before the call."""

    @abstractmethod
    async def ping(self) -> None:
        """Raise StoreError unless rows can be stored now, as far as this shows without storing one."""

    @abstractmethod
    async def close(self) -> None:
        """Finish the queued work, then close. A second call does nothing."""
