"""A service under load: so many requests a second, one sample each, for a while, and a SIGKILL in the middle.

    python benchmarks/serve_load.py --rate 1000 --seconds 60 --json benchmarks/results/serve.json

Prints how many requests were answered, the times of their answers, and how many answered samples the service still knew after it
was killed and started again. Only 127.0.0.1 is asked. Exit code 1 if a request failed before the kill, or an answer was lost.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2
import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1000, help="requests a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--clients", type=int, default=16, help="connections")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measured(Path(folder, "state"), asked))
    print(json.dumps(found, indent=1))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if found["failed"] == found["lost"] == 0 else 1)


async def measured(folder, asked):
    port = free_port()
    child = await started(folder, port)
    warmed = await load(port, rate=asked.rate, seconds=5, clients=asked.clients)
    found = await load(port, rate=asked.rate, seconds=asked.seconds, clients=asked.clients)
    killed = asyncio.create_task(load(port, rate=asked.rate, seconds=4, clients=asked.clients))
    await asyncio.sleep(2)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    last = await killed
    answered = sum(len(each["times"]) for each in (warmed, found, last))
    child = await started(folder, port)
    async with httpx2.AsyncClient() as client:
        known = (await client.get(f"http://127.0.0.1:{port}/report", timeout=60)).json()["service"]["changes"]
    child.terminate()
    child.wait()
    times = 1e3 * np.asarray(found["times"])
    return {
        "rate": asked.rate,
        "seconds": asked.seconds,
        "connections": asked.clients,
        "answered": len(times),
        "failed": found["failed"],
        "answered a second": round(len(times) / found["took"], 1),
        "p50 ms": round(float(np.quantile(times, 0.5)), 2),
        "p99 ms": round(float(np.quantile(times, 0.99)), 2),
        "answered until the kill": answered,
        "known after it": known,
        "lost": max(0, answered - known),
    }


async def load(port, *, rate, seconds, clients):
    """Each connection asks at its own times, whatever the others do; one that is late asks at once."""
    times, failed, start = [], [], time.perf_counter()

    async def ask(which):
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            for number in range(which, rate * seconds, clients):
                due = start + number / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                x = {"hour": number % 24, "load": float(np.sin(number / 9))}
                sent = time.perf_counter()
                try:
                    done = await client.post("/predict_and_learn", json={"x": x, "y": float(np.sin((number + 1) / 9))})
                    (times if done.status_code == 200 else failed).append(time.perf_counter() - sent)
                except httpx2.HTTPError:
                    failed.append(None)
                    return

    await asyncio.gather(*(ask(which) for which in range(clients)))
    return {"times": times, "failed": len(failed), "took": time.perf_counter() - start}


async def started(folder, port):
    command = [sys.executable, "-m", "evergrad", "serve", "--new", "regressor", "--state", folder, "--port", port]
    child = subprocess.Popen([*map(str, command)])
    async with httpx2.AsyncClient() as client:
        for _ in range(600):
            try:
                if (await client.get(f"http://127.0.0.1:{port}/healthz", timeout=60)).status_code == 200:
                    return child
            except httpx2.ConnectError:
                await asyncio.sleep(0.1)
    child.kill()
    raise SystemExit("the service does not answer")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


if __name__ == "__main__":
    main()
