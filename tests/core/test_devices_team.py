"""How processes find each other and agree, with threads in their place and JAX's coordination service between them."""

import contextlib
import threading
import time

import pytest
from jax._src.lib import _jax

from evergrad._core.checks import InputError
from evergrad._training.team import LOST, Team, address, join
from tests.training_helpers import free_address, garbage


@contextlib.contextmanager
def service(size):
    """The address of one."""
    where = free_address()
    running = _jax.get_distributed_runtime_service(where, size, shutdown_timeout=5, recoverable=True)
    yield where
    running.shutdown()


def connected(where, id):
    client = _jax.get_distributed_runtime_client(where, id, init_timeout=20)
    client.connect()
    return client


def together(size, act, claims=None):
    """What became of each: the result of `act`, or the refusal, and how the others said that it must end."""
    teams, results, ends = [None] * size, [None] * size, [[] for _ in range(size)]

    def come(where, id):
        client, claim = connected(where, id), (claims or {}).get(id, size)
        teams[id] = Team(client, id, claim, lambda *end: ends[id].append(end), client.shutdown)
        try:
            results[id] = act(teams[id])
        except InputError as error:
            results[id] = str(error)

    with service(size) as where:
        threads = [threading.Thread(target=come, args=(where, id)) for id in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        wait_until(lambda: all(a is not None or b for a, b in zip(results, ends, strict=True)))
        for team in reversed(teams):
            if not team._over.is_set():
                team._over.set()
                team._client.shutdown()
    return results, ends


def wait_until(happened):
    deadline = time.monotonic() + 30
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)


def test_all_hear_what_all_say_and_nothing_of_it_is_kept():
    def meet(one):
        heard = one.gather(10 * one.id), one.from_first(f"from {one.id}"), one.first_alone(lambda: "done")
        for _ in range(20):
            one.gather("x" * 100)
        kept = [text for _, text in one._client.key_value_dir_get("evergrad/")]
        one.leave()
        return *heard, len(kept) <= 6

    (first, *others), ends = together(3, meet)
    assert first == ([0, 10, 20], "from 0", "done", True)
    assert others == [([0, 10, 20], "from 0", None, True)] * 2
    assert ends == [[], [], []]


def test_they_must_agree_how_many_they_are():
    said, _ = together(2, lambda one: one.roll_call(), claims={1: 3})
    assert said[0] == "process 1 has --processes 3, process 0 has --processes 2."
    assert said[1] == "process 0 has --processes 2, process 1 has --processes 3."


def test_who_gives_up_says_why_and_all_end():
    def act(one):
        one.roll_call()
        if one.id == 1:
            one.fail("disk full", 1)

    _, ends = together(3, act)
    assert ends[1][0] == ("disk full", 1)
    assert ends[0][0] == ends[2][0] == ("process 1 stopped: disk full", 1)


def test_who_is_gone_is_named():
    def act(one):
        one.roll_call()
        if one.id == 1:
            one._over.set()
            one._client.shutdown()
            return "gone"

    _, ends = together(3, act)
    for end in (ends[0], ends[2]):
        message, code = end[0]
        assert message.startswith("process 1 is gone")
        assert code == LOST


def test_nonsense_at_the_door_holds_nobody_up():
    with service(2) as where, garbage(where):
        clients = [None, None]

        def come(id):
            clients[id] = connected(where, id)

        threads = [threading.Thread(target=come, args=(id,)) for id in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        clients[0].key_value_set("a", "b")
        assert clients[1].blocking_key_value_get("a", 10_000) == "b"
        for client in reversed(clients):
            client.shutdown()


def test_nobody_there():
    with pytest.raises(InputError, match=r"cannot be reached at --coordinator .* within 1 seconds"):
        join(free_address(), 1, 2, 1.0, print)


def test_a_second_process_0_is_refused():
    with service(2) as where, pytest.raises(InputError, match="another process 0 may be running there"):
        join(where, 0, 2, 1.0, print)


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(InputError, match="it must be an address of this machine"):
        join("192.0.2.77:29400", 0, 2, 1.0, print)  # of a network that is nobody's


def test_a_name_that_nobody_has_is_refused():
    for id in (0, 1):
        with pytest.raises(InputError, match="within 1 seconds"):
            join("nobody.invalid:29400", id, 2, 1.0, print)


@pytest.mark.parametrize("text", ["nowhere", "host:", ":1", "host:99999", "host:port", "host:²", "host:0"])
def test_an_address_without_host_and_port_is_refused(text):
    with pytest.raises(InputError, match="give the address of process 0 as HOST:PORT"):
        address(text)
