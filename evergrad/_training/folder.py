"""The folder of a run: made at once or not at all, used by one process at a time."""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import shutil
import tempfile
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import evergrad
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.files import (
    digest,
    open_regular,
    read_checked,
    refuse_links_below,
    refuse_other_kinds,
    write_checked,
)
from evergrad._core.names import refuse_unknown
from evergrad._training.leftovers import clear_beside, clear_half_made
from evergrad._training.resolve import checked
from evergrad._training.settings import FILES, TASKS, Settings, fields

FORMAT = 2  # 1 had no checksum
_SETTINGS, _LOCK = "settings.json", "lock"
_WRITTEN = (_SETTINGS, "metrics.jsonl", "speed.jsonl", "reach.jsonl", "plot.png")


@dataclasses.dataclass(frozen=True)
class Folder:
    path: Path
    settings: Settings
    fingerprints: dict[str, str]
    symbols: str | None
    identity: str | None = None  # of the run: what its checkpoints say they belong to; runs of format 1 have none
    kernels: bool | None = None  # whether native kernels took part; None if nobody wrote it down

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def speed(self) -> Path:
        return self.path / "speed.jsonl"

    @property
    def reach(self) -> Path:
        return self.path / "reach.jsonl"

    @property
    def plot(self) -> Path:
        return self.path / "plot.png"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def events(self) -> Path:
        return self.path / "tensorboard"

    @property
    def unreadable(self) -> Path:
        return self.path / "unreadable"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Refuses a second process; the lock ends with the process, however that ends."""
        with _opened(self.path / _LOCK) as file:
            pid = file.read(100).strip("\0 \n")
            refuse_unless(
                pid == "" or pid.isdecimal(), f"{self.path / _LOCK} is no lock of a run: take this file away."
            )
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = f" (pid {pid})" if pid else ""
                raise InputError(
                    f"another process{owner} is working on {self.path}: wait for it to end, or stop it first."
                ) from None
            file.seek(0)
            file.truncate()
            file.write(str(os.getpid()))
            file.flush()
            yield

    def is_locked(self) -> bool:
        try:
            with os.fdopen(os.open(self.path / _LOCK, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def check_may_write(self) -> None:
        """Refuses a folder in which a link, or something else that is not ours, has the place of what a run changes."""
        for name in (_LOCK, *_WRITTEN, "metrics.aside.jsonl", "speed.aside.jsonl"):
            refuse_other_kinds(self.path / name)
        for path in (self.path, self.unreadable, self.events):
            refuse_other_kinds(path, folder=True)
        refuse_links_below(self.checkpoints)

    def clear(self) -> None:
        """Removes what killed processes left; to be called by who has the lock."""
        clear_beside(self.path, _WRITTEN)

    def with_settings(self, settings: Settings, kernels: bool | None) -> "Folder":
        """The same run with other settings, written down."""
        changed = dataclasses.replace(self, settings=settings, kernels=kernels)
        _write(changed)
        return changed


def _opened(path):
    try:
        return os.fdopen(open_regular(path, os.O_RDWR), "r+", encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): mend the permissions of the folder.") from None


def check_free(path: Path) -> None:
    """Refuses a place where something is already."""
    refuse_other_kinds(path, folder=True)
    taken = path.exists() and any(path.iterdir())
    if taken and (path / _SETTINGS).exists():
        raise InputError(
            f"{path} has a run in it already: go on with it by `evergrad resume {path}`, or choose another --out."
        )
    refuse_unless(not taken, f"{path} is there already and not empty: choose another --out.")


def create(
    path: Path, settings: Settings, fingerprints: dict[str, str], symbols: str | None, kernels: bool | None = None
) -> Folder:
    """A new run's folder with its settings in it: made under another name, then renamed, so it is never half made."""
    check_free(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_half_made(path, _SETTINGS, _LOCK)
        half = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        half.chmod(0o755)
    except OSError as error:
        raise InputError(f"{path} cannot be made ({error.strerror}): choose an --out that can be written to.") from None
    try:
        folder = Folder(half, settings, fingerprints, symbols, _identity(settings, fingerprints, symbols), kernels)
        with folder.locked():
            _write(folder)
            half.rename(path)
    except OSError as error:
        raise InputError(f"{path} cannot be made ({error.strerror}): choose an --out that can be written to.") from None
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return dataclasses.replace(folder, path=path)


def _identity(settings: Settings, fingerprints: dict[str, str], symbols: str | None) -> str:
    """Of all that decides a run's numbers: files count by what is in them, and what can be changed later does not count."""
    options = fields(settings.task)
    decisive = [name for name in options if name not in FILES and not options[name].metadata["resumable"]]
    weights = settings.weights and hashlib.sha256(Path(settings.weights).read_bytes()).hexdigest()
    values = {name: getattr(settings, name) for name in decisive} | {"task": settings.task, "weights": weights}
    return digest([values, list(fingerprints.values()), symbols])


def open_run(path: Path) -> Folder:
    """The folder of a run that is there."""
    refuse_unless(path.is_dir(), f"there is no folder {path}: give the --out of a run.")
    place = path / _SETTINGS
    try:
        document = read_checked(place, old=1)
        refuse_unless(
            document["format"] <= FORMAT,
            f"{path} was written by evergrad {document['version']} in format {document['format']}; this is "
            f"{evergrad.__version__}, which reads up to {FORMAT}: install a newer version.",
        )
        settings = _checked(document["settings"], place)
        fingerprints, symbols = document["fingerprints"], document["symbols"]
        refuse_unless(isinstance(fingerprints, dict), f"{place}, fingerprints are damaged: put back what they were.")
        refuse_unless(isinstance(symbols, str | None), f"{place}, symbols are damaged: put back what they were.")
        return Folder(path, settings, fingerprints, symbols, document.get("identity"), document.get("kernels"))
    except FileNotFoundError:
        raise InputError(f"{path} is no run of evergrad: it has no {_SETTINGS}.") from None
    except (KeyError, TypeError) as error:
        raise InputError(f"{place} is damaged ({error}): put it back as it was, or start anew.") from None


def _checked(stored: dict[str, Any], place: Path) -> Settings:
    """Settings as they were written, refused where an option could never have such a value."""
    settings = Settings(**stored)
    refuse_unless(isinstance(settings.task, str), f"{place}, task is {settings.task!r}: put back what it was.")
    refuse_unknown(f"task in {place}", settings.task, TASKS, "tasks are")
    for name, field in fields(settings.task).items():
        value = stored.get(name)
        if value is not None:
            checked(field, value, f"{place}, {name}", stored=True)
        else:
            needed = name in stored and (name == "steps" or type(None) not in typing.get_args(field.type))
            refuse_unless(not needed, f"{place}, {name} is null: put back what it was.")
    return settings


def _write(folder: Folder) -> None:
    content = {
        "format": FORMAT,
        "version": evergrad.__version__,
        "settings": dataclasses.asdict(folder.settings),
        "fingerprints": folder.fingerprints,
        "symbols": folder.symbols,
        "identity": folder.identity,
        "kernels": folder.kernels,
    }
    write_checked(folder.path / _SETTINGS, content)


def check_unchanged(folder: Folder, now: dict[str, str]) -> None:
    """Refuses to go on with data that is not what the run began with."""
    for place, before in folder.fingerprints.items():
        refuse_unless(
            now.get(place) == before,
            f"{place} has changed since {folder.path} began: put the old data back, or start a new run.",
        )
