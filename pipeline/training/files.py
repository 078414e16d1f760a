"""Names of the train stage's files in its folder."""

WEIGHTS = "weights.safetensors"
SETTINGS = "training.json"
EPOCHS = "epochs.csv"
EPOCH_ROWS = "epoch_rows.npz"
