#!/bin/sh
# Speed against what people could use instead. Each has an environment of its own: they are no part of ours.
#     scripts/bench-peers.sh --json benchmarks/results/peers.json
set -eu
cd "$(dirname "$0")/.."
environment() { # NAME PACKAGE...
    venv=.venv-$1
    shift
    if [ ! -e "$venv/.installed" ]; then
        "${PYTHON:-python3}" -m venv "$venv"
        "$venv/bin/pip" install --quiet "$@"
        touch "$venv/.installed"
    fi
}
environment braintrace braintrace==0.2.6 brainstate==0.5.4 braintools==0.3.0 jax==0.10.2
environment pytorch torch==2.13.0 numpy
"${EVERGRAD_PYTHON:-.venv/bin/python}" -m evergrad bench peers \
    --braintrace .venv-braintrace/bin/python --pytorch .venv-pytorch/bin/python "$@"
