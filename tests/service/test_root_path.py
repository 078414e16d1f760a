"""A service below a path that its proxy removes (`--root-path`): routes, pages, redirects, and the client."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import ValidationError

from service.settings import Settings
from tests.service.test_process import server
from tests.service.tiny_bundle import pictures, write_bundle
from trueodds.bundle import open_models
from trueodds.client import Client

ROOT = "/tools/odds"


@contextmanager
def proxy(target: str) -> Iterator[str]:
    """A proxy that removes ROOT from each path, as nginx does with `proxy_pass http://service/;`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            if not self.path.startswith(f"{ROOT}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            address = target + self.path.removeprefix(ROOT)
            answer = httpx.request(self.command, address, content=body, headers=headers, timeout=300)
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name not in ("content-length", "content-encoding", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxying:
        threading.Thread(target=proxying.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{proxying.server_port}"
        proxying.shutdown()


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The proxy in front of a service with an observed model and a draw in its label queue."""
    folder = tmp_path_factory.mktemp("root")
    open_models(folder / "models").publish(write_bundle(folder / "bundle"))
    with (
        server(folder, "--root-path", ROOT) as (inside, _),
        proxy(str(inside.base_url).rstrip("/")) as address,
        httpx.Client(base_url=address, timeout=300) as client,
    ):
        yield client


def links(page: str) -> list[str]:
    return re.findall(r'(?:href|action|src|data-again)="([^"#][^"]*)"', page)


@pytest.mark.full
def test_predictions_labels_and_health(outside: httpx.Client) -> None:
    with Client(f"{str(outside.base_url).rstrip('/')}{ROOT}") as client:
        assert client.ready()
        answer = client.predict(np.array(pictures(3), np.uint8))
        assert client.feedback(list(answer.ids), index=[0, 1, 2]).stored == 3
        assert client.report().answers >= 3
    assert outside.get(f"{ROOT}/health/live").status_code == 200
    metrics = outside.get(f"{ROOT}/metrics").text
    assert 'route="/predict"' in metrics and 'route="unknown"' not in metrics
    refused = outside.post(f"{ROOT}/predict", json={"wrong": 1})
    assert refused.status_code == 422 and "instances" in refused.text
    allowed = outside.get(f"{ROOT}/feedback")
    assert allowed.status_code == 405 and allowed.headers["allow"] == "OPTIONS, POST"


def test_the_document_and_its_page(outside: httpx.Client) -> None:
    document = outside.get(f"{ROOT}/openapi.json").json()
    assert document["servers"] == [{"url": ROOT}] and "/predict" in document["paths"]
    page = outside.get(f"{ROOT}/docs").text
    found = [*links(page), *re.findall(r"url: '([^']+)'", page)]
    assert f"{ROOT}/openapi.json" in found
    for link in found:
        assert outside.get(link).status_code == 200, link


def test_links_forms_and_redirects_stay_below(outside: httpx.Client) -> None:
    rows = [{"id": f"m-{k}", "probabilities": [0.6, 0.4]} for k in range(9)]
    own = {"model": "mail", "version": "7"}
    body = {**own, "classes": ["ham", "spam"], "observations": rows}
    assert outside.post(f"{ROOT}/observe", json=body).status_code == 200
    draw = {**own, "who": "Eve", "budget": 9, "goal": "plain", "floor": 1.0}
    assert outside.post(f"{ROOT}/label-queue", json=draw).status_code == 200
    html = {"accept": "text/html"}
    answers = [
        outside.get(f"{ROOT}/{path}", headers=html)
        for path in ("calibration-report", "label-queue?model=mail", "questions", "calibration-report?model=none")
    ]
    assert [one.status_code for one in answers] == [200, 200, 200, 404]
    for one in answers:
        inner = [link for link in links(one.text) if link.startswith("/")]
        assert inner and all(link.startswith(f"{ROOT}/") for link in inner), one.url
        for link in inner:
            assert outside.get(link.replace("&amp;", "&")).status_code != 404, link
    targets = [
        outside.get(f"{ROOT}/", headers=html),
        outside.get(f"{ROOT}/calibration-report/choose?which=mail/7"),
        outside.post(f"{ROOT}/label-queue/answers", data={**own, "who": "Ada"}),
    ]
    for one in targets:
        assert one.status_code in (303, 307) and one.headers["location"].startswith(f"{ROOT}/"), one.url
        assert outside.get(one.headers["location"]).status_code == 200


@pytest.mark.parametrize("path", ["odds", "/odds/", "/", "/a b", '/"', "//elsewhere.example"])
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="begins with / and does not end with /"):
        Settings(root_path=path)
