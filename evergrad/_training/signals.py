"""SIGINT and SIGTERM ask a run to stop; the second time they are obeyed on the spot."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class Stop:
    """Which signal asked to stop, if any."""

    def __init__(self):
        self.signal: signal.Signals | None = None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def listening() -> Iterator[Stop]:
    stop = Stop()
    before = {number: signal.signal(number, stop._ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
