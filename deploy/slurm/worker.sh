#!/bin/bash
# A worker's job, one element of an array: worker.sh PROGRAM FOLDER COORDINATOR_JOB [FLAGS OF ata worker]. submit.sh
# submits it. For GPUs: submit.sh --worker-sbatch '--gres=gpu:1 --cpus-per-task=4'.
#SBATCH --job-name=ata-worker
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@60
set -u
ata=$1 folder=$2 coordinator=$3
shift 3
job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

say() { echo "$(date +%T) job $job on $SLURMD_NODENAME: $*" >&2; }
finished() { grep -q '"state": "finished"' "$folder/run/summary.json" 2> /dev/null; }
state() { squeue --noheader --format=%T --jobs="$1" 2>&1; }

# Slurm starts the job again, unless it is ending already: after scancel, scontrol requeue or a preemption.
again() {
    trap '' TERM
    case $(state "$job") in
        RUNNING | SIGNALING) say "back into the queue" && scontrol requeue "$job" ;;
    esac
    exit 0
}

# shellcheck disable=SC2329 # a trap calls it
forward() {
    stopping=1 interrupted=1
    sleep 0.2
    if kill -0 "$witness" 2> /dev/null; then kill -TERM "$child"; fi
}

# The coordinator's job is over, as far as Slurm can say; a job that waits to run again is not.
coordinator_is_gone() {
    case $(state "$coordinator") in
        '' | *'Invalid job id'* | CANCELLED | COMPLETED | FAILED | TIMEOUT | DEADLINE | OUT_OF_MEMORY) return 0 ;;
        *) return 1 ;;
    esac
}

# Speeds are remembered by name: a name is a GPU of a node, or, without GPUs, an element of the array on a node.
if [ "${SLURM_JOB_GPUS:-}" ]; then slot=gpu${SLURM_JOB_GPUS//,/.}; else slot=$SLURM_ARRAY_TASK_ID; fi
export ATA_THREADS=${ATA_THREADS:-${SLURM_CPUS_ON_NODE:-1}}
# Then this script looks whether the coordinator's job is over.
export ATA_RETRY_FOR=${ATA_RETRY_FOR:-30}
# Less than the 60 s of --signal.
export ATA_DRAIN_S=${ATA_DRAIN_S:-45}
away_since=
stopping=
trap 'stopping=1' TERM

say "start ${SLURM_RESTART_COUNT:-0}"
until finished; do
    began=$SECONDS
    "$ata" worker --join-file "$folder/credentials/join-token" --name "$SLURMD_NODENAME-$slot" "$@" &
    child=$!
    # A second SIGTERM ends ata at once. Slurm sends it to this shell alone (--signal=B) or to all processes of the job, this one included.
    sleep infinity &
    witness=$!
    disown "$witness"
    trap forward TERM
    [ "$stopping" ] && kill -TERM "$child"
    interrupted=1
    while [ "$interrupted" = 1 ]; do
        interrupted=0
        wait "$child"
        code=$?
    done
    kill "$witness" 2> /dev/null
    [ "$stopping" ] && again
    limit_s=${ATA_WAIT_S:-}
    case $code in
        # No coordinator at that address; the run, the device or the disk failed.
        69 | 70 | 74) ;;
        # Refused, perhaps by another coordinator that has this address now.
        77) limit_s=${limit_s:-600} ;;
        *) say "ata ended with $code" && exit "$code" ;;
    esac
    finished && break
    if coordinator_is_gone; then say "the coordinator's job is over" && exit "$code"; fi
    # Having been connected for a while, ata had more to do than to wait for the coordinator.
    if [ -z "$away_since" ] || ((SECONDS - began > 2 * ATA_RETRY_FOR)); then away_since=$SECONDS; fi
    if [ "$limit_s" ] && ((SECONDS - away_since > limit_s)); then say "no coordinator for $limit_s s" && exit "$code"; fi
    sleep 5
done
