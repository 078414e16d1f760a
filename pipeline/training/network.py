"""The network that the train stage left, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from pipeline import nets
from pipeline.data.dataset import DataSet
from pipeline.nets.net import Net
from pipeline.nets.text import net_of
from pipeline.training.files import SETTINGS, WEIGHTS
from trueodds.files import FileError, read_json


def read_settings(folder: Path, data: DataSet) -> dict[str, Any]:
    """How the network in `folder` was made.

    Raises:
        FileError: a file that is missing or damaged, or a network of other data.
    """
    settings: dict[str, Any] = read_json(folder / SETTINGS)
    if settings["data_sha256"] != data.card["sha256"]:
        raise FileError(f"{folder} was trained on other data than were fetched; run the stages in order: dvc repro")
    return settings


def read_net(folder: Path, settings: dict[str, Any], data: DataSet) -> Net:
    """The net that `pipeline.training.trained.Trained.write` left in `folder` with these settings.

    Raises:
        FileError: a file that is missing or damaged, or another net's.
    """
    try:
        net = net_of(nets.restore(settings["net"]), data)
        net.load_state_dict(load_file(folder / WEIGHTS))
    except (SafetensorError, RuntimeError, KeyError, TypeError) as error:
        raise FileError(f"{folder / WEIGHTS} does not hold this net ({error}); run: dvc repro train") from None
    return net
