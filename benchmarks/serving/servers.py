"""The servers that benchmarks.serving.comparison compares, how they are started, and their options."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.serving import load
from trueodds.processes import privacy

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(__file__).resolve().parent / "peers"
TEMPERATURE = 1.5
PATIENT = ("--timeout", "600000")
"""Option of mosec: a request expires after this many milliseconds.

By default it is 3,000. A turn ends with requests under way, and they expire while mosec is stopped. After that mosec
answered every request with an error (1,046 of 1,046 in the next turn).
"""


@dataclass(frozen=True)
class Variant:
    """One server with one set of options."""

    server: str
    options: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = [f"{key.lower().lstrip('-')}={value}" for key, value in self.options.items()]
        return " ".join([self.server, *words]) if words else f"{self.server}, default options"


OURS = Variant("ours")
TWO_WORKERS = Variant("ours, two workers", {"--workers": "2"})
RAW = "onnxruntime alone"
# Workers: LitServe's documentation says as many as cores on a CPU. Batching: all documentations advise it; a waiting
# time only loses here, so LitServe's is 0 (its default), BentoML's the adaptive one, mosec's the least that it takes.
VARIANTS: dict[str, tuple[Variant, ...]] = {
    "ours": (OURS,),  # as it comes: what a user who reads nothing gets
    "LitServe": (
        Variant("LitServe"),
        Variant("LitServe", {"WORKERS": "2"}),
        Variant("LitServe", {"BATCH": "32"}),
        Variant("LitServe", {"WORKERS": "2", "BATCH": "16", "FAST_QUEUE": "1"}),
    ),
    "BentoML": (Variant("BentoML"), Variant("BentoML", {"WORKERS": "2"}), Variant("BentoML", {"BATCH": "32"})),
    "mosec": (
        Variant("mosec", {"BATCH": "32", "WAIT_MS": "1"}),
        Variant("mosec", {"BATCH": "32", "WAIT_MS": "3"}),
        Variant("mosec", {"BATCH": "16", "WAIT_MS": "1"}),
        Variant("mosec", {"BATCH": "32", "WAIT_MS": "1", "DECODERS": "1"}),
        Variant("mosec", {"BATCH": "32", "WAIT_MS": "1", "DECODERS": "2"}),
        Variant("mosec", {"BATCH": "16", "WAIT_MS": "1", "WORKERS": "2"}),
    ),
}


@dataclass(frozen=True)
class Running:
    """A server that has given its first answer."""

    base: str
    pid: int
    server: str

    def url(self, body: str) -> str:
        """Return the URL for a body of this kind. BentoML has one route for each type of input."""
        return f"{self.base}/predict{'_png' if self.server == 'BentoML' and body == 'png' else ''}"

    def memory(self) -> load.Memory:
        return load.memory(self.pid)


@contextlib.contextmanager
def running(variant: Variant, model: Path, peers: Path | None, scratch: Path, body: Path) -> Iterator[Running]:
    """Start a server on a free port and wait for a successful answer to `body`. It ends with the block.

    `model` is a published bundle's folder. Ours gets a new store each time, in `scratch`.

    Raises:
        load.LoadError: The server does not answer.
    """
    port, log = _free_port(), scratch / f"{variant.server}.log"
    command, environment, cwd = _command(variant, model, peers, scratch, port)
    with load.process_group(command, environment, cwd, log) as process:
        found = Running(f"http://127.0.0.1:{port}", process.pid, variant.server)
        load.until_answered(found.url(body.stem), body.read_bytes(), process, log)
        yield found


def raw(peers: Path, model: Path, batch: int, seconds: float, *, spinning: bool) -> load.Load:
    """Run onnxruntime alone in a process of its own."""
    command = [str(peers), "raw_onnxruntime.py", str(batch), str(seconds)]
    environment = {**privacy.SWITCHES, "MODEL": str(model / "model.onnx"), "SPINNING": str(int(spinning))}
    done = subprocess.run(command, env=environment, cwd=PEERS, capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode:
        raise load.LoadError(f"raw_onnxruntime.py ended with {done.returncode}: {done.stderr}")
    return load.Load.read(done.stdout)


def _command(
    variant: Variant, model: Path, peers: Path | None, scratch: Path, port: int
) -> tuple[list[str], dict[str, str], Path]:
    if variant.server in (OURS.server, TWO_WORKERS.server):
        store = scratch / f"{variant.server.replace(', ', '-').replace(' ', '-')}.sqlite"
        for old in scratch.glob(f"{store.name}*"):
            old.unlink()
        options = {"--models": model.parents[1], "--store": store, "--port": port, **variant.options}
        words = [str(word) for option in options.items() for word in option]
        return [sys.executable, "-m", "service", *words], {}, ROOT
    assert peers is not None
    environment = {
        **privacy.SWITCHES,
        "MODEL": str(model / "model.onnx"),
        "TEMPERATURE": str(TEMPERATURE),
        "PORT": str(port),
        "BENTOML_DO_NOT_TRACK": "True",
        **variant.options,
    }
    if variant.server == "LitServe":
        return [str(peers), "litserve_server.py"], environment, PEERS
    if variant.server == "mosec":
        arguments = ["--address", "127.0.0.1", "--port", str(port), "--log-level", "error", *PATIENT]
        return [str(peers), "mosec_server.py", *arguments], environment, PEERS
    arguments = ["serve", "bentoml_server:Service", "--host", "127.0.0.1", "--port", str(port)]
    return [str(peers), "-m", "bentoml", *arguments], environment, PEERS


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
