#!/bin/sh
# Builds and tests what `ata new` writes, as its user would: about ten minutes on two cores, mostly for burn.
#
#     tools/try-new.sh ATA
set -eu
ata=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$ata" new my-problem
cd my-problem
cargo test --release
cargo run --release -- up --iterations 100 --dashboard off
