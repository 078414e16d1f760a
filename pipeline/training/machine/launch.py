"""Processes that train together on this machine: their start, and one line for an error that they meet together."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from trueodds.errors import UserError

if TYPE_CHECKING:
    from torch.distributed import TCPStore

PATIENCE = timedelta(seconds=5)
"""Time in which a process that lost its peers learns whether one of them has failed."""
RUN = "TORCHELASTIC_RUN_ID"
FAILED = "trueodds/{run}/failed"


def launch(processes: int, words: Sequence[str]) -> int:
    """Runs `python -m pipeline WORDS` in so many processes, as torchrun does, and returns the exit status.

    It is that of the first process to fail, whose message stands alone: torchrun adds tracebacks of its own.
    """
    import logging

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    config = LaunchConfig(
        1, 1, processes, run_id=uuid.uuid4().hex, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0
    )
    try:
        elastic_launch(config, sys.executable)("-m", "pipeline", *words)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        status: int = failure.exitcode
        return status if status > 0 else 128 - status
    except SignalException as stop:
        if stop.sigval is signal.SIGINT:
            raise KeyboardInterrupt from None
        return 128 + int(stop.sigval)
    return 0


@contextmanager
def said_once(world: int, rank: int) -> Iterator[None]:
    """Ends a process without a word where another one of `world` has said why they end."""
    if world == 1:
        yield
        return
    try:
        yield
    except KeyboardInterrupt:
        if rank:
            raise SystemExit(130) from None
        raise
    except (UserError, OSError):
        if not _is_first_to_fail():
            raise SystemExit(1) from None
        raise
    except RuntimeError:  # torch's, where a peer has gone
        if _has_another_failed():
            raise SystemExit(1) from None
        raise


def _is_first_to_fail() -> bool:
    from torch.distributed import DistError

    try:
        return bool(_store().add(_key(), 1) == 1)
    except DistError:  # nobody is left who could have said it
        return True


def _has_another_failed() -> bool:
    from torch.distributed import DistError

    try:
        _store().wait([_key()], PATIENCE)
    except DistError:
        return False
    return True


def _key() -> str:
    return FAILED.format(run=os.environ.get(RUN, ""))


def _store() -> TCPStore:
    from torch.distributed import TCPStore

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(host, port, is_master=False, timeout=PATIENCE)
