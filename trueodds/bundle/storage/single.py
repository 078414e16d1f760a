"""One bundle's folder, served as if it were all that is published: as Kubernetes and KServe mount it, read-only."""

from __future__ import annotations

from pathlib import Path

from trueodds.bundle.bundle import Bundle
from trueodds.bundle.contents import DEFAULT, Key, Listing
from trueodds.bundle.storage.storage import Storage


class Single(Storage):
    """A folder with one bundle in it. Its model is called as its card says, and is the default."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, str(path), str(path.resolve()))
        self._listing: Listing | None = None

    def list(self) -> Listing:
        """The one model and version, once the folder holds a whole bundle."""
        if self._listing is None:
            bundle = Bundle.load(self.path)
            name, version = bundle.card.name, bundle.version
            texts: dict[str, bytes] = {DEFAULT: f"{name}/{version}\n".encode()}
            self._listing = Listing(self.given, {name: frozenset({version})}, texts.get, lambda _: 0.0)
        elif not self.path.is_dir():
            raise OSError(f"{self.path} is gone")
        return self._listing

    def folder(self, key: Key) -> Path:
        return self.path
