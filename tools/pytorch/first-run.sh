#!/bin/sh
# From an empty environment to a trained model, without Rust: how many seconds each step takes, and how many megabytes it installs.
#
#     tools/pytorch/first-run.sh WHEEL [DATA]
#
# WHEEL: ata's wheel. DATA: the folder of CIFAR-100's binary files, for examples/cnn.py; without it, that takes random images. Needs
# Python 3.10 or newer, bc, and PyPI.
set -eu
wheel=$(realpath "$1")
data=$(realpath "${2:-/nonexistent}")
examples=$(realpath "$(dirname "$0")/../../python/examples")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
[ ! -d "$data" ] || ln -s "$data" cifar-100-binary

# timed LABEL COMMAND...
timed() {
    label=$1
    shift
    began=$(date +%s.%N)
    "$@" > log 2>&1 || { cat log; exit 1; }
    seconds=$(echo "$(date +%s.%N) - $began" | bc)
    printf '%-34s %6.1f s, %5d MB in the environment\n' "$label" "$seconds" "$(du -sm venv | cut -f1)"
}

echo "wheel: $(du -m "$wheel" | cut -f1) MB"
timed "python3 -m venv" python3 -m venv venv
PATH=$folder/venv/bin:$PATH
timed "pip install WHEEL" pip install --disable-pip-version-check "$wheel"
timed "ata up" ata up --dashboard off
timed "pip install torch" pip install --disable-pip-version-check torch
timed "python cnn.py up --iterations 50" python "$examples/cnn.py" up --dashboard off --iterations 50
