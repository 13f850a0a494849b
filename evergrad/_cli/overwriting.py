"""What a command may overwrite: what evergrad has written before, nothing else."""

import json
from pathlib import Path

_PNG = b"\x89PNG\r\n\x1a\n"


def check_may_replace(path: Path, kind: str, option: str) -> None:
    """Refuses a path where there is something that is not one of our files of this kind."""
    from evergrad._core.checks import refuse_unless
    from evergrad._core.files import refuse_other_kinds

    refuse_other_kinds(path)
    ours = not path.exists() or _OURS[kind](path.read_bytes())
    refuse_unless(ours, f"{path} is there already and is no {kind} file made by evergrad: choose another {option}.")


def _is_our_json(content: bytes) -> bool:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("product") == "evergrad"


def _is_our_csv(content: bytes) -> bool:
    import dataclasses

    from evergrad.bench.streams.bench import Result

    header = ",".join(field.name for field in dataclasses.fields(Result))
    return content.splitlines()[:1] == [header.encode()]


def _is_our_safetensors(content: bytes) -> bool:
    """Which begins with the length of a header in JSON; ours says what cell and readout it is of."""
    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except (ValueError, RecursionError):
        return False
    about = header.get("__metadata__") if isinstance(header, dict) else None
    return isinstance(about, dict) and {"cell", "readout"} <= about.keys()


_OURS = {
    "PNG": lambda content: content.startswith(_PNG) and b"evergrad" in content[:1024],
    "JSON": _is_our_json,
    "CSV": _is_our_csv,
    "onnx": lambda content: b"\x12\x08evergrad" in content[:32],  # the producer's name, and that it has 8 letters
    "safetensors": _is_our_safetensors,
}
