"""Drives a headless Chromium over its pipe (Chrome DevTools Protocol): pages, keys, screenshots, console messages."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 20.0
"""Timeout in seconds for an answer of the browser, and for a condition to become true."""


def find() -> str | None:
    """Return the path of Chromium or Chrome on the PATH. The variable CHROMIUM names another program."""
    wanted = os.environ.get("CHROMIUM")
    return shutil.which(wanted) if wanted else next(filter(None, map(shutil.which, NAMES)), None)


class ChromiumError(Exception):
    """The browser did not answer, or a command failed."""


class Chromium:
    """A browser with one page, to be used as a context manager."""

    def __init__(self, executable: str) -> None:
        self.problems: list[str] = []
        """Warnings and errors on the console, and uncaught exceptions."""
        self._executable, self._number, self._buffer = executable, 0, b""
        self._loaded = set[str]()
        """Loaders whose page has fired its load event since the last call of `open`."""
        self._session: str | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        options += ["--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}"]
        # The protocol's pipe is descriptors 3 and 4 of the browser; dash cannot name descriptors above 9.
        shell = ["bash", "-c", f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"', "bash", self._executable]
        self._process = subprocess.Popen(
            [*shell, *options, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(10)
        except (ChromiumError, OSError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, 9)
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command of the protocol and return its result. Events that arrive meanwhile are kept.

        Raises:
            ChromiumError: The command was refused, or not answered in time.
        """
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            found = self._receive(deadline, method)
            if found.get("id") == self._number:
                if "error" in found:
                    raise ChromiumError(f"{method}: {found['error']}")
                result: dict[str, Any] = found["result"]
                return result
            self._note(found)

    def open(self, url: str) -> None:
        """Open a URL and wait until the page is loaded. A click's page may still load; its event does not count."""
        self._loaded.clear()
        found = self.call("Page.navigate", url=url)
        if "errorText" in found:
            raise ChromiumError(f"{url}: {found['errorText']}")
        deadline = time.monotonic() + SECONDS
        while found.get("loaderId") not in (None, *self._loaded):  # none: only the part after the # changed
            self._note(self._receive(deadline, "loading"))

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page. A promise is awaited."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in found:
            raise ChromiumError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Wait until the page is loaded and the expression is true in it. Other pages may be loaded in between.

        A page of which only a part is there lacks elements, and its scripts do not listen yet.
        """
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                if self.run(f"document.readyState === 'complete' && ({script})"):
                    return
            except ChromiumError:  # between two pages no script can run
                pass
            time.sleep(0.03)
        raise ChromiumError(f"not within {SECONDS:g} s: {script}")

    def key(self, name: str, text: str = "") -> None:
        """Press a key: Tab, Enter, ArrowRight, Escape, ... or a letter, with its text."""
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=codes.get(name, 0), **extra)

    def screen(self, width: int, height: int = 900, *, scale: float = 1, dark: bool = False, media: str = "") -> None:
        """Set the page's size in CSS pixels, its colour scheme and its medium; media is "print" or empty."""
        mobile = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **mobile)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def picture(self, path: Path, *, height: int | None = None) -> None:
        """Save a PNG of the whole page, or of its upper part."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        found = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _receive(self, deadline: float, what: str) -> dict[str, Any]:
        """Return the next message of the browser."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise ChromiumError(f"{what}: {'the browser ended' if ready else f'no answer in {SECONDS:g} s'}")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        """Record a problem or a load event."""
        method, details = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(details["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(details["args"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            entry = details["entry"]
            self.problems.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Page.lifecycleEvent" and details["name"] == "load":
            self._loaded.add(details["loaderId"])
