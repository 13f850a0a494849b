"""The processes of one run: how they find each other, agree, and notice that one is gone.

All of it goes through JAX's coordination service, which process 0 runs at the coordinator's address: what all must agree on
through its key-value store and a barrier, who is alive through its heartbeats. A process that is lost is noticed within
`SILENCE` seconds; the others say who it was and exit with `LOST`. docs/devices.md says what is ours here, and why.
"""

import contextlib
import ctypes
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
from jax._src import distributed, xla_bridge
from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage]

from evergrad._core.checks import InputError, refuse_unless

SILENCE = 20.0  # seconds until a process that is gone was noticed by all
LOST = 4  # exit code
_HEARTBEAT = 15  # after so many seconds without one JAX gives a process up
_LOOK = 2.0  # seconds from look to look at who is alive
_FOREVER = 10**12  # milliseconds
_OURS = "evergrad"  # the folder in the key-value store, and the name of the barrier


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


class Team:
    """One of several processes, with its client of the service. `end` is told, in whatever thread, what happened and
    which exit code to leave with; `close` takes the client down, and in process 0 the service."""

    def __init__(self, client: Any, id: int, size: int, end: Callable[[str, int], None], close: Callable[[], None]):
        self.id, self.size, self.is_first = id, size, id == 0
        self._client, self._end, self._close = client, end, close
        self._gathered, self._over, self._ending = 0, threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._look, self._hear)]
        for thread in self._threads:
            thread.start()

    def gather(self, value: Any) -> list[Any]:
        """What every process says, in order of their ids; all wait for the last."""
        place, before = f"{_OURS}/{self._gathered}/", f"{_OURS}/{self._gathered - 1}/"
        self._gathered += 1
        self._client.key_value_set(f"{place}{self.id}", json.dumps(value))
        self._client.wait_at_barrier(_OURS, _FOREVER)
        said = {int(key.removeprefix(place)): json.loads(text) for key, text in self._client.key_value_dir_get(place)}
        if self.is_first:
            self._client.key_value_delete(before)  # which all have read, since all are here
        return [said[id] for id in sorted(said)]

    def from_first(self, value: Any) -> Any:
        """What process 0 says."""
        return self.gather(value)[0]

    def first_alone(self, action: Callable[[], Any]) -> Any:
        """Done by process 0 alone, while the others wait; they get None."""
        result = action() if self.is_first else None
        self.gather(None)
        return result

    def roll_call(self) -> None:
        """Refuses processes that were told of different numbers of them."""
        for id, size in enumerate(self.gather(self.size)):
            refuse_unless(
                size == self.size,
                f"process {id} has --processes {size}, process {self.id} has --processes {self.size}.",
            )

    def leave(self) -> None:
        """The run is over for all: from now on a process may go without being missed."""
        self.gather(None)
        self._over.set()
        with contextlib.suppress(RuntimeError):  # whoever goes now has done its work
            self._client.wait_at_barrier(f"{_OURS}/over", int(SILENCE * 1000))  # nobody goes before all know
            if self.is_first:  # with which the service goes
                self._client.get_live_nodes(list(range(self.size)))  # comes back when the others have left
            self._close()
        for thread in self._threads:  # one that still asks the service when Python ends crashes it
            thread.join(SILENCE)

    def fail(self, message: str, code: int) -> None:
        """Ends this process, and the others with it, which say why."""
        told = json.dumps([f"process {self.id} stopped: {message}", code])
        self._stop(message, code, range(self.size), told)

    def given_up(self) -> None:
        """What JAX does when it cannot reach process 0 any more."""
        self._stop("process 0 is gone (killed, frozen, or its machine is down), or has given this one up", LOST, ())

    def _hear(self):
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            message, code = json.loads(self._client.blocking_key_value_get(f"{_OURS}/failed", _FOREVER))
            self._stop(message, code, range(self.size))

    def _look(self):
        everyone, first = list(range(self.size)), None
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # then process 0 is gone, and `given_up` comes
            while not self._over.wait(_LOOK):
                alive = self._client.get_live_nodes(everyone)
                first = first or alive
                gone = [id for id in everyone if id not in alive or alive[id] != first[id]]
                if gone and not self._over.is_set():
                    what = f"process {gone[0]} is gone (killed, frozen, or its machine is down)"
                    self._stop(what, LOST, set(everyone) - set(gone))

    def _stop(self, message, code, together, told=None):
        """All who are there end together: the service ends with process 0, and with the service all the others."""
        with self._ending:  # whoever comes second waits here for the end
            with contextlib.suppress(jax.errors.JaxRuntimeError):  # another has failed too
                if told is not None:
                    self._client.key_value_set(f"{_OURS}/failed", told)
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                if together:
                    self._client.wait_at_barrier(f"{_OURS}/end", 5000, sorted(together))
            self._end(message, code)


