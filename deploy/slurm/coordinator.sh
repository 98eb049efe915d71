#!/bin/bash
# The coordinator's job: coordinator.sh PROGRAM FOLDER [FLAGS OF ata coordinator]. submit.sh submits it.
#SBATCH --job-name=ata-coordinator
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
set -u
ata=$1 folder=$2
shift 2

say() { echo "$(date +%T) job $SLURM_JOB_ID on $SLURMD_NODENAME: $*" >&2; }

# Slurm starts the job again, unless it is ending already: after scancel it shall stay away, and after scontrol requeue
# or a preemption Slurm sees to it.
again() {
    trap '' TERM
    case $(squeue --noheader --format=%T --jobs="$SLURM_JOB_ID") in
        RUNNING | SIGNALING) say "saved; back into the queue" && scontrol requeue "$SLURM_JOB_ID" ;;
    esac
    exit 75
}

# A node that Slurm lost may still be running this coordinator: wait for it rather than write into the same run.
trap again TERM
mkdir -p "$folder"
exec 9> "$folder/lock"
while flock --timeout 5 --conflict-exit-code 75 9; [ $? = 75 ]; do
    [ "${waits:-}" ] || say "another coordinator has $folder; waiting for its end"
    waits=1
done

# The same port at each restart, another one for each job; any free port if it is taken.
port=${ATA_PORT:-$((20000 + SLURM_JOB_ID % 10000))}
if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; then port=0; fi
# The address by which Slurm knows this node is one that the other nodes reach.
address=${ATA_ADVERTISE:-$(scontrol show node --oneliner "$SLURMD_NODENAME" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')}

say "start ${SLURM_RESTART_COUNT:-0}"
"$ata" coordinator --listen "0.0.0.0:$port" ${address:+--advertise "$address"} \
    --credentials "$folder/credentials" --out "$folder/run" --resume auto "$@" &
child=$!
# ata takes a second SIGTERM for impatience and ends without saving. Slurm sends SIGTERM either to this shell alone (--signal=B)
# or to all processes of the job, this one included.
sleep infinity 9>&- &
witness=$!
disown "$witness"
# shellcheck disable=SC2329 # a trap calls it
forward() {
    interrupted=1
    sleep 0.2
    if kill -0 "$witness" 2> /dev/null; then kill -TERM "$child"; fi
}
trap forward TERM
interrupted=1
while [ "$interrupted" = 1 ]; do
    interrupted=0
    wait "$child"
    code=$?
done
say "ata ended with $code"
kill "$witness" 2> /dev/null
[ "$code" = 75 ] && again
exit "$code"
