"""A service under load: so many requests a second, one sample each, for a while, and a SIGKILL in the middle.

    python benchmarks/serve_load.py --rate 1000 --seconds 60 --json benchmarks/results/serve.json

Prints how many requests were answered, the times of their answers, and how many answered samples the service still knew after it
was killed and started again. Only 127.0.0.1 is asked. Exit code 1 if a request failed before the kill, or an answer was lost.
"""

import argparse
import asyncio
import json
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2
import numpy as np

from evergrad._core.machine import machine


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
    before = processor_seconds(child.pid)
    found = await load(port, rate=asked.rate, seconds=asked.seconds, clients=asked.clients)
    used = [round(b - a, 1) for a, b in zip(before, processor_seconds(child.pid), strict=True)]
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
        **machine(),
        "rate": asked.rate,
        "seconds": asked.seconds,
        "connections": asked.clients,
        "answered": len(times),
        "failed": found["failed"],
        "answered a second": round(len(times) / found["took"], 1),
        "processor seconds, service": used[0],
        "processor seconds, who asks": used[1],
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
        for number in range(which, rate * seconds, clients):
            due = start + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            sample = {"x": {"hour": number % 24, "load": math.sin(number / 9)}, "y": math.sin((number + 1) / 9)}
            sent = time.perf_counter()
            if which not in lines:
                lines[which] = await asyncio.open_connection("127.0.0.1", port)
            well = await posted(*lines[which], "/predict_and_learn", sample)
            (times if well else failed).append(time.perf_counter() - sent)

    async def until_it_ends(which):
        try:
            await ask(which)
        except (OSError, asyncio.IncompleteReadError):  # killed
            failed.append(None)

    lines = {}
    await asyncio.gather(*map(until_it_ends, range(clients)))
    for _, writer in lines.values():
        writer.close()
    return {"times": times, "failed": len(failed), "took": time.perf_counter() - start}


async def posted(reader, writer, path, content):
    """Whether the answer is 200. Clients for all purposes take as long for a request as the service: this one does not."""
    body = json.dumps(content).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = next(line for line in answer.split(b"\r\n") if line.startswith(b"content-length:"))
    prediction = json.loads(await reader.readexactly(int(size.split(b":")[1])))
    return answer.startswith(b"http/1.1 200") and "prediction" in prediction


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


def processor_seconds(pid):
    """Of the service, and of this process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    mine = resource.getrusage(resource.RUSAGE_SELF)
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"), mine.ru_utime + mine.ru_stime


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


if __name__ == "__main__":
    main()
