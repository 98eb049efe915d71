#!/usr/bin/env bash
# Stops a run of 4 million parameters over and over, at random moments, and compares its end with that of an undisturbed one: the
# same SHA-256 of the parameters, exit code 0, and all result files.
#
#     deploy/stops.sh ATA term [COUNT]    SIGTERM at a random moment, saved as by default (every 60 s)
#     deploy/stops.sh ATA full [COUNT]    the disk of the run's folder is full; checkpoints are on another one (root: mounts a tmpfs)
#     deploy/stops.sh ATA kill [COUNT]    SIGKILL from the start of the process to its end
#
# Each of COUNT runs (40) is stopped once or twice, then resumed to its end with `--resume auto`. Prints a line per run.
set -euo pipefail

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
[ $# -ge 2 ] || usage
ata=$(command -v "$1") || { echo "stops.sh: no program $1" >&2; exit 64; }
ata=$(realpath "$ata")
how=$2 count=${3:-40}
case "$how" in term|full|kill) ;; *) usage ;; esac

work=$(mktemp -d)
mounted=
clean() {
    pkill -KILL -g 0 -f "^$ata worker" 2>/dev/null || true
    [ -z "$mounted" ] || umount "$work/disk" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
cd "$work"

run=run
if [ "$how" = full ]; then
    mkdir disk && mount -t tmpfs -o size=64M none disk && mounted=yes
    run=disk/run
fi
settings=(--iterations 12 --budget 8 --task-batch 1 --workers 2 --device cpu --task-time none --eval-every 4
    --model cnn:widths=8/16/256/1024)
results='config.toml events.jsonl metrics.csv summary.json statistics.json model.safetensors report.html'

sha() { sed -n 's/.*"parameters_sha256": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }
random() { awk -v s="$RANDOM$RANDOM" -v m="$1" 'BEGIN { srand(s); printf "%.3f", m * rand() }'; }

began=$(date +%s.%N)
"$ata" up --out undisturbed "${settings[@]}" >log 2>&1
usual=$(awk -v a="$began" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')
expected=$(sha undisturbed)
echo "undisturbed: $usual s, $expected"

again=(up --out "$run" --resume auto "${settings[@]}" --checkpoint "$work/saved")
failed=0
for i in $(seq "$count"); do
    rm -rf "$run" saved
    codes=
    for part in 1 2; do
        "$ata" "${again[@]}" >>log 2>&1 &
        process=$!
        sleep "$(random "$(awk -v u="$usual" -v p="$part" 'BEGIN { print 1.1 * u / p }')")"
        case "$how" in
            term) kill -TERM $process 2>/dev/null || true ;;
            kill) kill -KILL $process 2>/dev/null || true ;;
            full) dd if=/dev/zero of=disk/filler bs=64k 2>/dev/null || true ;;
        esac
        code=0; wait $process || code=$?
        codes="$codes $code"
        # Before it listens for signals, SIGTERM ends it at once.
        case "$how $code" in
            *' 0' | 'term 75' | 'term 143' | 'full 74' | 'kill 137') ;;
            *) echo "run $i: a stop ended with $code"; failed=$((failed + 1)) ;;
        esac
        rm -f disk/filler
    done
    code=0; "$ata" "${again[@]}" >log.last 2>&1 || code=$?
    found=$(sha "$run" 2>/dev/null || true)
    missing=; for file in $results; do [ -s "$run/$file" ] || missing="$missing $file"; done
    verdict=same
    if [ "$code" != 0 ] || [ "$found" != "$expected" ] || [ -n "$missing" ]; then
        verdict="WRONG: exit $code, sha256 $found, missing:$missing"
        failed=$((failed + 1)); tail -5 log.last
    fi
    echo "run $i: ended with$codes, then $code: $verdict"
done
echo "$failed of $count runs ended wrongly"
[ "$failed" = 0 ]
