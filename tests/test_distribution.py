"""tests/distribution.py names tests that are here; a name that is gone would put its test last without a word."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT
from tests.distribution import MINUTES, SECONDS, SHARED


@pytest.mark.parametrize("name", [*MINUTES, *SECONDS, *SHARED, *SHARED.values()])
def test_a_name_is_that_of_a_file_a_test_or_a_page(name: str) -> None:
    file, _, test = name.partition("::")
    function, _, page = test.partition("[")
    assert f"def {function}" in (ROOT / file).read_text(encoding="utf-8")
    assert not page or (ROOT / "docs" / page.rstrip("]")).with_suffix(".md").is_file()


def test_none_is_named_twice() -> None:
    assert len(set(MINUTES)) == len(MINUTES) and len(set(SECONDS)) == len(SECONDS)
