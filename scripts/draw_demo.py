"""The picture of `evergrad demo`, drawn again from the figures that it left.

python scripts/draw_demo.py benchmarks/results/demo-cue.json docs/images/cue.png
"""

import json
import re
import sys
from pathlib import Path

from evergrad._demo.cue import cue_contest


def main(figures: Path, picture: Path) -> None:
    document = json.loads(figures.read_text())
    gap, gap_to = map(int, re.search(r"(\d+) to (\d+) steps", document["title"]).groups())
    contest = cue_contest(gap, gap_to, document["steps"], document["seeds"])
    contest.draw(document["results"], picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
