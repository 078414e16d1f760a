"""Watch a decision model: send its requests and responses to the service as your client has them.

    python examples/watch_decision_model.py

A decision model answers typed questions about a text, with a probability for every option. Here it is a stub on this
machine, which answers from recorded responses: `tests/decisions/stub.py`. So the script needs no network and no key.

With a real one, keep your own client and add one line after each answer. With `openai`:

    response = openai_client.decisions.create(**request)
    watch.observe_decision(request, response)

With `httpx`, which this script uses:

    response = httpx.post(f"{url}/v1/systemone", json=request)
    watch.observe_decision(request, response)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

import trueodds
from tests.decisions.recorded import KEYED_REQUEST, LISTED_REQUEST
from tests.decisions.stub import DecisionStub

TRUTH = {"is_refund": True, "queue": "billing", "urgency": "2"}
"""Labels of every ticket, which people send later, by question."""


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a service that only watches. Return the process and its address."""
    command = [sys.executable, "-m", "trueodds", "serve", "--port", "0", "--models", str(folder / "none")]
    command += ["--store", str(folder / "watch.sqlite"), "--url-file", str(folder / "url")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (folder / "url").exists():
        if process.poll() is not None:
            raise SystemExit(f"The service did not start. To see why, run: {' '.join(command)}")
        time.sleep(0.1)
    return process, (folder / "url").read_text().strip()


def main() -> None:
    """Ask the model about some tickets in both formats, send the labels, and print the state of each question."""
    with tempfile.TemporaryDirectory() as folder, DecisionStub(served="stub-1") as model:
        process, url = serve(Path(folder))
        try:
            with trueodds.Client(url) as watch, httpx.Client(base_url=model.url) as client:
                response = client.post("/v1/decisions", json=LISTED_REQUEST)
                print(watch.observe_decision(LISTED_REQUEST, response))
                for n in range(20):
                    request = {**KEYED_REQUEST, "state": f"Ticket {n}"}
                    response = client.post("/v1/systemone", json=request)
                    summary = watch.observe_decision(request, response)
                    for question, label in TRUTH.items():
                        watch.feedback(summary.answers[0].id, label, question=question)
                for question in watch.request("GET", "/questions")["questions"]:
                    print(f"{question['question']}, {question['answers']} answered: {question['state_word']}")
                report = watch.report(model="queue", version=summary.answers[1].version)
                print(f"queue: ECE {report.ece:.2f}, and by chance alone up to {report.floor_p95:.2f}")
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
