"""Text that comes from a file, made fit for a terminal."""

import re

# control characters, which move the cursor, colour or retitle a terminal; separators of lines; characters that turn the direction of
# writing round; halves of characters, as in the names of files that are not UTF-8
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 100


def printable(text: str, keep: str = "") -> str:
    """With such characters spelt out (`\\x1b`), but for those to `keep`."""
    return _UNFIT.sub(lambda found: found[0] if found[0] in keep else _spelt(found[0]), text)


def printable_lines(text: str) -> str:
    """The same for text that may have several lines."""
    return printable(text, keep="\n\t")


def brief(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists within lists within lists
        return f"of the kind {type(value).__name__} and too large to show"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def first_line(error: BaseException) -> str:
    """Of what an error of another library says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return printable(lines[0][:300]) if lines else type(error).__name__


def _spelt(character):
    return character.encode("unicode_escape").decode()
