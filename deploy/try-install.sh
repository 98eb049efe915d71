#!/usr/bin/env bash
# Tries deploy/install.sh with a release on this machine's disk: that it installs the program, and refuses an archive that was changed.
#
#     deploy/try-install.sh ATA
set -euo pipefail

[ $# = 1 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $(uname -s)-$(uname -m) in
Linux-x86_64) target=x86_64-unknown-linux-musl ;;
Linux-aarch64) target=aarch64-unknown-linux-musl ;;
Darwin-arm64) target=aarch64-apple-darwin ;;
*) echo "try-install.sh: no release is built for this machine" >&2; exit 64 ;;
esac
name=ata-v0.0.0-$target-cpu
mkdir -p "$work/release/$name"
cp "$1" "$work/release/$name/ata"
(cd "$work/release" && tar -czf "$name.tar.gz" "$name" && { sha256sum "$name.tar.gz" || shasum -a 256 "$name.tar.gz"; } > SHA256SUMS)
# As the workflow does it.
sed "s|@RELEASE@|file://$work/release|; s|@VERSION@|v0.0.0|" "$here/install.sh" > "$work/install.sh"

sh "$work/install.sh" --to "$work/bin"
"$work/bin/ata" policies > /dev/null
rm "$work/bin/ata"
echo changed >> "$work/release/$name.tar.gz"
if sh "$work/install.sh" --to "$work/bin" 2> "$work/said"; then
    echo "try-install.sh: an archive that was changed was installed" >&2
    exit 1
fi
grep -q "is not what SHA256SUMS says" "$work/said"
[ ! -e "$work/bin/ata" ]
if sh "$work/install.sh" --gpu --to "$work/bin" 2> "$work/said"; then exit 1; fi
grep -q "cannot download" "$work/said"
echo "install.sh works"
