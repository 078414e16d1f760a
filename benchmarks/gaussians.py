"""How well each uncertainty weight follows the true calibration error, where the posterior is known.

    python -m benchmarks.gaussians        # about a minute on one core

The toy of the BSCE-GRA paper (section 4.3): five 2-D Gaussians with unit covariance and means uniform in [-10, 10]^2,
10,000 training and 1,000 test points each, a net with one hidden layer, five epochs of cross entropy. The true
calibration error of a test point is c(x) = ‖eta(x) - p(x)‖_2 (eq. 1), eta the posterior (eq. 13). Each weight u(p, y)
is read off the loss itself, as loss / CE; figures are Pearson correlations of u and c over the test points, means of
the runs with their standard error. As in the paper, each weight gets the best of its own grid of exponents and norms;
the column "as trained" has the exponents and the norm that the paper trains with.

What comes out: with the exponents of training, gBS > DFL > FL as in the paper (.664 > .638 > .550). With the best of a
grid, DFL is .015 ahead, and gBS equals FL: its best norm is 1, with which it is FL up to a factor. The paper names
neither its grid nor its optimiser.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pipeline.figures.style import BAR, GAP, STYLE, bare
from pipeline.methods import losses

Array = npt.NDArray[np.float64]

CLASSES, TRAIN, TEST, EPOCHS, BATCH, HIDDEN = 5, 10_000, 1_000, 5, 128, 64
RESULT = Path(__file__).parent / "results" / "gaussians.json"
EXPONENTS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0)
NORMS = (1.0, 1.5, 2.0, 3.0, 4.0)
PAPER = {"FL": 0.550, "DFL": 0.638, "gBS": 0.664}
SHAPES: dict[str, tuple[Any, list[dict[str, float]]]] = {
    "FL": (losses.focal, [{"gamma": gamma} for gamma in EXPONENTS]),
    "DFL": (losses.dual_focal, [{"gamma": gamma} for gamma in EXPONENTS]),
    "gBS": (losses.bsce, [{"gamma": gamma, "norm": norm} for norm in NORMS for gamma in EXPONENTS]),
}
TRAINED: dict[str, dict[str, float]] = {"FL": {"gamma": 3.0}, "DFL": {"gamma": 5.0}, "gBS": {"gamma": 2.0, "norm": 2.0}}
SYMBOLS = {"FL": "(1 - p_y)^γ", "DFL": "(1 - p_y + p_j)^γ", "gBS": "‖p - y‖_β^γ"}
ABOUT = {"FL": "(1 - p_y)^gamma", "DFL": "(1 - p_y + p_j)^gamma", "gBS": "‖p - y‖_norm^gamma"}


def points(means: Tensor, each: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """`each` points per class, and their classes."""
    labels = torch.arange(CLASSES).repeat_interleave(each)
    return means[labels] + torch.randn(len(labels), 2, generator=generator), labels


def posterior(x_N2: Tensor, means: Tensor) -> Tensor:
    """eta(x), shape (N, C): classes are equally likely."""
    return torch.softmax(-torch.cdist(x_N2.double(), means.double()).square() / 2, 1)


def trained(x_N2: Tensor, labels: Tensor, generator: torch.Generator) -> nn.Module:
    """The net after five epochs of Adam on cross entropy."""
    net = nn.Sequential(nn.Linear(2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(labels), generator=generator), BATCH):
            loss = losses.cross_entropy(net(x_N2[rows]), labels[rows]).mean()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    return net


def one_run(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Test logits (float64), labels, and the true calibration error of each test point."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    means = 20 * torch.rand(CLASSES, 2, generator=generator) - 10
    net = trained(*points(means, TRAIN, generator), generator)
    x_N2, labels = points(means, TEST, generator)
    with torch.inference_mode():
        logits = net(x_N2).double()
    return logits, labels, (posterior(x_N2, means) - torch.softmax(logits, 1)).norm(dim=1)


def weight(shape: str, logits: Tensor, labels: Tensor, **options: float) -> Tensor:
    """u(p_n, y_n) of a member of the family; 0 where p_y rounds to 1."""
    ce = losses.cross_entropy(logits, labels)
    return torch.where(ce > 0, SHAPES[shape][0](logits, labels, **options) / ce, 0)


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's."""
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def measure(runs: int, seed: int) -> dict[str, dict[str, Any]]:
    """Per weight: the best options of its grid by mean correlation; (mean, standard error) of the correlation, of its
    difference from FL's in the same run, and of the correlation with the options that the paper trains with."""
    tests = [one_run(seed + run) for run in range(runs)]

    def correlations(shape: str, options: dict[str, float]) -> Array:
        return np.array([correlation(weight(shape, z, y, **options), error) for z, y, error in tests])

    found: dict[str, dict[str, Any]] = {}
    focal: Array | None = None
    for shape, (_, grid) in SHAPES.items():
        tried = [correlations(shape, options) for options in grid]
        best = max(range(len(grid)), key=lambda i: float(tried[i].mean()))
        focal = tried[best] if focal is None else focal
        found[shape] = {
            "options": grid[best],
            "correlation": estimate(tried[best]),
            "minus_FL": estimate(tried[best] - focal),
            "as_trained": estimate(correlations(shape, TRAINED[shape])),
            "runs": tried[best].round(4).tolist(),
        }
    return found


