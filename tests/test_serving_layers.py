"""The benchmark of the service's layers: stacks of py-spy become shares, and shares become a table."""

from __future__ import annotations

import os

from benchmarks.serving import layers

STACKS = """\
<module> (service/__main__.py:9);run (uvicorn/server.py:86);_score (service/models/engine.py:219) 6
<module> (service/__main__.py:9);run (uvicorn/server.py:86);run (asyncio/runners.py:118) 3
run (threading.py:982);StoredPredict.forward (mosec_stored_server.py:43) 10
run (threading.py:982) 1"""


def test_a_sample_belongs_to_its_innermost_known_frame() -> None:
    found = layers.shares(STACKS)
    assert found == {"store": 0.5, "net": 0.3, "event loop in C and sockets": 0.15, layers.OTHER: 0.05}


def test_processor_time_of_this_process_is_counted_by_thread() -> None:
    before = layers.seconds_of(os.getpid())
    sum(k * k for k in range(2_000_000))
    after = layers.seconds_of(os.getpid())
    assert after["main_us"] > before["main_us"] and after["front_us"] >= before["front_us"]


def test_the_table_has_a_column_for_each_server() -> None:
    one = {"rps": 50.0, "p99_ms": 9.0, "all_us": 100.0, "main_us": 60.0, "other_us": 40.0, "front_us": 0.0}
    table = layers.markdown(
        {"medians": {"ours": one, "mosec": {**one, "rps": 40.0}}, "layers": {"ours": {"net": 1.0}, "mosec": {}}}
    )
    assert "| requests per second, relative | 1.25 | 1.00 |" in table
    assert "| samples: net | 100% | |" in table
