"""A decision model on a local port: it answers both formats from the recorded responses. It needs no network."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any, Self

from tests.decisions.recorded import KEYED_RESPONSE, LISTED_RESPONSE
from tests.local_server import LocalServer, QuietHandler


@dataclass
class DecisionStub(LocalServer):
    """Use as a context manager. `served` is the model that the responses name."""

    served: str = "recorded-1"
    requests: list[dict[str, Any]] = field(default_factory=list)

    def __enter__(self) -> Self:
        stub = self

        class Handler(QuietHandler):
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

        return self.serve(Handler)
