#!/usr/bin/env bash
# Accepts a machine's GPUs for training with ata: measures them, prints a table, and writes the same as JSON. It takes at most
# 40 minutes, most of which kernels are tuned, needs no network and no root, and ends every process that it started, also if it is interrupted.
#
#     deploy/accept-gpu.sh ATA [PYTHON]
#
# ATA: the program. PYTHON: an interpreter with PyTorch, which is measured on the same GPU; without it, that part is left out.
# Needs python3, 3.9 or newer. Variables:
#
#     DEVICE=cuda|wgpu|cpu   the kind of device, or one device, as in cuda:1 [the best that `ata doctor` finds]
#     DATA=DIR               CIFAR-100, as `ata up --data` takes it: also trains ResNet-20 on it, for as long as there is time
#     TRAIN_S=600            trains for at most so many seconds
#     MINUTES=40             the time for everything; with a build that has the feature autotune-cache, a second run takes less
#     OUT=accept-gpu.json    the file that is written
#     SHORT=1                smaller and fewer measurements, for a trial on a software adapter or a CPU
#
# A line is `passed` or `failed` if it has a criterion, `measured` if it has none, and `not checked`, with the reason, if this
# machine cannot be asked. On a CPU or a software adapter, speeds are only measured. The exit code is 0 if no line failed, 1 if one
# did, and 64 if the arguments are wrong.
set -euo pipefail

[ $# = 1 ] || [ $# = 2 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
command -v python3 >/dev/null || { echo "accept-gpu.sh: there is no python3" >&2; exit 64; }
exec python3 "$(dirname "$0")/accept-gpu/accept.py" "$@"
