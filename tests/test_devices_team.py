"""How processes find each other and agree, with threads in their place."""

import contextlib
import socket
import threading
import time

import pytest

from evergrad import team
from evergrad.checks import InputError
from evergrad.team import LOST, join
from tests.training_helpers import free_address


def say_id(one):
    heard = one.gather(one.id)
    one.leave()
    return heard


def together(address, *members, seconds=5.0, then=say_id):
    """What became of each (id, size): the result of `then`, or the refusal."""
    results = [None] * len(members)

    def come(place, id, size):
        try:
            results[place] = then(join(address, id, size, seconds, lambda message, code: None))
        except InputError as error:
            results[place] = str(error)

    threads = [threading.Thread(target=come, args=(i, *member)) for i, member in enumerate(members)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join(20)
    return results


def test_all_hear_what_all_say():
    def meet(one):
        heard = one.gather(10 * one.id), one.from_first(f"from {one.id}"), one.first_alone(lambda: "done")
        one.leave()
        return heard

    first, *others = together(free_address(), (0, 3), (1, 3), (2, 3), then=meet)
    assert first == ([0, 10, 20], "from 0", "done")
    assert others == [([0, 10, 20], "from 0", None)] * 2


def test_two_with_one_id_are_refused_and_so_are_all():
    for said in together(free_address(), (0, 3), (1, 3), (1, 3)):
        assert said == "two processes have --process-id 1: give each its own."


def test_one_too_many_is_turned_away_and_the_others_go_on():
    address, came = free_address(), threading.Event()

    def stay(one):
        one.gather(None)
        came.wait(10)
        return say_id(one)

    others = threading.Thread(target=lambda: heard.extend(together(address, (0, 2), (1, 2), then=stay)))
    heard = []
    others.start()
    time.sleep(0.5)
    (late,) = together(address, (1, 2))
    came.set()
    others.join(10)
    assert heard == [[0, 1], [0, 1]]
    assert late == "the run already has a process 1: give each process its own --process-id."


def test_they_must_agree_how_many_they_are():
    for said in together(free_address(), (0, 2), (1, 3)):
        assert said == "process 1 has --processes 3, process 0 has --processes 2."


def test_who_does_not_come_is_named():
    said = together(free_address(), (0, 4), (2, 4), seconds=1.0)
    assert said == ["of 4 processes, 1, 3 did not come within 1 seconds."] * 2


def test_nobody_there():
    started = time.monotonic()
    (said,) = together(free_address(), (1, 2), seconds=1.0)
    assert "cannot be reached at --coordinator" in said
    assert time.monotonic() - started < 5


def test_a_second_process_0_is_refused():
    address = free_address()
    first, said = together(address, (0, 2), (0, 2), seconds=1.0)
    assert "did not come within 1 seconds" in first
    assert "another process 0 may be running there" in said


@pytest.mark.parametrize("address", ["nowhere", "host:", ":1", "host:99999", "host:port"])
def test_an_address_without_host_and_port_is_refused(address):
    with pytest.raises(InputError, match="give the address of process 0 as HOST:PORT"):
        join(address, 1, 2, 1.0, print)


def pair(lost):
    """One process with a line to another, `lost` hearing what it makes of that one; and the line's other end."""
    ours, theirs = socket.socketpair()
    return team.Team(0, 2, {1: team.Line(ours)}, lambda *verdict: lost.append(verdict)), theirs


def wait_for(lost, seconds):
    deadline = time.monotonic() + seconds
    while not lost and time.monotonic() < deadline:
        time.sleep(0.01)
    return lost


@pytest.fixture
def plain_sockets(monkeypatch):
    monkeypatch.setattr(socket.socket, "setsockopt", lambda *_: None)  # a pair has no TCP_NODELAY


@pytest.mark.usefixtures("plain_sockets")
def test_who_hangs_up_is_missed_at_once():
    lost = []
    _, other = pair(lost)
    other.close()
    assert wait_for(lost, 1) == [("process 1 is gone (killed, or its machine is down)", LOST)]


@pytest.mark.usefixtures("plain_sockets")
def test_who_falls_silent_is_missed_after_a_while(monkeypatch):
    monkeypatch.setattr(team, "SILENCE", 2)
    lost = []
    _, other = pair(lost)
    with contextlib.closing(other):
        other.sendall(b'{"kind": "beat"}\n')
        assert wait_for(lost, 5) == [("process 1 has been silent for 2 seconds", LOST)]


@pytest.mark.usefixtures("plain_sockets")
def test_who_gives_up_says_why():
    lost = []
    _, other = pair(lost)
    with contextlib.closing(other):
        other.sendall(b'{"kind": "failed", "message": "process 1 stopped: disk full", "code": 1}\n')
        assert wait_for(lost, 1) == [("process 1 stopped: disk full", 1)]


@pytest.mark.usefixtures("plain_sockets")
def test_whoever_talks_nonsense_is_hung_up_on():
    lost = []
    _, other = pair(lost)
    with contextlib.closing(other):
        other.sendall(b"GET / HTTP/1.1\n")
        assert wait_for(lost, 1)[0][1] == LOST
