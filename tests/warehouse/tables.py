"""Tables for the tests of the warehouse: usual ones, and those that a rule decides at its edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from trueodds.sums.bins import EDGES
from trueodds.sums.fine import FINE_EDGES


def usual(rows: int = 2_000, classes: int = 3, seed: int = 0) -> dict[str, Any]:
    """Return probabilities with gaps in the labels, and all columns that are compared."""
    rng = np.random.default_rng(seed)
    p_NC = rng.dirichlet(np.full(classes, 0.4), rows)
    label_N = (p_NC.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    names = [f"class {k}" for k in range(classes)]
    labels = [None if gap else names[k] for k, gap in zip(label_N.tolist(), rng.random(rows) < 0.2, strict=True)]
    return {
        **{name: p_NC[:, k] for k, name in enumerate(names)},
        "label": labels,
        "tag": rng.choice(np.array(["phone", " web", "", None], object), rows).tolist(),
        "version": rng.choice(["1", "2"], rows).tolist(),
        "time": 1_760_000_000 + rng.integers(0, 20 * 86_400, rows),
    }


def edges() -> dict[str, Any]:
    """Return confidences at edges of cells, and one double before and after them."""
    edge_E = np.concatenate([EDGES[1500:], np.nextafter(EDGES[1500:], 0), np.nextafter(EDGES[1500:-1], 1)])
    p_N = np.concatenate([edge_E, 1 - edge_E])
    return {"a": 1 - p_N, "b": p_N, "label": ["a", "b", "a", None] * (len(p_N) // 4) + ["a"] * (len(p_N) % 4)}


def fine_edges() -> dict[str, Any]:
    """Return p(positive) at the fine edges near 0."""
    p_N = np.concatenate([FINE_EDGES, np.nextafter(FINE_EDGES, 1), np.nextafter(FINE_EDGES[1:], 0), [5e-324, 1.0]])
    return {"no": 1 - p_N, "yes": p_N, "label": (["no", "yes", "no"] * len(p_N))[: len(p_N)]}


def ties() -> dict[str, Any]:
    """Return rows whose highest probability is that of several classes, and zeros of the true class."""
    third = 1 / 3
    rows = [[third, third, third], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.4, 0.2, 0.4], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    p_NC = np.array(rows * 3)
    return {"0": p_NC[:, 0], "1": p_NC[:, 1], "2": p_NC[:, 2], "label": [0] * 6 + [1] * 6 + [2] * 6}


def noise() -> dict[str, Any]:
    """Return values a little below 0 and above 1, and sums at their limits."""
    rows = [
        [-1e-6, 1.0],
        [1.0, -1e-6],
        [1.001, 0.0],
        [0.0, 1.0009999],
        [-1e-9, 1.0],
        [0.5005, 0.5005],
        [0.4996, 0.4995],
    ]
    p_NC = np.array(rows)
    return {"x": p_NC[:, 0], "y": p_NC[:, 1], "label": ["x", "y", "x", "y", "x", "y", "x"]}


def rounded(decimals: int = 2, classes: int = 4, rows: int = 800, seed: int = 3) -> dict[str, Any]:
    """Return probabilities in steps, whose sums are not 1."""
    rng = np.random.default_rng(seed)
    p_NC = rng.dirichlet(np.full(classes, 0.25), rows)
    label_N = (p_NC.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return {**{f"c{k}": p_NC[:, k].round(decimals) for k in range(classes)}, "label": [f"c{k}" for k in label_N]}


def mixed_decimals() -> dict[str, Any]:
    """Return exact rows beside rows whose sums only their own decimals explain."""
    rows = [[0.33, 0.33, 0.33], [0.125, 0.25, 0.625], [1 / 7, 2 / 7, 4 / 7], [0.667, 0.167, 0.167], [0.34, 0.33, 0.34]]
    p_NC = np.array(rows * 4)
    return {"u": p_NC[:, 0], "v": p_NC[:, 1], "w": p_NC[:, 2], "label": list("uvwuv") * 4}


def one_column() -> dict[str, Any]:
    """Return p(positive) of two classes alone, in single precision."""
    rng = np.random.default_rng(5)
    p_N = rng.beta(0.3, 3.0, 1_500).astype(np.float32)
    return {"score": p_N, "label": np.where(rng.random(1_500) < p_N, "ill", "well").tolist()}


def single(columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns with their floats in single precision."""
    floats = {name for name, values in columns.items() if getattr(values, "dtype", None) == np.float64}
    return {name: values.astype(np.float32) if name in floats else values for name, values in columns.items()}


