#!/bin/sh
# Speed against what people could use instead. braintrace has an environment of its own: it is no part of ours.
#     scripts/bench-peers.sh --json benchmarks/results/peers.json
set -eu
cd "$(dirname "$0")/.."
venv=.venv-braintrace
if [ ! -e "$venv/.installed" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet braintrace==0.2.6 brainstate==0.5.4 braintools==0.3.0 jax==0.10.2
    touch "$venv/.installed"
fi
"${EVERGRAD_PYTHON:-.venv/bin/python}" -m evergrad bench peers --braintrace "$venv/bin/python" "$@"
