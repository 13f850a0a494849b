"""The long runs of "The paper, decided", one after the other on one core at low priority; resumable: start it again."""

import os
import subprocess
import sys
import time
from pathlib import Path

from evergrad._training.folder import open_run
from evergrad.paper.plan import Plan, Run
from evergrad.paper.rates import RATES
from evergrad.paper.setup import COPY, PTB, RELEASED_RATE, ktp, ok, ours, tbptt

OUT = Path("/work/long/paper")
DATA = "/work/shared/data/ptb"
plan = Plan("desk", OUT, DATA)
R25, R3, R35, R4 = RATES


def run(base, est, rate, steps, seed=0):
    task = "text" if "valid_every" in base else "copy"
    s = base | est | {"learning_rate": rate, "clip": 1.0, "report": 1000, "keep": 2, "checkpoint_seconds": 120.0}
    if task == "text":
        s["data"] = DATA
    return Run(task, s | {"seed": seed}, steps)


def rolling(h):
    return {"estimator": "tbptt", "horizon": h, "stride": 1}


def todo():
    K = 1000
    for r in (R3, R25, R35, R4):
        yield run(COPY, ours(16), r, 100 * K)  # R0
    for h in (50, 80):
        for r in RATES:
            yield run(COPY, tbptt(h), r, 40 * K)  # R1 search
    for h in (50, 80):
        for seed in range(3):
            yield run(COPY, tbptt(h), R25, 2000 * K, seed)  # R1
    for r in RATES:
        yield run(COPY, rolling(50), r, 40 * K)
    yield run(COPY, rolling(50), R3, 500 * K)
    yield run(PTB, ours(8), R3, 49 * K)  # R2
    for h in (5, 25):
        for r in RATES:
            yield run(PTB, tbptt(h), r, 20 * K)
    for h in (5, 25):
        yield run(PTB, tbptt(h), R25, 1000 * K)  # R3
    yield run(COPY, ours(16), R3, 2000 * K)  # R7 (best rate so far)
    yield run(COPY, ok(16), RELEASED_RATE, 100 * K)  # R4
    yield run(COPY, ok(16, mix="truncate"), RELEASED_RATE, 50 * K)
    b256 = COPY | {"batch": 256}
    yield run(b256, ktp(16), RELEASED_RATE, 100 * K)  # R9
    yield run(b256, ktp(16), R25, 50 * K)
    yield run(b256, ktp(16, window=1), RELEASED_RATE, 20 * K)
    for seed in (0, 1):
        yield run(COPY, {"estimator": "rtrl", "window": 128}, R3, 100 * K, seed)  # R12
    yield run(PTB, ours(8), RELEASED_RATE, 199 * K)  # R11
    yield run(COPY, ours(16), R3, 2000 * K, 1)


def main():
    for r in todo():
        if plan.finished(r):
            continue
        path, log = plan.path(r), plan.log(r)
        log.parent.mkdir(parents=True, exist_ok=True)
        words = (
            ["resume", str(path), "--steps", str(max(r.steps, open_run(path).settings.steps))]
            if path.exists()
            else [*r.arguments(), "--out", str(path)]
        )
        env = {"JAX_COMPILATION_CACHE_DIR": str(OUT / "compiled")} | os.environ
        t = time.time()
        print(time.strftime("%H:%M:%S"), "start", r.id, r.steps, r.settings["learning_rate"], flush=True)
        with log.open("a") as f:
            code = subprocess.run(
                [sys.executable, "-m", "evergrad", *words], stdin=subprocess.DEVNULL, stdout=f, stderr=f, env=env
            ).returncode
        if code == 3:
            plan.diverged(r).write_text("diverged\n")
        elif code:
            print("code", code, "- left", flush=True)
        print(
            time.strftime("%H:%M:%S"),
            "end",
            r.id,
            code,
            f"{time.time() - t:.0f} s",
            "reached",
            plan.reached(r),
            flush=True,
        )


main()
