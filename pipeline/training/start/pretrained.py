"""Pretrained weights: read from a file, or from torchvision's published ones, and loaded into a net by name."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from pipeline.nets.net import Net
from pipeline.training.plan import InitialWeights
from pipeline.training.start import initial_weights
from pipeline.training.start.initial_weights import TORCHVISION, entry_of, sha256_of
from trueodds.errors import UserError
from trueodds.files import naming

log = logging.getLogger("pipeline.training")

FOLDER = "TRUEODDS_WEIGHTS"
"""Environment variable with the folder of published weights, under their official file names (default weights/)."""
WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Keys under which checkpoints of training scripts hold the weights."""
HEAD = ("head.weight", "head.bias")
COUNTERS = "num_batches_tracked"
SHOWN = 10
"""Number of names in a message."""


class WeightsError(UserError, ValueError):
    """Weights that cannot be used. The message names the file, the problem, what is allowed, and what to do."""


@dataclass(frozen=True)
class Weights:
    """Weights that were read.

    Attributes:
        state: Name -> tensor.
        sha256: SHA-256 of the file.
        normalise: Mean and std of each channel in [0, 1] in their training, if known.
        note: Sentence about them for the model's card.
    """

    state: Mapping[str, Tensor]
    sha256: str
    normalise: dict[str, list[float]] | None
    note: str


def read(start: InitialWeights) -> Weights:
    """Read the weights; download torchvision's if they are not in the folder.

    Raises:
        WeightsError: The file is damaged, contains more than weights or has another checksum, or there is no network.
    """
    if not start.source.startswith(TORCHVISION):
        path = Path(start.source)
        digest = sha256_of(path)
        if digest != start.sha256:
            raise WeightsError(f"{path} has changed since the run was planned; run: dvc repro")
        note = f"Training began with the weights of {path.name} (SHA-256 {digest}); their licence is unknown."
        return Weights(_state(path), digest, None, note)
    entry = entry_of(start.source)
    path = _download(entry)
    digest = sha256_of(path)
    if not digest.startswith(start.sha256):
        raise WeightsError(
            f"{path} has SHA-256 {digest}, and its name says that it begins with {start.sha256}: it is damaged, or"
            " another file; remove it to download it again"
        )
    shown = entry.transforms()
    note = (
        f"Training began with torchvision's {entry} (SHA-256 {digest}): code under BSD-3-Clause, weights learned from"
        " ImageNet-1K, whose terms of access are for non-commercial research; check that your use is covered."
    )
    return Weights(_state(path), digest, {"mean": list(shown.mean), "std": list(shown.std)}, note)


def load(net: Net, state: Mapping[str, Tensor], source: str) -> str:
    """Load weights into a net; return a sentence about the head for the card.

    The head keeps its random weights if the file has none for it, or has another number of classes.

    Raises:
        WeightsError: The weights belong to another net or are not finite.
    """
    given, own = net.own_names(state), net.state_dict()
    body = [name for name in own if name not in HEAD and not name.endswith(COUNTERS)]
    problems = [f"{name} is missing" for name in body if name not in given]
    problems += [f"{name} is not a name of this net" for name in given if name not in own]
    problems += [
        f"{name} is {_size(given[name])}, here {_size(own[name])}"
        for name in [*body, HEAD[0]]
        if name in given and not _fits(name, given[name], own[name])
    ]
    if problems:
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise WeightsError(
            f"{source} does not hold weights of this net ({len(problems)} names differ: {'; '.join(problems[:SHOWN])}"
            f"{more}); set training.net, width and depth to those of the net of these weights (trueodds nets)"
        )
    if bad := [name for name, tensor in given.items() if not bool(torch.isfinite(tensor.float()).all())]:
        raise WeightsError(f"{source}: {bad[0]} contains values that are not finite")
    classes = len(own[HEAD[1]])
    if HEAD[0] not in given or HEAD[1] not in given:
        note = "The last layer is new: the file has no weights for it."
    elif len(given[HEAD[1]]) != classes:
        theirs = len(given[HEAD[1]])
        note = f"The last layer is new: the file has {theirs:,} classes, the data have {classes:,}."
    else:
        note = f"The last layer began with the weights of the file, which also has {classes:,} classes."
    new = "is new" in note
    net.load_state_dict({n: t for n, t in given.items() if not (new and n in HEAD)}, strict=False)
    return note


def _download(entry: Any) -> Path:
    """Return the file of torchvision's weights; download it if it is missing."""
    folder = Path(os.environ.get(FOLDER) or "weights")
    path = folder / initial_weights.file_name(entry)
    if not path.exists():
        log.info("%s: downloading %s", entry, entry.url)
        folder.mkdir(parents=True, exist_ok=True)
        with naming(path):
            try:
                torch.hub.download_url_to_file(entry.url, str(path), progress=False)
            except (URLError, OSError) as error:
                raise WeightsError(
                    f"{entry} could not be downloaded from {entry.url} ({error}). Without a network, put {path.name}"
                    f" into a folder and set {FOLDER}=<folder>"
                ) from None
    return path


def _state(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file by name, without executing anything in it."""
    try:
        held: Any = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).partition("\n")[0]
        cure = "save its state_dict alone: torch.save(net.state_dict(), path), or safetensors.torch.save_file"
        raise WeightsError(f"{path} contains more than weights, which is refused ({reason}); {cure}") from None
    except (SafetensorError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise WeightsError(f"{path} is not a complete file of weights ({str(error).partition(chr(10))[0]})") from None
    for wrapper in WRAPPERS:
        if isinstance(held, Mapping) and isinstance(held.get(wrapper), Mapping):
            held = held[wrapper]
    if not isinstance(held, Mapping) or not all(isinstance(tensor, Tensor) for tensor in held.values()):
        cure = "save a state_dict: torch.save(net.state_dict(), path)"
        raise WeightsError(f"{path} does not contain named tensors; {cure}")
    return {str(name).removeprefix("module."): tensor for name, tensor in held.items()}


def _fits(name: str, tensor: Tensor, own: Tensor) -> bool:
    """Return whether shapes are equal; for the head, whether the numbers of features are."""
    return tensor.shape[1:] == own.shape[1:] if name in HEAD else tensor.shape == own.shape


def _size(tensor: Tensor) -> str:
    """Return a shape as text."""
    return " x ".join(map(str, tensor.shape)) or "one number"
