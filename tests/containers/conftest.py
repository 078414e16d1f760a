"""One engine and one stack for all of these tests; both are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.containers import engine
from tests.containers.stack import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if reason := engine.missing():
        pytest.skip(reason)
    with engine.running() as environment:
        stack = Stack(environment, tmp_path_factory.mktemp("stack"))
        try:
            yield stack
        finally:
            stack.remove()
        assert stack.left() == []