def join(coordinator: str, id: int, size: int, seconds: float, end: Callable[[str, int], None]) -> Team:
    """Waits until all processes are there; refused if they are not in time."""
    host, port = address(coordinator)
    listen = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", coordinator)
    if id == 0:
        _check_free(*address(listen), seconds)
    else:
        _wait_for(host, port, seconds)
    _see_only(os.environ.get("JAX_LOCAL_DEVICE_IDS"))
    state = distributed.global_state
    if id == 0:
        state.service = _jax.get_distributed_runtime_service(
            listen, size, heartbeat_timeout=_HEARTBEAT, shutdown_timeout=int(SILENCE), recoverable=True
        )
    state.client = _connected(coordinator, id, size, seconds)
    state.process_id, state.num_processes, state.coordinator_address = id, size, coordinator
    state.initialize_preemption_sync_manager()
    _compute_at(_own_address(host, port))
    team = Team(state.client, id, size, end, jax.distributed.shutdown)
    _at_terminate(team.given_up)
    return team


def address(coordinator: str) -> tuple[str, int]:
    """Host and port."""
    host, _, port = coordinator.rpartition(":")
    refuse_unless(
        bool(host) and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536,
        f"--coordinator {coordinator}: give the address of process 0 as HOST:PORT, the port from 1 to 65535.",
    )
    return host.strip("[]"), int(port)


def _check_free(host: str, port: int, seconds: float) -> None:
    """Since gRPC itself shares a port with whoever has it already."""
    family, where = _resolved(host, port, seconds)
    try:
        socket.create_server(where, family=family).close()
    except OSError as error:
        raise InputError(
            f"process 0 cannot listen at --coordinator {host}:{port} ({error.strerror}): it must be an address of this "
            "machine, and a port that nobody has; another process 0 may be running there."
        ) from None


def _resolved(host: str, port: int, seconds: float) -> tuple[int, Any]:
    """The address of a name, and its family; a machine that has just started may not be known yet."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            return family, where
        except (OSError, UnicodeError) as error:
            refuse_unless(
                time.monotonic() < deadline,
                f"--coordinator {host}:{port}: no machine of that name was found within {seconds:g} seconds ({error}).",
            )
            time.sleep(0.2)


def _wait_for(host: str, port: int, seconds: float) -> None:
    """Until process 0 listens."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            return socket.create_connection((host, port), timeout=max(0.01, min(5, left))).close()
        except (OSError, UnicodeError) as error:
            if left < 0.5:
                raise InputError(
                    f"process 0 cannot be reached at --coordinator {host}:{port} ({getattr(error, 'strerror', None) or error}) within "
                    f"{seconds:g} seconds: check the address, and that process 0 is running."
                ) from None
            time.sleep(0.2)


def _connected(coordinator: str, id: int, size: int, seconds: float) -> Any:
    """A client of the service, when all processes have one."""
    client = _jax.get_distributed_runtime_client(
        coordinator,
        id,
        init_timeout=max(1, int(seconds)),
        heartbeat_timeout=_HEARTBEAT,
        missed_heartbeat_callback=_given_up,
        use_compression=True,
    )
    try:
        client.connect()
        client.key_value_set(f"{_OURS}/here/{id}", "")
    except RuntimeError:  # without a reason; after it the client cannot be taken down, so this process goes at once
        leave_at_once(
            f"process {id} could not join: within {seconds:g} seconds {size} processes with the ids 0 to {size - 1} did not "
            f"come together at {coordinator}. Start each once, with the same --coordinator and --processes, and with its "
            "own --process-id.",
            2,
        )
    return client


def _see_only(devices: str | None) -> None:
    """Of the accelerators of this machine, as with `jax.distributed.initialize`."""
    if devices:
        jax.config.update("jax_cuda_visible_devices", devices)
        jax.config.update("jax_rocm_visible_devices", devices)


def _own_address(host: str, port: int) -> str:
    """That of this machine in the network of process 0."""
    family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(where)  # sends nothing
        return probe.getsockname()[0]


def _compute_at(own: str) -> None:
    """On a CPU the numbers go through Gloo, which by itself would listen wherever the machine's name leads."""

    def client():
        collectives = _jax.make_gloo_tcp_collectives(distributed.global_state.client, hostname=own)
        return xla_bridge.make_cpu_client(collectives)

    xla_bridge.register_backend_factory("cpu", client, priority=0, fail_quietly=False)


_hooks = []  # what C++ calls must not be collected


def _given_up(status: Any) -> None:
    """Never called as yet: jaxlib cannot hand the status to Python, throws, and C++ terminates."""
    for action in _hooks[-1:]:
        action()


def _at_terminate(action: Callable[[], None]) -> None:
    """Done instead of abort() when C++ gives up on an exception."""
    _hooks.append(ctypes.CFUNCTYPE(None)(action))
    with contextlib.suppress(AttributeError, OSError):  # another C++ library than that of Linux
        set_terminate = ctypes.CDLL(_jax.__file__)["_ZSt13set_terminatePFvvE"]
        set_terminate.argtypes, set_terminate.restype = (ctypes.c_void_p,), ctypes.c_void_p
        set_terminate(ctypes.cast(_hooks[-1], ctypes.c_void_p))


def leave_at_once(message: str, code: int) -> None:
    """Ends this process from whatever thread, in the middle of whatever it waits for."""
    show_cursor = "\x1b[?25h" if sys.stdout.isatty() else ""
    print(f"{show_cursor}evergrad: {message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(code)
