"""One bundle's folder, served as if it were all that is published: as Kubernetes and KServe mount it, read-only."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trueodds.bundle.bundle import Bundle, BundleError
from trueodds.bundle.contents import Contents, Key, PublishedModel


@dataclass
class SingleBundle:
    """Read as `trueodds.bundle.PublishedModels` is. Its model is called as its card says, and is the default."""

    path: Path
    _known: Contents | None = field(default=None, init=False)

    def contents(self) -> Contents:
        """The one model and version; none, and why, while the folder holds no whole bundle.

        Raises:
            OSError: the folder has gone after it was read.
        """
        if self._known is None:
            try:
                bundle = Bundle.load(self.path)
            except BundleError as error:
                return Contents(problems=(str(error),))
            name, version = bundle.card.name, bundle.version
            only = PublishedModel(frozenset({version}), default=version)
            self._known = Contents((name, version), {name: only})
        elif not self.path.is_dir():
            raise OSError(f"{self.path} is gone")
        return self._known

    def folder(self, key: Key) -> Path:
        """Where a version of the contents lies."""
        return self.path

    def fetch(self, key: Key) -> Path:
        """As `folder`."""
        return self.path

    def revision(self, key: Key) -> tuple[tuple[str, str], ...]:
        """Always the same: it lies nowhere else."""
        return ()
