"""The blocking client and the asynchronous client."""

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

from trueodds.client.attempts import Endpoint, Request, Response, Steps, Unsent
from trueodds.client.calls import Calls
from trueodds.errors import ConfigError, MissingExtraError
from trueodds.processes.choices import ADMIN_KEY, ADMIN_KEY_FILE, ADMIN_KEY_HASH, SERVICE, URL
from trueodds.texts import short

if TYPE_CHECKING:
    import httpx


T = TypeVar("T")
COMMAND_TRIES, COMMAND_TIMEOUT = 3, 60.0
"""Tries and timeout of a client for a command: a person waits, and a large labelled.npz takes long to begin."""
CURE = f". Put the key into {ADMIN_KEY} or into a file: --key-file"
"""End of the message about a refused key, for users of a command."""


class _BaseClient(Calls):
    """Arguments of both clients, and their checks."""

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
            raise ConfigError("key has blanks or characters beyond ASCII; expected a key that `trueodds key` printed")
        if tries < 1 or not seconds > 0 or not timeout > 0:
            limits = f"tries={tries}, seconds={seconds}, timeout={timeout}"
            raise ConfigError(f"{limits}; expected tries of 1 or more, and seconds and timeout above 0")
        self._endpoint = Endpoint(url.rstrip("/"), key, tries, seconds, timeout, again)

    @classmethod
    def from_environment(cls, url: str | None = None, key_file: str | Path | None = None) -> Self:
        """Create the client of a command, with the service's address and the admin key from the environment.

        The address is `url`, else the variable TRUEODDS_SERVICE, else port 8000 of this machine. The key comes from
        `key_file`, else from the file that TRUEODDS_ADMIN_KEY_FILE names, else from TRUEODDS_ADMIN_KEY. Its errors name
        the commands' options.

        Raises:
            ConfigError: The address is not a URL, or the key is not usable: the file cannot be read, or it holds the
                key's hash.
        """
        url = url or os.environ.get(SERVICE) or URL
        if not _is_address(url):
            raise ConfigError(f"service is {url!r}; allowed is a URL such as {URL}")
        client = cls(url, key=admin_key(key_file), tries=COMMAND_TRIES, timeout=COMMAND_TIMEOUT)
        client._endpoint = replace(client._endpoint, cure_away="start it, or name it: --url", cure_key=CURE)
        client._idle_connections = 0  # a command ends without closing its client
        return client

    @property
    def url(self) -> str:
        """The service's address, without a slash at its end."""
        return self._endpoint.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _http_client(self, kind: str) -> Any:
        """Create a client of httpx.

        It is imported with the first request, so that commands without requests do not need it.
        """
        try:
            import httpx
        except ModuleNotFoundError:
            raise MissingExtraError("trueodds.Client", "httpx", "client") from None
        limits = httpx.Limits(max_keepalive_connections=self._idle_connections)
        return getattr(httpx, kind)(limits=limits)


class Client(_BaseClient):
    """Client of a service: sends inputs and true labels, and reads the live report.

    A request is sent again if no answer came, or after a status of 429, 502, 503 or 504. The pause follows the answer's
    Retry-After header. Nothing is counted twice: every prediction has an id, which the client makes unless you pass
    one, and sending the same label twice changes nothing.

    A client holds one key and sends it only to its own service; it follows no redirect. The admin key opens every call.
    A program with a key for each role needs a client for each. Threads may share a client. `with` closes its
    connections.

    Args:
        url: Address of the service, such as `http://127.0.0.1:8000`.
        key: Key that `trueodds key` made, if the service requires one.
        tries: Largest number of tries of a request.
        seconds: Time limit for all tries of a request and their pauses.
        timeout: Seconds without a byte from the service after which a try fails.
        again: Callback that receives the reason before a request is sent again. If it returns False, the call fails.

    Raises:
        ConfigError: An argument cannot be used.
        MissingExtraError: At the first call: httpx is not installed (extra `client`).
        CallError: At a call: the service refuses it or does not answer.

    Examples:
        >>> import trueodds
        >>> client = trueodds.Client("http://127.0.0.1:9", tries=1)  # nothing listens on this port
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
        """Close the connections. The next call opens a new one."""
        if http := self.__dict__.pop("_http", None):
            http.close()

    @cached_property
    def _http(self) -> httpx.Client:
        http: httpx.Client = self._http_client("Client")
        return http

    def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._do(step)
                except OSError as error:  # the answer's file failed: the steps name it and clean up
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, step: Request | float) -> Response | str:
        if not isinstance(step, Request):
            time.sleep(step)
            return ""
        http = self._http
        import httpx

        try:
            with http.stream(**step.options) as response:
                if step.file is None or not response.is_success:
                    response.read()
                    return Response(response.status_code, response.headers, response.content)
                for piece in response.iter_bytes():
                    step.file.write(piece)
                return Response(response.status_code, response.headers, b"")
        except httpx.TransportError as error:
            return _reason(error)


class AsyncClient(_BaseClient):
    """Client of a service whose methods are awaited. Arguments, methods and errors are those of `Client`.

    Examples:
        >>> import asyncio, trueodds
        >>> async def code_of_a_call() -> str:
        ...     async with trueodds.AsyncClient("http://127.0.0.1:9", tries=1) as client:  # nothing listens here
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
        """Close the connections. The next call opens a new one."""
        if http := self.__dict__.pop("_http", None):
            await http.aclose()

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        http: httpx.AsyncClient = self._http_client("AsyncClient")
        return http

    async def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._do(step)
                except OSError as error:  # the answer's file failed: the steps name it and clean up
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, step: Request | float) -> Response | str:
        if not isinstance(step, Request):
            await asyncio.sleep(step)
            return ""
        http = self._http
        import httpx

        try:
            async with http.stream(**step.options) as response:
                if step.file is None or not response.is_success:
                    await response.aread()
                    return Response(response.status_code, response.headers, response.content)
                async for piece in response.aiter_bytes():
                    step.file.write(piece)
                return Response(response.status_code, response.headers, b"")
        except httpx.TransportError as error:
            return _reason(error)


def _reason(error: httpx.TransportError) -> str:
    """Return the reason why no answer came, in the form that `attempts` reads."""
    import httpx

    words = str(error) or type(error).__name__
    return Unsent(words) if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout) else words


def _is_address(url: str) -> bool:
    """Return whether this is the URL of a service: http or https, a host, maybe port and path, no query."""
    try:
        urlsplit(url).port  # noqa: B018  it raises
    except ValueError:
        return False
    return bool(re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", url))


def admin_key(file: str | Path | None = None) -> str | None:
    """Read the admin key from `file`, from the file that TRUEODDS_ADMIN_KEY_FILE names, or from TRUEODDS_ADMIN_KEY.

    Raises:
        ConfigError: The file cannot be read or is empty, or it holds the key's hash, which is for the service.
    """
    place = file or os.environ.get(ADMIN_KEY_FILE)
    if place:
        try:
            key = Path(place).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the key file {place} cannot be read: {error}") from None
        if not key:
            raise ConfigError(f"the key file {place} is empty; it must hold the key that `trueodds key` printed")
    else:
        key = os.environ.get(ADMIN_KEY, "").strip()
    if re.fullmatch("[0-9a-fA-F]{64}|@.*|.*,.*", key):
        where = place or ADMIN_KEY
        raise ConfigError(
            f"{where} holds the key's hash; commands take the key itself (--key-file), and the service reads its hash"
            f" from {ADMIN_KEY_HASH}"
        )
    return key or None
