"""Offsets of one partition: which messages are finished, and where the next reader begins."""

from __future__ import annotations

from collections import deque


class Offsets:
    """Messages of a partition that were read, in their order.

    The position to commit is that of the first message that is not finished. So a message that waits, such as a label
    without its answer, is read again after a restart.

    Examples:
        >>> offsets = Offsets()
        >>> for offset in (7, 8, 9):
        ...     offsets.begin(offset)
        >>> offsets.finish(8)
        >>> offsets.position is None
        True
        >>> offsets.finish(7)
        >>> offsets.position
        9
    """

    def __init__(self) -> None:
        self._open = deque[int]()
        self._finished = set[int]()
        self.position: int | None = None
        """Offset to commit; None if no message is finished."""
        self.last_commit: int | None = None
        """Offset that was committed last."""
        self.is_lost = False
        """Whether another consumer of the group has the partition now."""

    def begin(self, offset: int) -> None:
        """Note a message that was read."""
        self._open.append(offset)

    def finish(self, offset: int) -> None:
        """Note that a message is stored, or is a dead letter."""
        self._finished.add(offset)
        while self._open and self._open[0] in self._finished:
            self.position = self._open.popleft() + 1
            self._finished.remove(self.position - 1)

    def reach_end(self, offset: int) -> None:
        """Note the end of the partition. Records without a message, such as those of transactions, may precede it."""
        if not self._open and offset > (self.position or 0):
            self.position = offset

    @property
    def next_commit(self) -> int | None:
        """Position that must still be committed, or None."""
        return None if self.position == self.last_commit else self.position
