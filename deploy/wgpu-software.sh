#!/usr/bin/env bash
# Checks the wgpu device on a machine without a GPU, on Mesa's software Vulkan adapter: the doctor fails unless its gradients,
# of a task and of a lease as one batch, are the CPU's but for rounding; then it trains briefly, with leases as one batch, task by
# task, and together with a CPU worker. This is slow, because shaders run on one core per worker, and the first build takes minutes.
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
up() { ata up --task-batch 4 --budget 8 --iterations "${ITERATIONS:-50}" --lr 1e-3 --task-time none "$@"; }

# Port 0: whether a coordinator could listen is not the question.
ata doctor --device wgpu --task-batch 4 --listen 127.0.0.1:0
for fuse in on off; do
    up --device wgpu --workers 1 --fuse "$fuse"
done
up --devices wgpu:0,cpu
