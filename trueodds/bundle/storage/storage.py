"""Protocol of a place for published models: list, read, write if unchanged, upload, fetch; and answers about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trueodds.bundle.bundle import Bundle, BundleError
from trueodds.bundle.card import Card
from trueodds.bundle.contents import Contents, Key, Listing, Step
from trueodds.calibrators import Calibrator

T = TypeVar("T")
Verb = Callable[[Listing], tuple[T, list[Step]]]
"""Change of roles: from a listing to an answer, and the small files that make the change, in their order."""


class Storage(ABC):
    """A place for published models. `path` is the folder on this machine where their versions lie.

    These defaults are for a local place that can only be read. Every call raises OSError where the place cannot be
    read or written.
    """

    notice_seconds = 5.0
    """Seconds within which a service must have noticed a change."""
    away = ""
    """Reason why the place could not be read when it was last looked at; "" where it could."""

    def __init__(self, path: Path, given: str, place: str) -> None:
        """`given`: what `--models` takes for it here. `place`: what `--models` takes from any folder."""
        self.path, self.given, self.place = path, given, place

    @abstractmethod
    def list(self) -> Listing:
        """List what is there now.

        Raises:
            BundleError: it holds nothing that can be served.
        """

    def read(self, key: Key) -> tuple[Card, Calibrator]:
        """Read the card and the calibrator of a version, which is checked as a whole where that costs little.

        Raises:
            BundleError: it is damaged.
        """
        bundle = Bundle.load(self.folder(key))
        return bundle.card, bundle.calibrator

    def write(self, model: str | None, verb: Verb[T]) -> T:
        """Write what a verb makes of the listing, unless somebody else has changed the same since; then ask it again.

        All of it is written, or nothing. Returns the verb's answer.

        Args:
            model: The model whose roles the verb may change; None: only those of the whole place.
            verb: It may be called more than once.
        """
        raise self._refusal()

    def upload(self, source: Bundle) -> Path:
        """Publish a bundle without a role, as a whole or not at all. Returns its folder on this machine.

        Raises:
            BundleError: the version is there already, and damaged.
        """
        raise self._refusal()

    def fetch(self, key: Key) -> Path:
        """Return the folder of a published version on this machine. It is fetched now if need be.

        Raises:
            BundleError: what lies there is not the version that it says.
        """
        return self.folder(key)

    def contents(self) -> Contents:
        """Read all models, versions and roles; none, and the reason, where it holds nothing that can be served."""
        try:
            return self.list().contents()
        except BundleError as error:
            return Contents(problems=(str(error),))

    def folder(self, key: Key) -> Path:
        """Return the folder of a published version on this machine, fetched or not."""
        return self.path.joinpath(*key)

    def revision(self, key: Key) -> tuple[tuple[str, str], ...]:
        """Return a value that changes with the version where `fetch` takes it from, if that is elsewhere."""
        return ()

    def check_writable(self) -> None:
        """Raise OSError where nothing can be published."""
        raise self._refusal()

    def _refusal(self) -> OSError:
        return OSError(f"{self.place} can only be read; models are published to a folder or to s3://bucket/prefix")
