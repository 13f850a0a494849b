"""The examples are programs, not a package: their folder is put where `import` looks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "related"))