def confidences() -> dict[str, Any]:
    """Return confidences with predicted classes and labels as whole numbers that have gaps."""
    rng = np.random.default_rng(7)
    c_N = rng.uniform(0.3, 1.0, 1_200)
    c_N[:4] = [1.0, 0.0, -1e-7, 0.7]
    predicted_N = rng.integers(0, 3, 1_200)
    right_N = rng.random(1_200) < c_N
    label_N = np.where(right_N, predicted_N, (predicted_N + 1) % 3).astype(float)
    label_N[::7] = np.nan
    return {
        "confidence": c_N,
        "predicted": predicted_N,
        "label": label_N,
        "confidence_source": rng.choice(["logprobs", "votes"], 1_200).tolist(),
    }


def outcomes() -> dict[str, Any]:
    """Return confidences with whether they were right."""
    rng = np.random.default_rng(8)
    c_N = rng.uniform(0, 1, 500)
    right = [None if k % 9 == 0 else bool(r) for k, r in enumerate((rng.random(500) < c_N).tolist())]
    return {"confidence": c_N, "correct": right}


def many() -> dict[str, Any]:
    """Return 45 classes, so many that a sum may differ more from 1."""
    rng = np.random.default_rng(9)
    p_NC = rng.dirichlet(np.full(45, 0.05), 120)
    p_NC[::3] *= 1 + 0.001 * rng.uniform(-1, 1, (40, 1))
    label_N = p_NC.argmax(axis=1)
    label_N[::5] = 3
    return {**{f"k{k}": p_NC[:, k] for k in range(45)}, "label": [f"k{k}" for k in label_N]}


USED: Mapping[str, tuple[dict[str, Any], str | None]] = {
    "usual": (usual(), None),
    "two classes": (usual(classes=2), "class 1"),
    "sharp": (usual(1_000, 10, 4), None),
    "edges": (edges(), "b"),
    "fine edges": (fine_edges(), "yes"),
    "ties": (ties(), None),
    "noise": (noise(), "x"),
    "hundredths": (rounded(), None),
    "hundredths of two": (rounded(classes=2), "c1"),
    "tenths": (rounded(1, 5), None),
    "thousandths": (rounded(3, 30, 300), None),
    "mixed decimals": (mixed_decimals(), None),
    "one column": (one_column(), "ill"),
    "a thousandth": ({"x": [0.5, 0.499], "y": [0.5, 0.5], "label": ["x", "y"]}, None),
    "single precision": (single(usual()), None),
    "hundredths in single precision": (single(rounded()), None),
    "ordered numbers": ({"a b": [0.7, 0.2], 'quo"te': [0.3, 0.8], "label": [0, 1]}, None),
    "confidences": (confidences(), None),
    "outcomes": (outcomes(), None),
    "many": (many(), None),
}
"""Tables by name, each with its positive class."""


def _with(row: int, column: str, value: Any) -> dict[str, Any]:
    """Return a usual table with one other value."""
    columns = usual(60)
    values = list(columns[column])
    values[row] = value
    return {**columns, column: values}


REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "null": (_with(7, "class 1", None), "gap"),
    "NaN": (_with(7, "class 1", float("nan")), "gap"),
    "infinite": (_with(7, "class 1", float("inf")), "outside"),
    "huge": (_with(7, "class 1", 1e300), "outside"),
    "negative": (_with(7, "class 1", -1.1e-6), "outside"),
    "above 1": (_with(7, "class 1", 1.0010001), "outside"),
    "sum": ({"x": [0.5, 0.49], "y": [0.5, 0.4983], "label": ["x", "y"]}, "sum to 1"),
    "sum of other decimals": (
        {"u": [0.34, 1 / 3], "v": [0.34, 1 / 3], "w": [0.34, 1 / 3], "label": ["u", "v"]},
        "sum to 1",
    ),
    "unknown label": (_with(7, "label", "class 9"), "class 9"),
    "other predicted class": ({"x": [0.6], "y": [0.4], "predicted": ["y"], "label": ["x"]}, "another class"),
    "confidence above 1": ({"confidence": [0.5, 1.0005], "correct": [True, False]}, "outside"),
    "confidence without a class": (
        {"confidence": [0.5, 0.6], "predicted": ["a", None], "label": ["a", "b"]},
        "no predicted",
    ),
    "text": ({"x": ["0.5", "half"], "y": ["0.5", "0.5"], "label": ["x", "y"]}, "allowed are numbers"),
    "one sign": ({"a": [0.6, 0.3], "b": [0.4, 0.7], "label": [1, 2]}, "none is 0"),
}
"""Tables that neither way counts, each with words of the message."""


def arrow(columns: Mapping[str, Any]) -> pa.Table:
    """Return columns as a table of Arrow."""
    return pa.table({name: pa.array(values, from_pandas=name == "label") for name, values in columns.items()})
