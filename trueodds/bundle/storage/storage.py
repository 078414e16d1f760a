"""Interface of a place for published models: list, read, write if unchanged, upload, fetch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trueodds.bundle.contents import BundleError, Contents, Key, Listing, Step, VersionSummary

if TYPE_CHECKING:
    from trueodds.bundle.card import Card
    from trueodds.bundle.stored_bundle import StoredBundle
    from trueodds.calibrators import Calibrator, MultilabelPlatt

T = TypeVar("T")
Verb = Callable[[Listing], tuple[T, list[Step]]]
"""Change of roles: a function from a listing to a result and the small files to write, in their order."""


class Storage(ABC):
    """A place for published models. `path` is the folder of their versions on this machine.

    The default methods are those of a local read-only place.

    Raises:
        OSError: In every method: the place cannot be read or written.
    """

    notice_seconds = 5.0
    """Seconds within which a service notices a change."""
    away = ""
    """Reason why the place could not be read at the last attempt; "" if it could."""

    def __init__(self, path: Path, given_place: str, place: str) -> None:
        """Set the folder on this machine, and the values of `--models` for it: as given, and valid in any folder."""
        self.path, self.given_place, self.place = path, given_place, place

    @abstractmethod
    def list(self) -> Listing:
        """Return the current listing.

        Raises:
            BundleError: The place holds nothing that can be served.
        """

    def read(self, key: Key) -> tuple[Card, Calibrator | MultilabelPlatt]:
        """Read the card and the calibrator of a version. The whole version is checked if this costs little.

        Raises:
            BundleError: The version is damaged.
        """
        from trueodds.bundle.storage.loading import load_bundle

        bundle = load_bundle(self.folder(key))
        return bundle.card, bundle.calibrator

    def summary(self, key: Key) -> VersionSummary:
        """Summarise a version for a list.

        Raises:
            BundleError: The version is damaged.
        """
        card, calibrator = self.read(key)
        return VersionSummary.of(card.model_dump(), calibrator.name)

    def write(self, model: str | None, verb: Verb[T]) -> T:
        """Apply a change of roles.

        If somebody else has changed the same files meanwhile, repeat it on a new listing.

        All files of the change are written, or none.

        Args:
            model: Model whose roles the change may affect. None: only the roles of the whole place.
            verb: The change. It may be called more than once.

        Returns:
            The result of the change.
        """
        raise self._refusal()

    def upload(self, source: StoredBundle[Any]) -> Path:
        """Publish a bundle without a role, completely or not at all. Return its folder on this machine.

        Raises:
            BundleError: The version exists already and is damaged.
        """
        raise self._refusal()

    def fetch(self, key: Key) -> Path:
        """Return the folder of a published version on this machine. It is fetched now if necessary.

        Raises:
            BundleError: The content is not the version that the folder names.
        """
        return self.folder(key)

    def contents(self) -> Contents:
        """Read all models, versions and roles.

        If the place holds nothing that can be served, return only the reason.
        """
        try:
            return self.list().contents()
        except BundleError as error:
            return Contents(problems=(str(error),))

    def folder(self, key: Key) -> Path:
        """Return the folder of a published version on this machine, fetched or not."""
        return self.path.joinpath(*key)

    def revision(self, key: Key) -> tuple[tuple[str, str], ...]:
        """Return a value that changes with the version's source, if `fetch` copies it from elsewhere."""
        return ()

    def check_writable(self) -> None:
        """Check that something can be published.

        Raises:
            OSError: The place cannot be written.
        """
        raise self._refusal()

    def _refusal(self) -> OSError:
        return OSError(f"{self.place} can only be read; models are published to a folder or to s3://bucket/prefix")
