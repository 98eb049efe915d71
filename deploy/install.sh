#!/bin/sh
# Installs the program ata of one release: downloads the archive for this machine, checks it against SHA256SUMS, and puts the program
# into a folder. Needs curl, tar and sha256sum (or shasum).
#
#     curl -fsSL RELEASE/install.sh | sh                            into ~/.local/bin
#     curl -fsSL RELEASE/install.sh | sh -s -- --gpu --to /usr/local/bin
#
# --gpu: with the wgpu device; without it, CPU only. On Linux, the program for CPUs runs on every distribution, and that for GPUs needs
# glibc 2.35 or newer. --to DIR: the folder. The workflow that publishes a release writes its address and
# version into this file; ATA_RELEASE and ATA_VERSION in the environment take their place.
set -eu

release=${ATA_RELEASE:-@RELEASE@}
version=${ATA_VERSION:-@VERSION@}
variant=cpu
to=${HOME:-}/.local/bin

fail() { echo "install.sh: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
    case $1 in
    --gpu) variant=gpu ;;
    --to) [ $# -ge 2 ] || fail "--to: expected a folder after it"; to=$2; shift ;;
    *) fail "$1: expected --gpu or --to DIR" ;;
    esac
    shift
done
case $release in @*) fail "this is the script of no release: set ATA_RELEASE to the address of its files, and ATA_VERSION" ;; esac

# A static program cannot load Vulkan.
case $variant in cpu) libc=musl ;; gpu) libc=gnu ;; esac
case $(uname -s)-$(uname -m) in
Linux-x86_64) target=x86_64-unknown-linux-$libc ;;
Linux-aarch64 | Linux-arm64) target=aarch64-unknown-linux-$libc ;;
Darwin-arm64) target=aarch64-apple-darwin ;;
*) fail "there is no archive for $(uname -s) on $(uname -m): build ata from its sources" ;;
esac

name=ata-$version-$target-$variant
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for file in "$name.tar.gz" SHA256SUMS; do
    curl -fsSL -o "$work/$file" "$release/$file" || fail "cannot download $release/$file"
done
sum=$(command -v sha256sum >/dev/null && echo sha256sum || echo "shasum -a 256")
grep -F " $name.tar.gz" "$work/SHA256SUMS" > "$work/sum" || fail "SHA256SUMS does not name $name.tar.gz"
(cd "$work" && $sum -c sum > /dev/null 2>&1) || fail "$name.tar.gz is not what SHA256SUMS says: download it again"
tar -xzf "$work/$name.tar.gz" -C "$work"
installed=$("$work/$name/ata" --version) || fail "$name does not run on this machine: build ata from its sources"
mkdir -p "$to"
mv "$work/$name/ata" "$to/ata"
echo "$installed is in $to/ata"
case :$PATH: in *":$to:"*) ;; *) echo "add $to to your PATH" ;; esac
