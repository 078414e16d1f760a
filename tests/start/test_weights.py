"""Weights to begin with: where they come from, and how they go into a net."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import save_file

from pipeline import data, nets
from pipeline.config import Data, Training
from pipeline.data import DataSet
from pipeline.data.vision import torchvision
from pipeline.nets.net import Net
from pipeline.training.plan import InitialWeights
from pipeline.training.start import initial_weights, pretrained
from pipeline.training.start.beginning import Beginning
from pipeline.training.start.initial_weights import find
from pipeline.training.start.pretrained import WeightsError, load, read
from tests.training_runs import plan
from trueodds.errors import ConfigError

SMALL = {"width": 4}


def drawn(seed: int = 5, classes: int = 10, **options: int) -> Net:
    torch.manual_seed(seed)
    return nets.build("resnet8", 1, classes, **(options or SMALL))


@pytest.fixture(scope="module")
def digits() -> DataSet:
    return data.load(Data(train_size=60))


def begin(digits: DataSet, path: Path | str, folder: Path, **leaves: Any) -> Beginning:
    planned = plan(digits, Training(epochs=1, start=str(path), **{**SMALL, **leaves}))
    return Beginning.of(digits, planned, torch.device("cpu"), folder)


@pytest.mark.parametrize("form", [".safetensors", ".pt", "wrapped.pt", "parallel.pth"])
def test_a_file_of_ones_own(form: str, digits: DataSet, tmp_path: Path) -> None:
    theirs, path = drawn(), tmp_path / f"mine{form}"
    state = theirs.state_dict()
    if form == ".safetensors":
        save_file(state, path)
    elif form == "parallel.pth":
        torch.save({f"module.{name}": tensor for name, tensor in state.items()}, path)
    else:
        torch.save(state if form == ".pt" else {"epoch": 3, "state_dict": state}, path)
    started = begin(digits, path, tmp_path)
    assert all(torch.equal(tensor, state[name]) for name, tensor in started.net.state_dict().items())
    digest = sha256(path.read_bytes()).hexdigest()
    assert started.settings == {"start": {"source": str(path), "sha256": digest}}
    licence, head = started.notes
    assert digest in licence and "licence is unknown" in licence
    assert head == "The last layer began with the weights of the file, which also has 10 classes."


def test_another_number_of_classes_has_a_new_head(digits: DataSet, tmp_path: Path) -> None:
    state = drawn(classes=7).state_dict()
    save_file(state, tmp_path / "seven.safetensors")
    started = begin(digits, tmp_path / "seven.safetensors", tmp_path)
    fresh = begin(digits, tmp_path / "seven.safetensors", tmp_path, seed=1)
    for name, tensor in started.net.state_dict().items():
        assert torch.equal(tensor, state[name]) != name.startswith("head.")
    assert not torch.equal(started.net.head.weight, fresh.net.head.weight)
    assert started.notes[1] == "The last layer is new: the file has 7 classes, the data have 10."
    save_file({name: tensor for name, tensor in state.items() if "head" not in name}, tmp_path / "body.safetensors")
    assert (
        begin(digits, tmp_path / "body.safetensors", tmp_path).notes[1]
        == "The last layer is new: the file has no weights for it."
    )


def test_weights_of_another_net(tmp_path: Path) -> None:
    wide, deep = drawn(width=8).state_dict(), drawn(width=4, depth=2).state_dict()
    words = r"w\.pt does not hold weights of this net \(\d+ names differ: stem\.weight is 8 x 1 x 3 x 3, here 4 x 1 x 3"
    with pytest.raises(WeightsError, match=words + r".* and \d+ more\); set training\.net, width and depth"):
        load(drawn(), wide, "w.pt")
    with pytest.raises(WeightsError, match=r"shortcut\.1\.weight is missing; .*; stages\.3\.conv1\.weight is not a"):
        load(drawn(), deep, "d.pt")
    with pytest.raises(
        WeightsError, match=r"10 names differ: .*stem\.weight is missing.*a is none of its own|names differ"
    ):
        load(drawn(), {"a": torch.zeros(3)}, "a.pt")
    broken = drawn().state_dict()
    broken["stages.0.conv1.weight"][0, 0, 0, 0] = torch.nan
    with pytest.raises(WeightsError, match=r"b\.pt: stages\.0\.conv1\.weight contains values that are not finite"):
        load(drawn(), broken, "b.pt")
    narrow = drawn().state_dict()
    narrow["head.weight"] = torch.zeros(10, 3)
    with pytest.raises(WeightsError, match=r"head\.weight is 10 x 3, here 10 x 16"):
        load(drawn(), narrow, "n.pt")


def test_what_is_not_a_file_of_weights(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'net\.onnx'; allowed is a file of weights \(\.safetensors, .pt, .pth\), "):
        find("net.onnx")
    with pytest.raises(ConfigError, match=r"'none\.pt', which does not exist"):
        find("none.pt")
    pickled, cut, listed = (tmp_path / name for name in ("pickled.pt", "cut.safetensors", "listed.pt"))
    torch.save(drawn(), pickled)
    with pytest.raises(WeightsError, match=r"pickled\.pt contains more than weights, which is .*state_dict alone"):
        read(find(str(pickled)))
    cut.write_bytes(b"\x00" * 30)
    with pytest.raises(WeightsError, match=r"cut\.safetensors is not a complete file of weights"):
        read(find(str(cut)))
    torch.save([1, 2], listed)
    with pytest.raises(WeightsError, match=r"listed\.pt does not contain named tensors"):
        read(find(str(listed)))
    planned = find(str(listed))
    torch.save({}, listed)
    with pytest.raises(WeightsError, match=r"has changed since the run was planned"):
        read(planned)


def test_torchvisions_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = "torchvision:ResNet18_Weights.IMAGENET1K_V1"
    assert find("torchvision:resnet18") == find(full) == InitialWeights(full, "f37072fd")
    with pytest.raises(ConfigError, match=r"'torchvision:resnet81', and torchvision has no .* mean 'resnet18'"):
        find("torchvision:resnet81")
    with pytest.raises(ConfigError, match="torchvision has no such weights"):
        find("torchvision:ResNet18_Weights.IMAGENET1K_V7")

    def offline(url: str, path: str, progress: bool) -> None:
        raise URLError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    monkeypatch.setenv(pretrained.FOLDER, str(tmp_path / "weights"))
    words = r"could not be downloaded from https://.*put resnet18-f37072fd\.pth into a folder .*TRUEODDS_WEIGHTS="
    with pytest.raises(WeightsError, match=words):
        read(find(full))
    (tmp_path / "weights" / "resnet18-f37072fd.pth").write_bytes(b"not these")
    with pytest.raises(WeightsError, match=r"has SHA-256 .*, and its name says that it begins with f37072fd"):
        read(find(full))


def test_torchvisions_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a name that states the hash of weights drawn here: the published ones need a network."""
    theirs = torchvision().models.resnet18()
    torch.save(theirs.state_dict(), tmp_path / "drawn.pth")
    digest = sha256((tmp_path / "drawn.pth").read_bytes()).hexdigest()
    (tmp_path / "drawn.pth").rename(tmp_path / f"resnet18-{digest[:8]}.pth")
    monkeypatch.setattr(initial_weights, "file_name", lambda entry: f"resnet18-{digest[:8]}.pth")
    monkeypatch.setenv(pretrained.FOLDER, str(tmp_path))
    weights = read(find("torchvision:resnet18"))
    assert weights.normalise == {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    assert re.search(rf"ResNet18_Weights\.IMAGENET1K_V1 \(SHA-256 {digest}\): .*non-commercial research", weights.note)
    net = nets.build("torchvision_resnet18", 3, 10).eval()
    assert "the file has 1,000 classes, the data have 10" in load(net, dict(weights.state), "resnet18")
    theirs.fc = torch.nn.Identity()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(net.features(images), theirs.eval()(images))
    with pytest.raises(WeightsError, match=r"does not hold weights of this net"):
        load(nets.build("resnet18", 3, 10), dict(weights.state), "resnet18")
