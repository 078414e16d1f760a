"""Two minutes in which a calibrated model stops being one and the alarm fires: `demo --live`.

The traffic is `trueodds replay`, a process of its own; the page is the service's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import webbrowser
from pathlib import Path
from typing import Any

from pipeline import stages
from pipeline.cli.service_process import DemoError, fresh, serving
from trueodds.bundle import open_models
from trueodds.client import Client
from trueodds.files import write_bytes
from trueodds.processes import binding, output
from trueodds.texts import plural

SECONDS, DRIFT_AT = 120, 40
RATE, LABELLED, DELAY = 30, 0.6, 4
NOISE = 0.22
"""On the digits' test images: accuracy .82, mean confidence .93. Over 20 seeds the alarm came 16 to 35 s after it, half
of them within 25; at .20 it took up to 61 s, at .25 it was 12 to 22."""

INTRODUCTION = """
TrueOdds live: a model that was right to be so sure meets worse images. Two minutes; Ctrl-C ends it.

The page to watch: {url}/calibration-report
{where}

0:00  Digits as the model knows them, {rate} a second. Six in ten get their true label, some {delay} seconds later.
      To see: the calibration error (ECE) shrinks with every label, as what chance alone would show does (the column
      "by chance": 19 of 20 perfect models stay below it); the alarm is quiet.
0:{start}  Noise on every image, as from a failing camera. The model is nearly as sure as before, and wrong more often.
      To see: the error grows, and 15 to 35 seconds later the alarm fires: the evidence has reached {threshold:.0f}.
      Of models whose error stays below {tolerance:g} at most one in {threshold:.0f} ever gets there, however long
      one watches.
"""


def live_demo(work: Path, artifacts: Path = stages.ARTIFACTS, *, speed: float = 1.0) -> None:
    """Publishes, serves, opens the page, replays the test images with noise from DRIFT_AT on, and says what came of it.

    Raises:
        DemoError: the service or the replay failed; each has said why.
    """
    fresh(work)
    open_models(work / "models").publish(artifacts / stages.BUNDLE.name, "default", unnamed=True)
    with serving(work) as url, Client(url) as client:
        before = client.report().model_dump(mode="json")
        print(introduction(url, before, opened=_open(f"{url}/calibration-report")), flush=True)
        _replay(url, artifacts / stages.DATA.name / "arrays.npz", speed)
        report, page = client.report().model_dump(mode="json"), client.page()
    write_bytes(work / "calibration-report.html", page)
    print(_closing(report, work))


def introduction(url: str, report: dict[str, Any], *, opened: bool) -> str:
    """The text at the start; the alarm's tolerance and threshold are those of the service's report."""
    alarm = report["alarm"]["nulls"][0]
    return INTRODUCTION.format(
        url=url,
        where="It opens in your browser." if opened else "Open it in a browser.",
        start=DRIFT_AT,
        rate=RATE,
        delay=DELAY,
        tolerance=alarm["tolerance"],
        threshold=alarm["threshold"],
    )


def _replay(url: str, arrays: Path, speed: float) -> None:
    command = [sys.executable, "-m", "trueodds", "replay", "--service", url, "--data", str(arrays)]
    command += ["--rate", str(RATE), "--labelled", str(LABELLED), "--delay", str(DELAY), "--speed", str(speed)]
    command += ["--drift", f"noise:{NOISE}@{DRIFT_AT}", "--seconds", str(SECONDS)]
    process = subprocess.Popen(binding.command(command))
    try:
        status = process.wait()
    except KeyboardInterrupt:  # it had the Ctrl-C too, and ends in order
        process.wait()
        raise
    if status == 130:  # it was stopped, and this process ignores Ctrl-C, as a shell's background jobs do
        raise KeyboardInterrupt
    if status == output.UNREAD:
        raise BrokenPipeError
    if status:
        raise DemoError(f"the replay ended with exit status {status}; its last lines say why")


def _open(url: str) -> bool:
    """Opens a browser with a window, and tells whether there is one; a text browser would take the terminal."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
    if sys.platform not in ("darwin", "win32") and not any(os.environ.get(name) for name in screens):
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def _closing(report: dict[str, Any], work: Path) -> str:
    nulls = (report.get("alarm") or {}).get("nulls") or [{"fired_after": None}]
    after = nulls[0]["fired_after"]
    outcome = "The alarm did not fire."
    if after is not None:
        outcome = f"The alarm fired after {plural(after, 'label')}, and stays until somebody acknowledges it."
    advice = report.get("advice") or {}
    lines = ["", outcome]
    if advice.get("helps") == "yes":
        lines.append(textwrap.fill(advice["reading"], 110))
    lines += [
        f"The page as it was at the end: {work / 'calibration-report.html'}",
        "`make serve` keeps a service up; `trueodds replay --help` has other ways to trouble it.",
    ]
    return "\n".join(lines)
