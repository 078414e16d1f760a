"""Published models by the place that is given: a folder, or a bucket's URL."""

from __future__ import annotations

import os
from pathlib import Path

from trueodds.bundle.bucket.cached import CachedModels
from trueodds.bundle.bucket.models import BucketModels
from trueodds.bundle.bucket.objects import is_url
from trueodds.bundle.bucket.versions import cache_of
from trueodds.bundle.model_folder import ModelFolder
from trueodds.bundle.published import VARIABLE, PublishedModels
from trueodds.bundle.single import SingleBundle

Published = PublishedModels | CachedModels | SingleBundle
"""What a service serves."""


def open_models(place: str | Path | None = None, *, home: Path | None = None) -> ModelFolder:
    """The models in a folder, which is taken from `home`, or under s3://bucket/prefix. Nothing is read as yet.

    None: those that TRUEODDS_MODELS names, or `models`, as the service does.

    >>> open_models("s3://bucket/models").place
    's3://bucket/models'
    """
    given = str(place or os.environ.get(VARIABLE) or "models")
    return BucketModels.of(given) if is_url(given) else ModelFolder((home or Path()) / given)


def open_published(place: str, bundle: Path | None, cache: Path | None, seconds: float) -> Published:
    """What a service serves: one bundle's folder, or else a folder or a bucket, which is looked at in `seconds`."""
    if bundle is not None:
        return SingleBundle(bundle)
    return CachedModels(place, cache_of(place, cache), seconds) if is_url(place) else PublishedModels(Path(place))
