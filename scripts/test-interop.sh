#!/bin/sh
# PyTorch loads what is exported: in an environment of its own, so that the other tests need no torch.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-interop
if [ ! -x "$venv/bin/pytest" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet torch==2.13.0 -e '.[export,test]'
fi
"$venv/bin/python" -m pytest tests/interop "$@"