def estimate(values: Array) -> tuple[float, float]:
    """Mean, and its standard error over the runs."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def markdown(record: dict[str, Any]) -> str:
    """The table of a record."""
    lines = ["| weight | u(p, y) | best options | correlation | minus FL | as trained | in the paper |"]
    lines.append("| --- " * 7 + "|")
    for shape, row in record["weights"].items():
        figures = [f"{row[key][0]:.3f} ± {row[key][1]:.3f}" for key in ("correlation", "minus_FL", "as_trained")]
        cells = [shape, ABOUT[shape], text(row["options"]), *figures, f"{record['paper'][shape]:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def text(options: dict[str, float]) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in options.items())


def reading(weights: dict[str, dict[str, Any]]) -> str:
    """What the table says of the paper's order, FL < DFL < gBS, in one line for each of its two columns."""
    lines = []
    for key, words in (("as_trained", "with the paper's exponents"), ("correlation", "each with its best exponents")):
        order = sorted(weights, key=lambda shape: weights[shape][key][0])
        found = " < ".join(f"{shape} {weights[shape][key][0]:.3f}" for shape in order)
        lines.append(f"{words}: {found}, {'the' if order == list(PAPER) else 'not the'} order of the paper")
    return "\n".join(lines)


def draw(weights: dict[str, dict[str, Any]], seed: int, path: Path) -> None:
    """Each weight against the true calibration error on the first run's test points, with both sets of exponents."""
    import matplotlib
    from matplotlib.figure import Figure

    logits, labels, error = one_run(seed)
    right = (logits.argmax(1) == labels).numpy()
    outcomes = ((right, {"color": BAR, "marker": "o"}, "right"), (~right, {"color": GAP, "marker": "x"}, "wrong"))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(weights), 6.4), layout="constrained")
        runs = len(weights["FL"]["runs"])
        title = f"Five Gaussians: each weight against the true calibration error (points of one run, r of {runs})"
        figure.suptitle(title, fontsize=11.5, x=0.01, ha="left", weight="bold")
        rows = figure.subplots(2, len(weights), sharex=True, sharey="row")
        for row, key, words in zip(
            rows, ("as_trained", "correlation"), ("exponents of the paper", "best exponents"), strict=True
        ):
            for axes, (shape, found) in zip(row, weights.items(), strict=True):
                options = TRAINED[shape] if key == "as_trained" else found["options"]
                u = weight(shape, logits, labels, **options).numpy()
                for mask, style, name in outcomes:
                    size, thick = (4, 0) if name == "right" else (11, 0.8)
                    axes.scatter(
                        error.numpy()[mask], u[mask] / u.max(), s=size, alpha=0.6, linewidths=thick, label=name, **style
                    )
                mean, deviation = found[key]
                axes.set_title(f"{shape} = ${SYMBOLS[shape]}$, {symbols(options)}\nr = {mean:.3f} ± {deviation:.3f}")
                axes.grid(visible=True, linewidth=0.6)
                bare(axes)
            row[0].set_ylabel(f"weight over its largest\n({words})")
        for axes in rows[1]:
            axes.set_xlabel("true calibration error $‖η - p‖_2$")
        handles, labels_of = rows[0][0].get_legend_handles_labels()
        figure.legend(handles, labels_of, loc="outside lower center", ncols=2, frameon=False, markerscale=2)
        figure.savefig(path, dpi=120, metadata={"Software": None})


def symbols(options: dict[str, float]) -> str:
    return ", ".join(f"{'γ' if name == 'gamma' else 'β'} = {value:g}" for name, value in options.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    if options.runs < 2:
        parser.error(f"--runs is {options.runs}; allowed is 2 or more, for a standard error")
    torch.set_num_threads(1)
    started = time.perf_counter()
    weights = measure(options.runs, options.seed)
    record = {
        "command": shlex.join(["python", "-m", "benchmarks.gaussians", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "seconds": round(time.perf_counter() - started, 1),
        "weights": weights,
        "paper": PAPER,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draw(weights, options.seed, options.out.with_suffix(".png"))
    print(markdown(record))
    print(reading(weights))
    print(f"written to {options.out} and {options.out.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
