"""Forms of the files that imports read, and presets of preprocessing. The help of commands shows them."""

from __future__ import annotations

from typing import Any

ROWS = "an .npz with x and y, a folder of class folders, a .csv or .parquet table"
"""Labelled rows."""
LABEL_ROWS = (
    "an .npz with x and y (rows, labels), or a .csv or .parquet table with a column y_NAME for each label; truths"
    " are 0, 1, and NaN or an empty cell if not known"
)
"""Rows with truths of independent labels."""
EXPECTED = "an .npy, an .npz with p, or a .csv or .parquet table with a column for each class, by name"
"""The maker's own probabilities."""
LOGITS = (
    "an .npz with logits and labels, or with val_logits, val_labels, test_logits and test_labels, or with probabilities"
    " in place of logits, and optionally class_names; an .npy of logits together with --labels; or a .csv or .parquet"
    " table with a column of logits for each class, by name, and one for the labels, or with one column of"
    " probabilities of one of two classes"
)
"""Logits with their labels."""
PRESETS: dict[str, dict[str, Any]] = {
    "imagenet": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "crop": 0.875},
    "unit": {},
    "raw": {"scale": 1.0},
}
"""Presets. imagenet: torchvision's classifiers; unit: pixels from 0 to 1; raw: pixels from 0 to 255."""
