#!/usr/bin/env bash
# Builds ata with CUDA from package registries alone: crates.io, and the mirror that apt uses for LLVM 23.
#
#     deploy/cuda/build.sh [CARGO-FLAGS…]
#
# Leaves the program in target/release/ata (or in CARGO_TARGET_DIR), and LLVM in target/llvm (or in LLVM_DIR); prepare-llvm.sh says
# what that needs. It takes no CUDA toolkit and no GPU. FEATURES=cuda leaves out the cache of tuned kernels, without which each
# process tunes for minutes. The first build takes 25 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-target}
llvm=${LLVM_DIR:-$target/llvm}
deploy/cuda/prepare-llvm.sh "$llvm"
# Where tracel-llvm-bundler looks. It ignores relative paths.
XDG_DATA_HOME=$(realpath "$llvm")/data
# Otherwise cudarc asks nvcc, which there need not be, for the version of CUDA. The driver's library is loaded when the program runs.
CUDARC_CUDA_VERSION=${CUDARC_CUDA_VERSION:-12080}
export XDG_DATA_HOME CUDARC_CUDA_VERSION
cargo build --release --locked --features "${FEATURES:-cuda,autotune-cache}" "$@"
echo "built $target/release/ata; it needs libdevice.10.bc to run: docs/how-to/gpus.md"
