"""Processor seconds of every test and of the processes that it started, which other work on the machine hardly changes.

CPU_TIMES=times.tsv python -m pytest -p tests.cpu_times -n 2    # the largest, by function, are shown at the end
"""

import collections
import os
import resource
from pathlib import Path

import pytest

FILE, SHOWN = Path(os.environ.get("CPU_TIMES", "cpu-times.tsv")), 25


def spent():
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        FILE.unlink(missing_ok=True)


def note(seconds, name):
    with FILE.open("a") as file:
        file.write(f"{seconds:.3f}\t{name}\n")


def pytest_collection_finish(session):
    note(spent(), "importing and collecting")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    before = spent()
    yield
    note(spent() - before, item.nodeid)


def pytest_terminal_summary(terminalreporter):
    totals = collections.Counter()
    for line in FILE.read_text().splitlines():
        seconds, _, name = line.partition("\t")
        totals[name.split("[")[0]] += float(seconds)
    terminalreporter.section(f"{sum(totals.values()):.0f} processor seconds; the largest")
    for name, seconds in totals.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:8.1f}  {name}")
