"""The processes of one run: how they find each other, agree, and notice that one is gone.

Process 0 listens at the coordinator's address, the others call there, and the lines stay open for the whole run. Over
them goes what all must agree on (JSON, a few bytes a call of the compiled loop), and a beat every two seconds. A process
that is killed hangs up, which the others notice at once; one that is frozen, or whose machine is gone, falls silent, which
they notice within `SILENCE` seconds. Either way they say who is lost and exit with `LOST`. The numbers themselves go
through `jax.distributed`, which has the port above.
"""

import contextlib
import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from evergrad.checks import InputError, refuse_unless

BEAT, SILENCE = 2.0, 20.0  # seconds from beat to beat, and until silence means that a process is gone
LOST = 4  # exit code
_LONGEST = 1 << 24  # bytes of a message


class Alone:
    """A run of one process."""

    size, id = 1, 0
    is_first = True

    def gather(self, value: Any) -> list[Any]:
        """What every process says, in order of their ids; all wait for the last."""
        return [value]

    def from_first(self, value: Any) -> Any:
        """What process 0 says."""
        return value

    def first_alone(self, action: Callable[[], Any]) -> Any:
        """Done by process 0 alone, while the others wait; they get None."""
        return action()

    def leave(self) -> None:
        """The run is over for all."""


ALONE = Alone()


