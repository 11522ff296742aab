#!/usr/bin/env bash
# Install one lock and the project itself (editable) into .venv: with uv where it is on PATH, else with pip.
# Usage: tools/environment.sh requirements.lock
# PYTHON names the interpreter for a new environment; without it the first suitable one on PATH is taken.
set -euo pipefail
cd "$(dirname "$0")/.."
lock=$1
python=.venv/bin/python

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if suits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    echo "Python 3.11 or newer is needed, and '${PYTHON:-python3}' is not: try make PYTHON=/path/to/python3.12" >&2
    return 1
}

has_uv() { command -v uv >/dev/null; }

# An environment of an older Python, or a half-made one, is replaced.
if ! suits $python; then
    base=$(find_python)
    rm -rf .venv
    if has_uv; then uv venv --quiet --python "$base" .venv; else "$base" -m venv .venv; fi
fi

if has_uv; then
    install=(uv pip install --quiet --python $python --compile-bytecode)  # as pip does: quicker starts
else
    $python -m pip --version >/dev/null 2>&1 || $python -m ensurepip >/dev/null
    install=($python -m pip install --quiet --disable-pip-version-check)
fi

echo "Installing $lock into .venv ..."
"${install[@]}" --require-hashes -r "$lock"
"${install[@]}" --no-deps --editable .
