"""The two clients: one blocks, one is awaited."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

from trueodds.cli import SERVICE, URL
from trueodds.client.attempts import Answer, Caller, Request, Steps, Unsent
from trueodds.client.calls import Calls
from trueodds.client.keys import CURE, admin_key
from trueodds.errors import ConfigError, MissingExtraError
from trueodds.texts import short

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
COMMAND_TRIES, COMMAND_TIMEOUT = 3, 60.0
"""A person waits for the answer, and a large labelled.npz takes its time to begin."""


class _Connected(Calls):
    """The arguments of both clients, checked."""

    _idle_connections = 20

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        tries: int = 5,
        seconds: float = 60.0,
        timeout: float = 35.0,
        again: Callable[[str], bool] = lambda reason: True,
    ) -> None:
        if not _is_address(url):
            raise ConfigError(f"url is {short(url)}; expected a URL such as {URL}")
        if key is not None and not re.fullmatch(r"[!-~]+", key):
            raise ConfigError("key has blanks or characters beyond ASCII; expected one that `trueodds key` printed")
        if tries < 1 or not seconds > 0 or not timeout > 0:
            limits = f"tries={tries}, seconds={seconds}, timeout={timeout}"
            raise ConfigError(f"{limits}; expected at least one try, and times above 0 s")
        self._caller = Caller(url.rstrip("/"), key, tries, seconds, timeout, again)

    @classmethod
    def from_environment(cls, url: str | None = None, key_file: str | Path | None = None) -> Self:
        """A client for a command: of `url`, else of TRUEODDS_SERVICE, else of this machine's port 8000.

        It has the admin key from `key_file`, else from TRUEODDS_ADMIN_KEY_FILE or TRUEODDS_ADMIN_KEY. Its errors name
        the commands' options.

        Raises:
            ConfigError: no URL, or no key: a file that cannot be read, or the key's hash.
        """
        url = url or os.environ.get(SERVICE) or URL
        if not _is_address(url):
            raise ConfigError(f"service is {url!r}; allowed is a URL such as {URL}")
        client = cls(url, key=admin_key(key_file), tries=COMMAND_TRIES, timeout=COMMAND_TIMEOUT)
        client._caller = replace(client._caller, cure_away="start it, or name it: --service", cure_key=CURE)
        client._idle_connections = 0  # a command ends without closing its client
        return client

    @property
    def url(self) -> str:
        """The service's address, without a slash at its end."""
        return self._caller.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _made(self, kind: str) -> Any:
        """A client of httpx, which is imported with the first request: commands that ask nobody do without it."""
        try:
            import httpx
        except ModuleNotFoundError:
            raise MissingExtraError("trueodds.Client", "httpx", "client") from None
        limits = httpx.Limits(max_keepalive_connections=self._idle_connections)
        return getattr(httpx, kind)(limits=limits)


class Client(_Connected):
    """A service, by its URL: asks for predictions, sends true labels, and reads the live report.

    A request is sent again where no answer came, or 502, 503 or 504, after the pause that Retry-After asks for: in at
    most `tries` within `seconds`, and as long as `again`, which is asked with the reason, says so. That counts nothing
    twice: every prediction has an id, which is made here unless it is given, and the same label again changes nothing.
    A try fails after `timeout` seconds without a byte.

    A client has one `key`, which `trueodds key` has made, and sends it to this service alone, wherever its answers
    point. The admin's key opens every call; a program with a key for each role has a client for each. Threads may share
    a client; `with` closes its connections. A call raises CallError where the service refuses it or does not answer.

    Raises:
        ConfigError: an argument that cannot be used.
        MissingExtraError: with the first call, httpx is not installed (extra `client`).

    >>> import trueodds
    >>> client = trueodds.Client("http://127.0.0.1:9", tries=1)  # where nobody listens
    >>> try:
    ...     client.predict([[5.1, 3.5, 1.4, 0.2]])
    ... except trueodds.client.CallError as error:
    ...     print(error.code)
    no_answer
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next call opens one again."""
        if http := self.__dict__.pop("_http", None):
            http.close()

    @cached_property
    def _http(self) -> httpx.Client:
        http: httpx.Client = self._made("Client")
        return http

    def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._do(step)
                except OSError as error:  # of the file that the answer goes to: the steps name it, and clean up
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, step: Request | float) -> Answer | str:
        if not isinstance(step, Request):
            time.sleep(step)
            return ""
        http = self._http
        import httpx

        try:
            with http.stream(**step.options) as response:
                if step.file is None or not response.is_success:
                    response.read()
                    return Answer(response.status_code, response.headers, response.content)
                for piece in response.iter_bytes():
                    step.file.write(piece)
                return Answer(response.status_code, response.headers, b"")
        except httpx.TransportError as error:
            return _reason(error)


class AsyncClient(_Connected):
    """A service, by its URL, as `Client`; its methods are awaited.

    >>> import asyncio, trueodds
    >>> async def code_of_a_call() -> str:
    ...     async with trueodds.AsyncClient("http://127.0.0.1:9", tries=1) as client:  # where nobody listens
    ...         try:
    ...             await client.predict([[5.1, 3.5, 1.4, 0.2]])
    ...         except trueodds.client.CallError as error:
    ...             return error.code
    >>> asyncio.run(code_of_a_call())
    'no_answer'
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the next call opens one again."""
        if http := self.__dict__.pop("_http", None):
            await http.aclose()

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        http: httpx.AsyncClient = self._made("AsyncClient")
        return http

    async def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._do(step)
                except OSError as error:  # of the file that the answer goes to: the steps name it, and clean up
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, step: Request | float) -> Answer | str:
        if not isinstance(step, Request):
            await asyncio.sleep(step)
            return ""
        http = self._http
        import httpx

        try:
            async with http.stream(**step.options) as response:
                if step.file is None or not response.is_success:
                    await response.aread()
                    return Answer(response.status_code, response.headers, response.content)
                async for piece in response.aiter_bytes():
                    step.file.write(piece)
                return Answer(response.status_code, response.headers, b"")
        except httpx.TransportError as error:
            return _reason(error)


def _reason(error: httpx.TransportError) -> str:
    """Why no answer came, as attempts take it."""
    import httpx

    words = str(error) or type(error).__name__
    return Unsent(words) if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout) else words


def _is_address(url: str) -> bool:
    """Whether it is the URL of a service: http or https, a host, maybe a port and a path, and no query."""
    try:
        urlsplit(url).port  # noqa: B018  it raises
    except ValueError:
        return False
    return bool(re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", url))
