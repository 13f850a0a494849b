"""1,000,000 steps of a small text run, with its resident memory over time.

    python benchmarks/soak.py [--steps 1000000]

A real `evergrad train text` process; its memory is what it reports itself in speed.jsonl. Flat means that the mean of
the last tenth of the reports exceeds the mean of the second tenth (the first is warm-up) by less than 2 %. Writes
benchmarks/results/soak.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from evergrad._core.machine import machine

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    options = parser.parse_args()
    settings = ["--units", 16, "--batch", 4, "--rank", 4, "--window", 8, "--report", 5000, "--valid-every", 50_000]
    settings += ["--checkpoint-seconds", 5, "--steps", options.steps]
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        command = [sys.executable, "-m", "evergrad", "train", "text", *map(str, settings), "--out", str(run)]
        started = time.time()
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
        seconds = time.time() - started
        rows = [json.loads(line) for line in (run / "speed.jsonl").read_text().splitlines()]
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    memory = [row["memory_mib"] for row in rows]
    tenth = len(memory) // 10
    early, late = sum(memory[tenth : 2 * tenth]) / tenth, sum(memory[-tenth:]) / tenth
    result = {
        **machine(),
        "command": "evergrad train text " + " ".join(map(str, settings)),
        "seconds": round(seconds),
        "valid_bpc": last["valid_bpc"],
        "memory_mib_second_tenth": round(early, 1),
        "memory_mib_last_tenth": round(late, 1),
        "growth": round(late / early - 1, 5),
        "flat": late / early < 1.02,
        "memory_mib_by_step": {row["step"]: round(row["memory_mib"], 1) for row in rows[:: max(1, tenth // 2)]},
    }
    print(json.dumps(result, indent=2))
    (Path(__file__).parent / "results" / "soak.json").write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(0 if result["flat"] else 1)


if __name__ == "__main__":
    main()
