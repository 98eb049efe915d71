#!/usr/bin/env bash
# Puts LLVM 23 from Debian's packages where the build of `--features cuda` looks for it, so that nothing comes from GitHub.
#
#     deploy/cuda/prepare-llvm.sh DIR
#     XDG_DATA_HOME=DIR/data CUDARC_CUDA_VERSION=12080 cargo build --release --locked --features cuda
#
# (deploy/cuda/build.sh runs both.) The crate tracel-llvm-bundler downloads its own build of LLVM unless the folder
# $XDG_DATA_HOME/tracel/tracel-llvm-VERSION has a file `.tracel-llvm-installed`; then it only runs `bin/llvm-config` in that
# folder. This script unpacks the packages llvm-23 and llvm-23-dev into DIR, and writes the file and an llvm-config that points to
# them. Nothing is installed, and the machine's own lists of packages stay as they are.
#
# Works only on Debian and Ubuntu, without root: needs apt-get, dpkg, g++, and the packages libzstd-dev, zlib1g-dev and libz3-4. The
# packages come from the mirror that apt uses on this machine, from the suite `sid` (Debian) or `devel` (Ubuntu, not tried);
# SUITE=… names another. They take 500 MB in DIR.
#
# LLVM's archives were compiled for glibc 2.38 or newer. For an older one, a library of the three functions that it lacks is added.
set -euo pipefail

# The version in Cargo.lock, which is the name of the folder, and the major version of LLVM that it stands for.
readonly BUNDLE=23.1.0-4 LLVM=23

fail() { printf 'prepare-llvm.sh: %s\n' "$*" >&2; exit 1; }

[ $# = 1 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
for program in apt-get dpkg; do
    command -v $program >/dev/null || fail "there is no $program: this script works only on Debian and Ubuntu"
done
for program in cc c++ ar; do
    command -v $program >/dev/null || fail "there is no $program: apt-get install g++"
done
lock=$(dirname "$0")/../../Cargo.lock
grep -A1 '^name = "tracel-llvm-bundler"' "$lock" | grep -q "\"$BUNDLE\"" \
    || fail "Cargo.lock has another version of tracel-llvm-bundler than $BUNDLE: change BUNDLE and LLVM in this script"

# shellcheck source=/dev/null
. /etc/os-release
case $ID in
debian) suite=${SUITE:-sid} components=main ;;
ubuntu) suite=${SUITE:-devel} components='main universe' ;;
*) fail "this is $ID: this script works only on Debian and Ubuntu" ;;
esac
keys=/usr/share/keyrings/$ID-archive-keyring.gpg
[ -e "$keys" ] || fail "there is no $keys: apt-get install $ID-archive-keyring ($ID-keyring on Ubuntu)"
# Of the sources that apt has, the one of the distribution itself; `stable` and so on are other names of its suite.
# shellcheck disable=SC2016 # apt's variables, not the shell's
mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' \
    | awk -v name="${VERSION_CODENAME:-sid}" '
        $2 == "main" && ($1 == name || $1 ~ /^(oldstable|stable|testing|unstable|sid|devel)$/) { print $3; exit }')
[ -n "$mirror" ] || fail "apt knows no source of $ID's packages: expected one for ${VERSION_CODENAME:-sid} in /etc/apt, and \`apt-get update\` to have run"

mkdir -p "$1"
cd "$1"
folder=$PWD
root=$folder/root/usr/lib/llvm-$LLVM
bundle=$folder/data/tracel/tracel-llvm-$BUNDLE

apt() {
    apt-get -qq -oDir::State::Lists="$folder/lists" -oDir::Cache="$folder/cache" -oDir::Etc::SourceList="$folder/sources.list" \
        -oDir::Etc::SourceParts=/dev/null -oAPT::Sandbox::User="$(id -un)" "$@"
}
if [ ! -e "$root/complete" ]; then
    mkdir -p lists/partial cache/archives/partial packages
    echo "deb [signed-by=$keys] $mirror $suite $components" >sources.list
    apt update || fail "apt-get cannot read the suite $suite from $mirror"
    (cd packages && apt download llvm-$LLVM llvm-$LLVM-dev) || fail "$suite at $mirror lacks llvm-$LLVM: name another suite by SUITE"
    rm -rf root
    for package in packages/*.deb; do dpkg --extract "$package" root; done
    rm -r lists cache packages sources.list
    touch "$root/complete"
fi

# LLVM asks for the strtol of C23 by these names. The glibc of Debian 12 and Ubuntu 22.04 is older than 2.38, and lacks them. With a
# newer one the library is empty.
: >isoc23.c
glibc=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
if [ "$(printf '%s\n' "$glibc" 2.38 | sort -V | head -1)" != 2.38 ]; then
    cat >isoc23.c <<'EOF_C'
#include <stdlib.h>
long __isoc23_strtol(const char *text, char **end, int base) { return strtol(text, end, base); }
long long __isoc23_strtoll(const char *text, char **end, int base) { return strtoll(text, end, base); }
unsigned long long __isoc23_strtoull(const char *text, char **end, int base) { return strtoull(text, end, base); }
EOF_C
fi
rm -f "$root/lib/libisoc23.a"
cc -O2 -c isoc23.c
ar rcs "$root/lib/libisoc23.a" isoc23.o
rm isoc23.c isoc23.o

# Two answers of Debian's llvm-config do not fit: it names libz3.so, which nothing here needs, by its path, of which the bundler makes
# `-llibz3`; and it names Polly, which is in no package as an archive.
mkdir -p "$bundle/bin"
rm -f "$bundle/.tracel-llvm-installed"
cat >"$bundle/bin/llvm-config" <<EOF_CONFIG
#!/bin/sh
case "\$*" in
*--system-libs*) echo -lisoc23 -lrt -ldl -lm -lz -lzstd ;;
*--libs* | *--libnames*) "$root/bin/llvm-config" "\$@" | tr ' ' '\n' | grep -v Polly | tr '\n' ' ' ;;
*) exec "$root/bin/llvm-config" "\$@" ;;
esac
EOF_CONFIG
chmod +x "$bundle/bin/llvm-config"

# A program with LLVM's code generator for NVIDIA, so that what is missing is found now, and not after a quarter of an hour.
config=$bundle/bin/llvm-config
found=$("$config" --version) || fail "LLVM's llvm-config does not run: apt-get install libz3-4"
read -ra libraries <<<"$("$config" --link-static --libs nvptx | tr '\n' ' ') $("$config" --system-libs)"
# shellcheck disable=SC2015
c++ -I"$("$config" --includedir)" -x c - -x none -L"$root/lib" "${libraries[@]}" -o trial <<'EOF_C' && ./trial \
    || fail "a program with LLVM does not link or run, see above: apt-get install g++ libzstd-dev zlib1g-dev"
#include <llvm-c/Target.h>
int main(void) {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
}
EOF_C
rm trial

# Only now, because with this file the bundler asks no further.
touch "$bundle/.tracel-llvm-installed"
echo "LLVM $found is in $root; build with XDG_DATA_HOME=$folder/data CUDARC_CUDA_VERSION=12080"
