#!/usr/bin/env bash
# Demonstrates the wgpu device on a machine without a GPU, on Mesa's software Vulkan adapter: compares its gradient with
# the CPU's, and trains briefly. Slow by nature: shaders run on one core per worker, and the first build takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! ls /usr/share/vulkan/icd.d/lvp_icd*.json >/dev/null 2>&1; then
    echo "no software Vulkan adapter: apt-get install mesa-vulkan-drivers" >&2
    exit 1
fi
# Benchmarking every kernel variant would take minutes here.
export CUBECL_AUTOTUNE_LEVEL=minimal
# Graphics libraries complain if it is not set.
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-$(mktemp -d)}"
ata() { cargo run --release --features gpu -- "$@"; }

ata doctor --device wgpu --task-batch 4
ata up --device wgpu --task-batch 4 --budget 8 --iterations "${ITERATIONS:-100}" --lr 1e-3 --workers 2 --task-time none
