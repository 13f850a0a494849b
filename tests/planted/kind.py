"""What an error is that can be planted."""

import dataclasses
from pathlib import Path

EXAMPLES = "examples/"


@dataclasses.dataclass(frozen=True)
class Planted:
    """In `file` of the package, or of the examples, `right`, which is there once, becomes `wrong`, and `test` fails."""

    oracle: str
    test: str
    file: str
    right: str
    wrong: str
    what: str  # the error in words

    @property
    def path(self) -> Path:
        """From the root of the repository."""
        return Path(self.file) if self.file.startswith(EXAMPLES) else Path("evergrad", self.file)
