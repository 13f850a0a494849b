#!/bin/sh
# Wheel and sdist in dist/, each installed into empty environments and tried there: core only, then every extra.
#     scripts/dist.sh            all extras that scripts/smoke.py knows
#     scripts/dist.sh core cli   only these
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
work=$(mktemp -d "${TMPDIR:-/tmp}/evergrad-dist-XXXXXX")
trap 'rm -rf "$work"' EXIT
cp scripts/smoke.py "$work"

echo "building"
"$python" -m venv "$work/build"
"$work/build/bin/pip" install --quiet --disable-pip-version-check build twine
rm -rf dist
"$work/build/bin/python" -m build --outdir dist . >"$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/build/bin/twine" check --strict dist/*

[ $# -gt 0 ] || set -- $("$python" scripts/smoke.py --list)
wheel=$(echo "$PWD"/dist/*.whl)
sdist=$(echo "$PWD"/dist/*.tar.gz)

try() { # what is installed, which part is tried
    echo "trying $2 of $(basename "$1")"
    rm -rf "$work/env"
    "$python" -m venv "$work/env"
    what=$1
    [ "$2" = core ] || what="$1[$2]"
    "$work/env/bin/pip" install --quiet --disable-pip-version-check "$what"
    (cd "$work" && "$work/env/bin/python" smoke.py "$2")
}

for part; do try "$wheel" "$part"; done
try "$sdist" core
ls -l dist
