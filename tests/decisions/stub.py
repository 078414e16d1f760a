"""A decision model on a local port: it answers both formats from the recorded responses. It needs no network."""

from __future__ import annotations

import copy
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.decisions.recorded import KEYED_RESPONSE, LISTED_RESPONSE


@dataclass
class DecisionStub:
    """Use as a context manager. `served` is the model that the responses name."""

    served: str = "recorded-1"
    requests: list[dict[str, Any]] = field(default_factory=list)

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                stub.requests.append(request)
                response = copy.deepcopy(LISTED_RESPONSE if self.path == "/v1/decisions" else KEYED_RESPONSE)
                response |= {"model": stub.served, "id": f"dec_{len(stub.requests)}"}
                content = json.dumps(response).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *parts: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"
