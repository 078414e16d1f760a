"""The demo of `demo --live`: in two minutes a calibrated model stops being calibrated and the alarm fires.

The traffic comes from `trueodds replay`, which runs in a process of its own. The page is the service's.
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
"""Standard deviation of the noise. On the digits' test images the accuracy is then 0.82, the mean confidence 0.93.

Over 20 seeds the alarm fired 16 to 35 s after the noise began, within 25 s for half of them. At 0.20 it took up to
61 s, at 0.25 it took 12 to 22 s.
"""

INTRODUCTION = """
TrueOdds live: a well calibrated model meets worse images. Two minutes; Ctrl-C ends the demo.

The page to watch: {url}/calibration-report
{where}

0:00  Digits like those of the training data, {rate} a second. Six in ten get their true label {delay} seconds later.
      Watch: the calibration error (ECE) shrinks with every label, and so does the error that chance alone would show
      (column "by chance": 19 of 20 perfect models stay below it). The alarm is quiet.
0:{start}  Noise on every image, as from a failing camera. The model stays nearly as confident, but errs more often.
      Watch: the error grows, and 15 to 35 seconds later the alarm fires: the evidence has reached {threshold:.0f}.
      At most one in {threshold:.0f} models whose error stays below {tolerance:g} ever reaches it, no matter how long
      you watch.
"""


def live_demo(work: Path, artifacts: Path = stages.ARTIFACTS, *, speed: float = 1.0) -> None:
    """Publish, serve, open the page, replay the test images with noise from DRIFT_AT on, and print the outcome.

    Raises:
        DemoError: The service or the replay failed; each has printed why.
    """
    fresh(work)
    open_models(work / "models").publish(artifacts / stages.BUNDLE.name, "default", default_model=True)
    with serving(work) as url, Client(url) as client:
        before = client.report().model_dump(mode="json")
        print(introduction(url, before, opened=_open(f"{url}/calibration-report")), flush=True)
        _replay(url, artifacts / stages.DATA.name / "arrays.npz", speed)
        report, page = client.report().model_dump(mode="json"), client.page()
    write_bytes(work / "calibration-report.html", page)
    print(_closing(report, work))


def introduction(url: str, report: dict[str, Any], *, opened: bool) -> str:
    """Return the text at the start. The alarm's tolerance and threshold come from the service's report."""
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
    """Send the test images to the service with `trueodds replay`."""
    command = [sys.executable, "-m", "trueodds", "replay", "--url", url, "--data", str(arrays)]
    command += ["--rate", str(RATE), "--labelled", str(LABELLED), "--delay", str(DELAY), "--speed", str(speed)]
    command += ["--drift", f"noise:{NOISE}@{DRIFT_AT}", "--seconds", str(SECONDS)]
    process = subprocess.Popen(binding.command(command))
    try:
        status = process.wait()
    except KeyboardInterrupt:  # the replay got the Ctrl-C, too, and stops in order
        process.wait()
        raise
    if status == 130:  # the replay was interrupted but this process ignores Ctrl-C, like background jobs of a shell
        raise KeyboardInterrupt
    if status == output.UNREAD:
        raise BrokenPipeError
    if status:
        raise DemoError(f"the replay ended with exit status {status}; its last lines say why")


def _open(url: str) -> bool:
    """Open a browser with a window. Returns False if there is none; a text browser would take over the terminal."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
    if sys.platform not in ("darwin", "win32") and not any(os.environ.get(name) for name in screens):
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def _closing(report: dict[str, Any], work: Path) -> str:
    """Return the text at the end: did the alarm fire, and what does the report advise?"""
    nulls = (report.get("alarm") or {}).get("nulls") or [{"fired_after": None}]
    after = nulls[0]["fired_after"]
    outcome = "The alarm did not fire."
    if after is not None:
        outcome = f"The alarm fired after {plural(after, 'label')}. It stays until somebody acknowledges it."
    advice = report.get("advice") or {}
    lines = ["", outcome]
    if advice.get("helps") == "yes":
        lines.append(textwrap.fill(advice["reading"], 110))
    lines += [
        f"The page at the end: {work / 'calibration-report.html'}",
        "`make serve` starts a service that stays; `trueodds replay --help` lists other disturbances.",
    ]
    return "\n".join(lines)
