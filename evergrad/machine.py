"""What a figure was measured on."""

import platform
from pathlib import Path

import jax


def machine() -> dict[str, str]:
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": f"{names[0]}, {len(names)} cores" if names else platform.processor(),
        "python": platform.python_version(),
        "jax": jax.__version__,
    }
