"""Names of the train stage's files in its folder."""

from pathlib import Path

WEIGHTS = "network/weights.safetensors"
IMPORTED = "network/model.onnx"
SETTINGS = "training.json"
EPOCHS = "epochs.csv"
EPOCH_ROWS = "epoch_rows.npz"


def empty_network(folder: Path) -> None:
    """Create `folder` and the network's folder in it, and remove the network of an earlier run."""
    network = (folder / WEIGHTS).parent
    network.mkdir(parents=True, exist_ok=True)
    for name in (WEIGHTS, IMPORTED):
        (folder / name).unlink(missing_ok=True)
