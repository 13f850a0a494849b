"""The folder of a run: made at once or not at all, used by one process at a time."""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import tempfile
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import evergrad
from evergrad.checks import InputError, refuse_unless
from evergrad.files import write_whole
from evergrad.names import refuse_unknown
from evergrad.training.resolve import checked
from evergrad.training.settings import TASKS, Settings, fields

FORMAT = 1
_SETTINGS, _LOCK = "settings.json", "lock"


@dataclasses.dataclass(frozen=True)
class Folder:
    path: Path
    settings: Settings
    fingerprints: dict[str, str]
    symbols: str | None

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def speed(self) -> Path:
        return self.path / "speed.jsonl"

    @property
    def plot(self) -> Path:
        return self.path / "plot.png"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def events(self) -> Path:
        return self.path / "tensorboard"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Refuses a second process; the lock ends with the process, however that ends."""
        with _opened(self.path / _LOCK) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process{_owner(file)} is working on {self.path}: wait for it to end, or stop it first."
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def is_locked(self) -> bool:
        try:
            with (self.path / _LOCK).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def with_settings(self, settings: Settings) -> "Folder":
        """The same run with other settings, written down."""
        changed = dataclasses.replace(self, settings=settings)
        write_whole(self.path / _SETTINGS, _document(changed))
        return changed


def _opened(path):
    try:
        return path.open("a+")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): mend the permissions of the folder.") from None


def _owner(file):
    file.seek(0)
    pid = file.read().strip()
    return f" (pid {pid})" if pid else ""


def check_free(path: Path) -> None:
    """Refuses a place where something is already."""
    taken = path.exists() and not (path.is_dir() and not any(path.iterdir()))
    if taken and (path / _SETTINGS).exists():
        raise InputError(
            f"{path} has a run in it already: go on with it by `evergrad resume {path}`, or choose another --out."
        )
    refuse_unless(not taken, f"{path} is there already and not empty: choose another --out.")


def create(path: Path, settings: Settings, fingerprints: dict[str, str], symbols: str | None) -> Folder:
    """A new run's folder with its settings in it: made under another name, then renamed, so it is never half made."""
    check_free(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        half.chmod(0o755)
    except OSError as error:
        raise InputError(f"{path} cannot be made ({error.strerror}): choose an --out that can be written to.") from None
    try:
        folder = Folder(half, settings, fingerprints, symbols)
        write_whole(half / _SETTINGS, _document(folder))
        half.rename(path)
    except OSError as error:
        raise InputError(f"{path} cannot be made ({error.strerror}): choose an --out that can be written to.") from None
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return dataclasses.replace(folder, path=path)


def open_run(path: Path) -> Folder:
    """The folder of a run that is there."""
    refuse_unless(path.is_dir(), f"there is no folder {path}: give the --out of a run.")
    try:
        document = json.loads((path / _SETTINGS).read_text("utf-8"))
        refuse_unless(document["product"] == "evergrad", f"{path / _SETTINGS} was not written by evergrad.")
        refuse_unless(
            document["format"] <= FORMAT,
            f"{path} was written by evergrad {document['version']} in format {document['format']}; this is "
            f"{evergrad.__version__}, which reads up to {FORMAT}: install a newer version.",
        )
        settings = _checked(document["settings"], path / _SETTINGS)
        return Folder(path, settings, document["fingerprints"], document["symbols"])
    except FileNotFoundError:
        raise InputError(f"{path} is no run of evergrad: it has no {_SETTINGS}.") from None
    except OSError as error:
        raise InputError(f"{path / _SETTINGS} cannot be read ({error.strerror}).") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path / _SETTINGS} is damaged ({error}): put it back as it was, or start anew.") from None


def _checked(stored: dict[str, Any], place: Path) -> Settings:
    """Settings as they were written, refused where an option could never have such a value."""
    settings = Settings(**stored)
    refuse_unknown(f"task in {place}", settings.task, TASKS, "tasks are")
    for name, field in fields(settings.task).items():
        value = stored.get(name)
        if value is not None:
            checked(field, value, f"{place}, {name}", stored=True)
        else:
            needed = name in stored and (name == "steps" or type(None) not in typing.get_args(field.type))
            refuse_unless(not needed, f"{place}, {name} is null: put back what it was.")
    return settings


def _document(folder: Folder) -> str:
    content = {
        "product": "evergrad",
        "format": FORMAT,
        "version": evergrad.__version__,
        "settings": dataclasses.asdict(folder.settings),
        "fingerprints": folder.fingerprints,
        "symbols": folder.symbols,
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def check_unchanged(folder: Folder, now: dict[str, str]) -> None:
    """Refuses to go on with data that is not what the run began with."""
    for place, digest in folder.fingerprints.items():
        refuse_unless(
            now.get(place) == digest,
            f"{place} has changed since {folder.path} began: put the old data back, or start a new run.",
        )


def rows(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file of reports; a last one that was cut off is left out."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(keepends=True), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            break
        if not line.endswith("\n"):
            break
        refuse_unless(
            isinstance(row, dict) and isinstance(row.get("step"), int),
            f"{path}, line {number} is no report of evergrad: take that line out.",
        )
        found.append(row)
    return found