class Line:
    """Messages to and from one other process, as lines of JSON."""

    def __init__(self, connection: socket.socket):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(1)
        self._connection, self._buffer, self._lock = connection, b"", threading.Lock()

    def send(self, **message: Any) -> None:
        with self._lock, contextlib.suppress(OSError):  # whoever hung up is noticed by reading
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """The next message, None if the other has hung up; TimeoutError after so long a silence.

        The seconds are counted one by one: while this process itself is frozen none goes by, and nobody is blamed.
        """
        while b"\n" not in self._buffer:
            try:
                more = self._connection.recv(1 << 16)
            except TimeoutError:
                seconds -= 1
                if seconds <= 0:
                    raise
                continue
            except OSError:
                return None
            if not more or len(self._buffer) > _LONGEST:
                return None
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError:
            return None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class Team:
    """One of several processes. `lost` is told, in a thread, what happened and which exit code to leave with."""

    def __init__(
        self,
        id: int,
        size: int,
        lines: dict[int, Line],
        lost: Callable[[str, int], None],
        door: socket.socket | None = None,
    ):
        self.id, self.size, self.is_first = id, size, id == 0
        self._lines, self._lost, self._door = lines, lost, door
        self._said = {other: queue.SimpleQueue() for other in lines}
        self._over = False
        for other in lines:
            threading.Thread(target=self._listen, args=(other,), daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()
        if door is not None:
            threading.Thread(target=_turn_away, args=(door,), daemon=True).start()

    def gather(self, value: Any, *, last: bool = False) -> list[Any]:
        """What every process says, in order of their ids; all wait for the last."""
        if not self.is_first:
            self._lines[0].send(kind="value", value=value)
            return self._said[0].get()
        values = [value, *(self._said[other].get() for other in range(1, self.size))]
        self._over = last
        for line in self._lines.values():
            line.send(kind="values", value=values, last=last)
        return values

    def from_first(self, value: Any) -> Any:
        """What process 0 says."""
        return self.gather(value)[0]

    def first_alone(self, action: Callable[[], Any]) -> Any:
        """Done by process 0 alone, while the others wait; they get None."""
        result = action() if self.is_first else None
        self.gather(None)
        return result

    def leave(self) -> None:
        """The run is over for all: from now on a process may go without being missed."""
        self.gather(None, last=True)
        self._close()

    def _close(self):
        for line in self._lines.values():
            line.close()
        if self._door is not None:
            with contextlib.suppress(OSError):
                self._door.shutdown(socket.SHUT_RDWR)  # wakes who waits at it
            self._door.close()

    def fail(self, message: str, code: int) -> None:
        """Tells the others why this process gives up, so that they give up too."""
        for line in self._lines.values():
            line.send(kind="failed", message=f"process {self.id} stopped: {message}", code=code)

    def _beat(self):
        while not self._over:
            time.sleep(BEAT)
            for line in self._lines.values():
                line.send(kind="beat")

    def _listen(self, other):
        while True:
            try:
                message = self._lines[other].receive(SILENCE)
            except TimeoutError:
                return self._give_up(other, f"process {other} has been silent for {SILENCE:.0f} seconds", LOST)
            if message is None:
                return self._give_up(other, f"process {other} is gone (killed, or its machine is down)", LOST)
            if message["kind"] == "failed":
                return self._give_up(other, message["message"], message["code"])
            if message["kind"] in ("value", "values"):
                self._over = message.get("last", False)
                self._said[other].put(message["value"])

    def _give_up(self, other, message, code):
        if self._over:
            return
        for each, line in self._lines.items():
            if each != other:
                line.send(kind="failed", message=message, code=code)
        self._lost(message, code)
        self._close()


def join(coordinator: str, id: int, size: int, seconds: float, lost: Callable[[str, int], None]) -> Team:
    """Waits until all processes are there; refused if they are not in time, or do not fit together."""
    host, port = _address(coordinator)
    if id > 0:
        return Team(id, size, {0: _call(host, port, id, size, seconds)}, lost)
    door = _listener(port)
    try:
        lines = _roll_call(door, size, seconds)
    except InputError:
        door.close()
        raise
    for line in lines.values():
        line.send(kind="welcome")
    return Team(0, size, lines, lost, door)


def numbers_address(coordinator: str) -> str:
    """Where `jax.distributed` meets: one port above."""
    host, port = _address(coordinator)
    return f"{host}:{port + 1}"


def _address(coordinator: str) -> tuple[str, int]:
    host, _, port = coordinator.rpartition(":")
    refuse_unless(
        bool(host) and port.isdigit() and 0 < int(port) < 65535,
        f"--coordinator {coordinator}: give the address of process 0 as HOST:PORT, the port from 1 to 65534.",
    )
    return host.strip("[]"), int(port)


def _listener(port: int) -> socket.socket:
    try:
        # the second only to find out, before any waiting, whether it can be had
        with socket.create_server(("", port + 1)):
            pass
        return socket.create_server(("", port))
    except OSError as error:
        raise InputError(
            f"process 0 cannot listen at ports {port} and {port + 1} ({error.strerror}): another process 0 may be "
            "running there; stop it, or choose another port in --coordinator."
        ) from None


def _roll_call(listener: socket.socket, size: int, seconds: float) -> dict[int, Line]:
    """A line to each of the other processes."""
    lines, deadline = {}, time.monotonic() + seconds
    while len(lines) < size - 1:
        listener.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            line = Line(listener.accept()[0])
        except TimeoutError:
            if time.monotonic() < deadline:
                continue
            missing = ", ".join(str(i) for i in range(1, size) if i not in lines)
            _refuse_all(lines, f"of {size} processes, {missing} did not come within {seconds:g} seconds.")
        hello = _hello(line)
        if hello is None:
            line.close()
        elif hello["size"] != size:
            problem = f"process {hello['id']} has --processes {hello['size']}, process 0 has --processes {size}."
            _refuse_all(lines | {-1: line}, problem)
        elif hello["id"] in lines:
            _refuse_all(lines | {-1: line}, f"two processes have --process-id {hello['id']}: give each its own.")
        else:
            lines[hello["id"]] = line
    return lines


def _hello(line: Line) -> dict[str, Any] | None:
    """What one of us says first; None if it is somebody else at the door."""
    try:
        hello = line.receive(5)
    except TimeoutError:
        return None
    return hello if isinstance(hello, dict) and hello.get("kind") == "hello" else None


def _refuse_all(lines: dict[int, Line], problem: str) -> None:
    for line in lines.values():
        line.send(kind="refused", message=problem)
        line.close()
    raise InputError(problem)


def _turn_away(door: socket.socket) -> None:
    """Whoever comes when all are there, until the door is closed."""
    door.settimeout(None)
    while True:
        try:
            line = Line(door.accept()[0])
        except OSError:
            return
        hello = _hello(line)
        if hello is not None:
            problem = f"the run already has a process {hello['id']}: give each process its own --process-id."
            line.send(kind="refused", message=problem)
        line.close()


def _call(host: str, port: int, id: int, size: int, seconds: float) -> Line:
    """The line to process 0, when all are there."""
    deadline = time.monotonic() + seconds
    line = _connect(host, port, deadline, seconds)
    line.send(kind="hello", id=id, size=size)
    try:
        answer = line.receive(max(1, deadline - time.monotonic()) + 5) or {}
    except TimeoutError:
        answer = {}
    if answer.get("kind") == "welcome":
        return line
    line.close()
    raise InputError(answer.get("message", f"process 0 at {host}:{port} hung up or did not answer: see what it says."))


def _connect(host, port, deadline, seconds):
    while True:
        left = deadline - time.monotonic()
        try:
            return Line(socket.create_connection((host, port), timeout=max(0.01, min(5, left))))
        except OSError as error:
            if left < 0.5:
                raise InputError(
                    f"process 0 cannot be reached at --coordinator {host}:{port} ({error.strerror or error}) within "
                    f"{seconds:g} seconds: check the address, and that process 0 is running."
                ) from None
            time.sleep(0.2)


def leave_at_once(message: str, code: int) -> None:
    """Ends this process from whatever thread, in the middle of whatever it waits for."""
    show_cursor = "\x1b[?25h" if sys.stdout.isatty() else ""
    print(f"{show_cursor}evergrad: {message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(code)
