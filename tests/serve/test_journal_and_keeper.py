"""What was kept is there again, whenever it was killed."""

import math
import os

import pytest

import evergrad as eg
from evergrad.serve import journal
from evergrad.serve.journal import Event, Journal
from evergrad.serve.keeper import Keeper


class Counter:
    """Stands for a model: remembers all that it was asked, in its file too."""

    def __init__(self, seen=()):
        self.seen = list(seen)

    def predict_one(self, x):
        self.seen.append(("?", x["a"]))
        return len(self.seen)

    def learn_one(self, x, y):
        self.seen.append((y, x["a"]))

    def save(self, path):
        path.write_text(repr(self.seen))


@pytest.fixture(autouse=True)
def _counters(monkeypatch):
    def load_any(path):
        text = path.read_text()
        if not text.endswith("]"):
            raise eg.InputError(f"{path} is damaged.")
        return Counter(eval(text))

    monkeypatch.setattr("evergrad.serve.keeper.load_any", load_any)


def learned(keeper, *values):
    """Learns and keeps, as the engine does."""
    for value in values:
        keeper.model.learn_one({"a": value}, -value)
        keeper.keep([Event(keeper.number + 1, "learn", {"a": value}, -value)])


def forgotten(keeper):
    """As after a SIGKILL: nothing is written at the end, and the lock is free."""
    keeper._journal.close()
    os.close(keeper._lock)


def values(keeper):
    return [a for _, a in keeper.model.seen]


def opened(folder, **options):
    return Keeper(folder, first=Counter, say=lambda _: None, **options)


def test_a_journal_gives_back_what_was_added(tmp_path):
    events = [Event(1, "learn", {"é\n": 0.1, "b": None, "c": True}, "no"), Event(2, "predict", {"a": 1e-300})]
    book = Journal(tmp_path / "j")
    book.add(events[:1])
    book.add(events[1:])
    book.close()
    assert list(journal.read(tmp_path / "j")) == events


def test_a_number_that_is_none_is_given_back_too(tmp_path):
    book = Journal(tmp_path / "j")
    book.add([Event(1, "learn", {"a": math.nan}, math.inf)])
    book.close()
    (found,) = journal.read(tmp_path / "j")
    assert math.isnan(found.x["a"])
    assert found.y == math.inf


def test_a_damaged_line_is_refused_and_a_half_one_left_out(tmp_path):
    book = Journal(tmp_path / "j")
    book.add([Event(n, "learn", {"a": n}, n) for n in (1, 2, 3)])
    book.close()
    whole = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(whole[:-5])
    assert [event.number for event in journal.read(tmp_path / "j")] == [1, 2]
    (tmp_path / "j").write_bytes(whole.replace(b'"a":2', b'"a":7'))
    with pytest.raises(eg.InputError, match=r"line 2 of .* is damaged"):
        list(journal.read(tmp_path / "j"))


@pytest.mark.parametrize("every", [1, 3, 100])
def test_whatever_was_kept_is_there_after_a_kill(tmp_path, every):
    keeper = opened(tmp_path / "s", every=every)
    learned(keeper, *range(10))
    forgotten(keeper)
    again = opened(tmp_path / "s", every=every)
    assert values(again) == [*range(10)]
    assert again.number == 10
    learned(again, 10, 11)
    forgotten(again)
    assert values(opened(tmp_path / "s")) == [*range(12)]


def test_a_line_that_a_kill_cut_off_is_written_over(tmp_path):
    keeper = opened(tmp_path / "s")
    learned(keeper, 0, 1)
    forgotten(keeper)
    (path,) = (tmp_path / "s").glob("*.journal")
    with path.open("ab") as file:
        file.write(b'0123abcd [3,"learn",{"a"')
    keeper = opened(tmp_path / "s")
    learned(keeper, 2)
    forgotten(keeper)
    assert values(opened(tmp_path / "s")) == [0, 1, 2]


def test_a_damaged_checkpoint_is_told_of_and_the_one_before_goes_on_from_its_journal(tmp_path):
    keeper = opened(tmp_path / "s", every=4)
    learned(keeper, *range(9))
    forgotten(keeper)
    newest = max((tmp_path / "s").glob("*.safetensors"))
    newest.write_text(newest.read_text()[:-1])
    said = []
    again = Keeper(tmp_path / "s", first=Counter, say=said.append)
    assert values(again) == [*range(9)]
    assert "is damaged" in said[0]


def test_killed_between_a_checkpoint_and_its_journal(tmp_path, monkeypatch):
    keeper = opened(tmp_path / "s", every=100)
    learned(keeper, *range(5))
    keeper._save(keeper.model, keeper.number)
    forgotten(keeper)
    again = opened(tmp_path / "s")
    assert values(again) == [*range(5)]
    learned(again, 5)
    forgotten(again)
    assert values(opened(tmp_path / "s")) == [*range(6)]


def test_a_missing_journal_is_refused_rather_than_passed_over(tmp_path):
    keeper = opened(tmp_path / "s", every=4)
    learned(keeper, *range(9))
    forgotten(keeper)
    checkpoints, journals = (sorted((tmp_path / "s").glob(f"*.{e}")) for e in ("safetensors", "journal"))
    checkpoints[-1].unlink()
    journals[-2].unlink()
    with pytest.raises(eg.InputError, match="lacks what happened between 4 and 9"):
        opened(tmp_path / "s")


def test_two_processes_do_not_keep_one_model(tmp_path):
    keeper = opened(tmp_path / "s")
    with pytest.raises(eg.InputError, match="in use by another process"):
        opened(tmp_path / "s")
    keeper.close()
    opened(tmp_path / "s").close()
