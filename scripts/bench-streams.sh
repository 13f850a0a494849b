#!/bin/sh
# The comparison of stream learners. deep-river has an environment of its own: its pins conflict with ours.
#     scripts/bench-streams.sh --data ../shared/data --out benchmarks/results/streams
set -eu
cd "$(dirname "$0")/.."
venv=.venv-deep-river
if [ ! -x "$venv/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet torch==2.13.0 'river<0.26' 'pandas<3' sortedcontainers tqdm torchviz ordered-set pytest scikit-learn
    "$venv/bin/pip" install --quiet --no-deps deep-river
fi
"${EVERGRAD_PYTHON:-.venv/bin/python}" -m evergrad streams bench --deep-river "$venv/bin/python" "$@"
