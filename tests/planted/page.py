"""The table of docs/oracles.md: one row an error, and whether its test was seen to fail."""

from pathlib import Path

from tests.planted.errors import GROUPS, Planted

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "oracles.md"
BEGIN, END = "<!-- planted errors: written by `make planted` -->", "<!-- end of planted errors -->"
HEAD = "| oracle | test | error planted | seen to fail |\n|---|---|---|---|\n"


def row(error: Planted, word: str) -> str:
    test = error.test.removeprefix("tests/").replace("::", " ")
    return f"| {error.oracle} | `{test}` | {error.what} (`{error.file}`) | {word} |"


def tables(words: dict[Planted, str]) -> str:
    """All groups, with a word for every error."""
    parts = [
        f"### {title}\n\n{HEAD}" + "\n".join(row(each, words[each]) for each in group)
        for title, group in GROUPS.items()
    ]
    return "\n\n".join(parts)


def known() -> dict[Planted, str]:
    """What the page says of every error as it now stands: "yes", or "not yet" of one that has changed."""
    written = set(PAGE.read_text().splitlines())
    return {e: "yes" if row(e, "yes") in written else "not yet" for group in GROUPS.values() for e in group}


def write(words: dict[Planted, str]) -> None:
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables(words)}\n\n{END}{after}")
