"""Diagrams of a training run: epochs.csv and epoch_rows.npz, drawn like the papers' figures."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.figures.close_look import gradients, reliability
from pipeline.figures.learned import gammas, learned_figure
from pipeline.figures.style import BAR, GAP, INK, LINE, bare, new_figure
from trueodds.files import FileError, read_npz
from trueodds.sums.inputs import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Columns = dict[str, Array]
SPLITS: dict[str, dict[str, Any]] = {
    "train": {"color": GAP, "marker": "s", "markerfacecolor": "white"},
    "val": {"color": BAR, "marker": "o"},
    "test": {"color": BAR, "marker": "o"},
}
WORDS = {"train": "training rows, during the epoch", "val": "validation rows", "test": "test rows"}
OUTCOMES: dict[str, dict[str, Any]] = {
    "": {"linestyle": "-", "linewidth": 2.2},
    "_right": {"linestyle": "-", "linewidth": 0.9},
    "_wrong": {"linestyle": (0, (4, 2)), "linewidth": 1.3},
}
CLEAN: dict[str, Any] = {"color": INK, "marker": "x", "linestyle": "none", "markersize": 5, "markeredgewidth": 1.1}
WIDE = 20  # a range beyond this multiple of the lowest NLL is drawn on a logarithmic scale
EDGE = 0.03  # share of the epochs left free on both sides, so that no marker is cut off
DROP = 0.5  # a learning rate that falls below this share of the previous one is marked


def draw(epochs: Path, epoch_rows: Path, out: Path, title: str) -> list[Path]:
    """Draw a run's epochs.csv and epoch_rows.npz into the folder `out`, as .svg and .png, and return the PNGs.

    There is always `training`. With epochs in `curves` there are `reliability` and `gradients`, for a method that
    learns further quantities `learned`, and with a gamma `gamma-rows`.

    Raises:
        FileError: A file is missing, damaged, or from another version.
    """
    columns, arrays = read(epochs), _arrays(epoch_rows)
    out.mkdir(parents=True, exist_ok=True)
    curves(columns, out / "training", f"{title}: calibration in training")
    names = ["training"]
    if learned_figure(columns, out / "learned", f"{title}: learned in training"):
        names.append("learned")
    if not len(arrays["epochs"]):
        return [out / f"{name}.png" for name in names]
    rows = f"{arrays['train_brier'].shape[1]:,} training rows"
    reliability(arrays, out / "reliability", f"{title}: reliability on {rows}")
    gradients(arrays, out / "gradients", f"{title}: gradient norms of the last layer, {rows}")
    names += ["reliability", "gradients"]
    if "test_gamma" in arrays:
        gammas(arrays, out / "gamma-rows", f"{title}: γ of {arrays['test_gamma'].shape[1]:,} test rows")
        names.append("gamma-rows")
    return [out / f"{name}.png" for name in names]


def read(path: Path) -> Columns:
    """Read epochs.csv by column, with NaN for values that were not measured.

    Raises:
        FileError: There is no such file, it has no rows, or a cell is not a number.
    """
    cure = "run the train stage: dvc repro train"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    except FileNotFoundError:
        raise FileError(f"{path} does not exist; {cure}") from None
    except (ValueError, TypeError, IndexError, csv.Error) as error:
        raise FileError(f"{path} is not a table of numbers ({error}); {cure}") from None
    if missing := {"epoch", "learning_rate", "weight_norm", "val_nll_right"} - columns.keys():
        raise FileError(f"{path} has no column {', '.join(sorted(missing))}; {cure}")
    return columns


def curves(columns: Columns, out: Path, title: str) -> None:
    """Draw ECE, NLL, entropy, error, p_y and weight norm by epoch to `out`.svg and `out`.png.

    Similar to Mukhoti et al. 2020, figures 1 and 3. Test rows are shown if they were measured, otherwise validation
    rows.
    """
    held_out = "test" if "test_nll" in columns else "val"
    with new_figure(out, title, (10.6, 6.6), png=True) as figure:
        axes = figure.subplots(2, 3, sharex=True)
        panels = (
            ("ece", ("",), "ECE (fraction, 15 bins)"),
            ("nll", ("", "_right", "_wrong"), "NLL (nats)"),
            ("entropy", ("_right", "_wrong"), "mean entropy (nats)"),
            ("error", ("",), "error (fraction)"),
            ("p", ("_right", "_wrong"), "mean probability of the true class"),
        )
        for one, (name, outcomes, words) in zip(axes.flat, panels, strict=False):
            for split in ("train", held_out):
                for outcome in outcomes:
                    _line(one, columns, f"{split}_{name}{outcome}", {**SPLITS[split], **OUTCOMES[outcome]})
            for outcome in outcomes:
                if (clean := columns.get(f"clean_train_{name}{outcome}")) is not None:
                    one.plot(columns["epoch"], clean, **CLEAN, clip_on=False)
            low, high = one.dataLim.intervaly
            if name == "nll" and high > WIDE * low:
                one.set(yscale="log", title=f"{words}, log scale")
                one.yaxis.set_major_formatter("{x:g}")
                one.yaxis.set_minor_formatter("")
            else:
                one.set(ylim=(0, 1.02 if name == "p" else None), title=words)
        _line(axes[1, 2], columns, "weight_norm", {"color": INK, "linewidth": 1.8})
        axes[1, 2].set(title="‖W‖ of the last layer", ylim=(0, None))
        _frame(list(axes.flat), columns)
        _legend(figure, held_out, "clean_train_nll" in columns)


def _line(axes: Axes, columns: Columns, name: str, style: dict[str, Any]) -> None:
    epochs, values = columns["epoch"], columns[name]
    every = max(1, len(epochs) // 8)
    whole: dict[str, Any] = {"markersize": 4, "clip_on": False, "in_layout": False}  # also where a value is 0
    axes.plot(epochs, values, markevery=(every // 2, every), **whole, **style)
    known = np.pad(np.isfinite(values), 1)
    alone = known[1:-1] & ~known[:-2] & ~known[2:]  # no line reaches it: an epoch with wrong rows between perfect ones
    axes.plot(epochs[alone], values[alone], **whole, **{"marker": "o", **style, "linestyle": "none"})


def _frame(every: list[Axes], columns: Columns) -> None:
    from matplotlib.ticker import MaxNLocator

    epochs, rate = columns["epoch"], columns["learning_rate"]
    drops = epochs[1:][rate[1:] < DROP * rate[:-1]]
    for axes in every:
        for drop in drops:
            axes.axvline(drop - 0.5, color=LINE, linewidth=0.8, linestyle=(0, (1, 2)))
        axes.grid(visible=True, axis="y", linewidth=0.6)
        aside = EDGE * (epochs[-1] - epochs[0]) or 1.0
        axes.set_xlim(epochs[0] - aside, epochs[-1] + aside)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        bare(axes)
    for axes in every[-3:]:
        axes.set_xlabel("epoch" + (" (dotted: the learning rate falls)" if len(drops) else ""))


def _legend(figure: Any, held_out: str, clean: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **SPLITS[split], markersize=4, label=WORDS[split]) for split in ("train", held_out)]
    if clean:
        handles.append(Line2D([], [], **CLEAN, label="training rows as they are, end of the epoch"))
    for outcome, words in (("", "all rows"), ("_right", "right"), ("_wrong", "wrong")):
        handles.append(Line2D([], [], color=INK, **OUTCOMES[outcome], label=words))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    cure = "run the train stage: dvc repro train"
    try:
        arrays = read_npz(path)
    except FileNotFoundError:
        raise FileError(f"{path} does not exist; {cure}") from None
    needed = ["epochs"]
    if len(arrays.get("epochs", ())):
        needed += ["train_confidence", "train_correct", "train_brier", "train_gradient_norm"]
    if missing := set(needed) - arrays.keys():
        raise FileError(f"{path} has no array {', '.join(sorted(missing))}; {cure}")
    return arrays
