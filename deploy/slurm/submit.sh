#!/bin/bash
# Submits a run: a coordinator, and an array of workers that starts once the coordinator has. Given the folder of a run that
# stopped, it goes on with it.
#
#   submit.sh [OPTIONS] FOLDER WORKERS [FLAGS OF ata coordinator]
#
#   --ata PROGRAM               ata, on a file system that all nodes see [default: the one in PATH]
#   --sbatch OPTIONS            options of sbatch for both jobs, as in '--account=vision --time=12:00:00'
#   --coordinator-sbatch OPTIONS   for the coordinator's, as in '--partition=cpu --cpus-per-task=2'
#   --worker-sbatch OPTIONS     for the workers', as in '--partition=gpu --gres=gpu:1 --cpus-per-task=4'
#   --worker-flags FLAGS        flags of ata worker, as in '--device cuda'
#
# FOLDER is on a file system that all nodes see; it gets run/ (the run's files), credentials/ and the logs.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 64; }

ata=ata both='' for_coordinator='' for_worker='' flags=''
while [[ ${1:-} == --* ]]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --ata) ata=$2 ;;
        --sbatch) both=$2 ;;
        --coordinator-sbatch) for_coordinator=$2 ;;
        --worker-sbatch) for_worker=$2 ;;
        --worker-flags) flags=$2 ;;
        *) usage ;;
    esac
    shift 2
done
[ $# -ge 2 ] && [[ $2 =~ ^[1-9][0-9]*$ ]] || usage
program=$(command -v "$ata") || { echo "submit.sh: no program $ata; see --ata" >&2; exit 64; }
program=$(realpath "$program")
# The log of the coordinator holds the join token.
umask 077
mkdir -p "$1"
folder=$(realpath "$1") workers=$2
shift 2

# shellcheck disable=SC2086 # the options are several words
coordinator=$(sbatch --parsable $both $for_coordinator --output="$folder/coordinator.log" \
    "$here/coordinator.sh" "$program" "$folder" "$@")
coordinator=${coordinator%%;*}
# shellcheck disable=SC2086
array=$(sbatch --parsable $both $for_worker --array="1-$workers" --dependency="after:$coordinator" --kill-on-invalid-dep=yes \
    --output="$folder/worker-%a.log" "$here/worker.sh" "$program" "$folder" "$coordinator" $flags)
echo "coordinator: job $coordinator, $folder/coordinator.log"
echo "workers:     job ${array%%;*}, $folder/worker-*.log"
echo "to stop it, saved: scancel $coordinator ${array%%;*}; to go on: the same command again"
