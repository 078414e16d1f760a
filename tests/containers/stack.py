"""The stack of docker/compose.yaml under a project, image tags and ports of its own: no other stack is touched."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.conftest import ROOT

PROJECT = "trueodds-test"
DOCKER = ROOT / "docker"
BUILT = {"server": "train", "register": "train", "worker": "train", "service": "serve"}
"""Services whose images are built here."""
PORTS = {"PORT": 8000, "PREFECT_PORT": 4200, "PROMETHEUS_PORT": 9090, "GRAFANA_PORT": 3000}
"""Variables of compose.yaml, and the ports that the documentation names."""
DOCUMENTED = re.compile(r"docker compose((?: -f docker/\S+)+)")
PATIENCE = 5
"""How often the seconds of a quiet machine are waited for: `.ci/run` has five processes of tests beside these."""
KILL = "import os, sys; os.kill(int(sys.argv[1]), 9)"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, one after the other: a range."""
    for first in range(21_000, 32_000, count):
        sockets = []
        try:
            sockets = [socket.create_server(("127.0.0.1", port)) for port in range(first, first + count)]
            return list(range(first, first + count))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise OSError("no free ports")


class Stack:
    """Runs `docker compose`; `folder` gets a Compose file of this test's own."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self.folder, self.client = folder, httpx.Client(timeout=30 * PATIENCE)
        several = free_ports(len(PORTS) + 10)
        self.ports = dict(zip(PORTS, several, strict=False))
        self.environment = {**environment, **{name: str(port) for name, port in self.ports.items()}}
        self.environment |= {"PORTS": f"{several[-10]}-{several[-1]}", "COMPOSE_PROFILES": "monitoring"}
        services = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"]
        self.has_grafana = self._has(services["grafana"]["image"])
        (folder / "override.yaml").write_text(self._override(), encoding="utf-8")
        engines = [environment["ENGINE_OVERRIDE"]] if environment.get("ENGINE_OVERRIDE") else []
        self._beside = [*engines, str(folder / "override.yaml")]

    def _override(self) -> str:
        """Tags of this test; no Grafana where its image is not to be had."""
        lines = [f"  {name}: {{image: 'trueodds-{image}:{PROJECT}'}}" for name, image in BUILT.items()]
        if not self.has_grafana:
            lines.append("  grafana: {profiles: !override [not to be had]}")
        return "\n".join(["services:", *lines, ""])

    def _has(self, image: str) -> bool:
        inspected = self.docker("image", "inspect", image, check=False)
        return not inspected.returncode or not self.docker("pull", "--quiet", image, check=False).returncode

    def docker(
        self, *words: str, check: bool = True, timeout: float = 600 * PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Run `docker`; on an unexpected exit status the test fails with all it printed."""
        return self.run(["docker", *words], check=check, timeout=timeout)

    def compose(self, *words: str, files: tuple[str, ...] = ("compose.yaml",), **how: Any) -> str:
        named = [*(str(DOCKER / file) for file in files), *self._beside]
        options = [word for file in named for word in ("-f", file)]
        return self.docker("compose", "-p", PROJECT, *options, *words, **how).stdout

    def typed(self, command: str) -> str:
        """Run a line of docs/how-to/containers.md, as written but for the project, the tags and the ports."""
        beside = "".join(f" -f {file}" for file in self._beside)
        command = DOCUMENTED.sub(lambda found: f"docker compose -p {PROJECT}{found[1]}{beside}", command)
        command = command.replace("-f docker/", f"-f {DOCKER}/")
        for variable, port in PORTS.items():
            command = command.replace(f"127.0.0.1:{port}", f"127.0.0.1:{self.ports[variable]}")
        return self.run(["bash", "-c", command], check=True, timeout=900 * PATIENCE).stdout

    def run(self, command: list[str], *, check: bool, timeout: float) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=timeout
        )
        if check and done.returncode:
            pytest.fail(
                f"{' '.join(command)} exited with {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}\n"
                f"{self._last_words()}"
            )
        return done

    def _last_words(self) -> str:
        """Return the last lines that each ended container of the project printed."""
        ended = ("ps", "-aq", "--filter", f"label=com.docker.compose.project={PROJECT}", "--filter", "status=exited")
        ids = self.docker(*ended, check=False).stdout.split()
        logs = [self.docker("logs", "--tail", "40", one, check=False) for one in ids]
        return "\n".join(f"{log.stdout}{log.stderr}" for log in logs)[-6000:]

    def containers(self) -> dict[str, dict[str, Any]]:
        """What the engine says of each container that runs, by its service and number: worker-1."""
        ids = self.docker("ps", "-q", "--filter", f"label=com.docker.compose.project={PROJECT}").stdout.split()
        listed = json.loads(self.docker("inspect", *ids).stdout) if ids else []
        return {one["Name"].removeprefix(f"/{PROJECT}-"): one for one in listed}

    def kill(self, container: Mapping[str, Any]) -> None:
        """kill -9 of its first process from outside, as the kernel kills for want of memory.

        After `docker kill`, which counts as somebody's wish, nothing is restarted.
        """
        image, pid = f"trueodds-serve:{PROJECT}", str(container["State"]["Pid"])
        host = ("--rm", "--pid", "host", "--privileged", "--user", "0", "--network", "none")
        self.docker("run", *host, "--entrypoint", "python", image, "-c", KILL, pid)

    def url(self, variable: str, path: str) -> str:
        return f"http://127.0.0.1:{self.ports[variable]}{path}"

    def get(self, path: str, variable: str = "PORT", **how: Any) -> Any:
        """The JSON answer of a service of the stack; the test fails on any other status than 200."""
        answer = self.client.get(self.url(variable, path), **how)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def remove(self) -> None:
        """Containers, volumes, network and the images built here. `down` knows only volumes that its files mount."""
        for files in (("compose.yaml", "compose.scale.yaml"), ("compose.yaml",)):
            self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5", files=files)
        self.docker("image", "rm", "--force", *{f"trueodds-{image}:{PROJECT}" for image in BUILT.values()}, check=False)
        self.client.close()

    def left(self) -> list[str]:
        """What of the project is left on the engine."""
        label = f"label=com.docker.compose.project={PROJECT}"
        kinds = (("ps", "-aq"), ("volume", "ls", "-q"), ("network", "ls", "-q"))
        names = [name for kind in kinds for name in self.docker(*kind, "--filter", label).stdout.split()]
        images = self.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").stdout.split()
        return names + [image for image in images if image.endswith(f":{PROJECT}")]


def until(enough: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait for something to be true; refused connections are not, and the test fails after PATIENCE times `seconds`."""
    deadline, seen = time.monotonic() + PATIENCE * seconds, None
    while time.monotonic() < deadline:
        try:
            if seen := enough():
                return seen
        except httpx.HTTPError as error:
            seen = error
        time.sleep(0.5)
    pytest.fail(f"waited {PATIENCE * seconds:g} s in vain for {what}; last: {seen!r}")
