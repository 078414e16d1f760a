"""Start of several processes that train together on this machine, with one message for an error of all."""

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

PATIENCE = timedelta(seconds=15)
"""Time that a process waits to learn whether another one has failed, after it lost contact."""
RUN = "TORCHELASTIC_RUN_ID"
FAILED = "trueodds/{run}/failed"


def launch(processes: int, words: Sequence[str]) -> int:
    """Run `python -m pipeline WORDS` in several processes, as torchrun does, and return the exit status.

    The status is that of the first process to fail. Only its message is shown; torchrun's own tracebacks are
    suppressed.
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
def single_message(world: int, rank: int) -> Iterator[None]:
    """End this process without a message if another one of the `world` processes has already printed the reason."""
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
    except RuntimeError:  # raised by torch when a peer has ended
        if _has_another_failed():
            raise SystemExit(1) from None
        raise


def _is_first_to_fail() -> bool:
    """Return whether no other process has reported an error yet."""
    from torch.distributed import DistError

    try:
        return bool(_store().add(_key(), 1) == 1)
    except DistError:  # no process is left that could have reported it
        return True


def _has_another_failed() -> bool:
    """Return whether another process reports an error within PATIENCE."""
    from torch.distributed import DistError, DistNetworkError

    try:
        _store().wait([_key()], PATIENCE)
    except DistNetworkError:  # torchrun, which holds the store, ends after a process has failed
        return True
    except DistError:
        return False
    return True


def _key() -> str:
    """Return the key of this run in the store."""
    return FAILED.format(run=os.environ.get(RUN, ""))


def _store() -> TCPStore:
    """Connect to the store that torchrun's processes share."""
    from torch.distributed import TCPStore

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(host, port, is_master=False, timeout=PATIENCE)
