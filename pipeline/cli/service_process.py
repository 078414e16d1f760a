"""The service process of the demos, whose models and store are in a folder that is emptied at the start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trueodds.client import CallError, Client
from trueodds.errors import UserError
from trueodds.processes import binding

MARKER = ".trueodds-demo"
START_SECONDS = 60
_KEYS = r"TRUEODDS_\w+_KEY(_HASH)?"


class DemoError(UserError, RuntimeError):
    """The service did not start or answer, or its numbers differ from ours."""


def fresh(work: Path) -> None:
    """Empty the folder of an earlier demo, or create it.

    Raises:
        DemoError: The folder is not empty and was not made by a demo.
    """
    if work.exists() and not (work / MARKER).exists() and (not work.is_dir() or any(work.iterdir())):
        raise DemoError(f"{work} exists, is not empty and was not made by a demo; name another folder: --work DIR")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / MARKER).touch()


@contextmanager
def serving(work: Path) -> Iterator[str]:
    """Run the service on a free port with the models of `work`. Yields its URL once it is ready, then stops it.

    Ctrl-C does not reach the service, so that its caller can stop first. The service never outlives this process.

    Raises:
        DemoError: The service did not start. The message ends with its last log lines if there are any.
    """
    url_file, log_file = work / "url", work / "service.log"
    command = [sys.executable, "-m", "service", "--port", "0", "--url-file", str(url_file)]
    command += ["--models", str(work / "models"), "--store", str(work / "store.sqlite")]
    # Keys in the environment are for another service. The demo calls its own without any.
    environment = {name: value for name, value in os.environ.items() if not re.fullmatch(_KEYS, name)}
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            binding.command(command), env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield _wait_until_ready(process, url_file, log_file)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], url_file: Path, log_file: Path) -> str:
    """Return the service's URL once it is ready."""
    reason, end = "it did not write its URL", time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        if url_file.exists() and (url := url_file.read_text(encoding="utf-8").strip()):
            try:
                with Client(url, tries=1) as client:
                    client.ready()
                return url
            except CallError as error:
                reason = str(error)
        time.sleep(0.1)
    if process.returncode is not None:
        reason = f"it ended with exit status {process.returncode}"
    last = "\n".join(log_file.read_text(errors="replace").splitlines()[-15:])
    raise DemoError(f"the service is not ready after {START_SECONDS} s: {reason}\n{log_file} ends with:\n{last}")
