"""The initial weights that params.yaml names: a file, or weights that torchvision publishes. Nothing is read yet."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pipeline.training.plan import InitialWeights
from trueodds.errors import ConfigError, nearest

TORCHVISION = "torchvision:"
SUFFIXES = (".safetensors", ".pt", ".pth")


def find(source: str) -> InitialWeights:
    """Find the weights that params.yaml names, without a download.

    Raises:
        ConfigError: There is no such file, the file has another suffix, or torchvision has no such weights.
    """
    if source.startswith(TORCHVISION):
        entry = entry_of(source)
        return InitialWeights(f"{TORCHVISION}{entry}", file_name(entry).rpartition("-")[2].partition(".")[0])
    path = Path(source)
    if path.suffix not in SUFFIXES:
        cure = f"a file of weights ({', '.join(SUFFIXES)}), or {TORCHVISION}NAME such as {TORCHVISION}resnet18"
        raise ConfigError(f"training.start is {source!r}; allowed is {cure}")
    if not path.is_file():
        raise ConfigError(f"training.start is {source!r}, which does not exist; give the path of an existing file")
    return InitialWeights(source, sha256_of(path))


def entry_of(source: str) -> Any:
    """Return torchvision's own entry: a member of one of its enumerations of weights."""
    from pipeline.data.vision import torchvision

    models = torchvision().models
    name = source.removeprefix(TORCHVISION)
    try:
        return models.get_weight(name) if "." in name else models.get_model_weights(name).DEFAULT
    except (ValueError, AttributeError, KeyError) as error:
        known = models.list_models(module=models)
        raise ConfigError(
            f"training.start is {source!r}, and torchvision has no such weights ({error}); allowed are its image"
            f" models, such as {TORCHVISION}resnet18, and names of weights, such as"
            f" {TORCHVISION}ResNet18_Weights.IMAGENET1K_V1.{nearest(name, known)}"
        ) from None


def file_name(entry: Any) -> str:
    """Return the official file name."""
    return str(entry.url).rpartition("/")[2]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
