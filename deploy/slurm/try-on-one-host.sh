#!/bin/bash
# A Slurm cluster of four nodes on this machine, and a run on it that loses a worker's node, a worker by preemption, and its
# coordinator three times. At the end its parameters must be those of a run that nothing disturbed. Needs root, Debian's or Ubuntu's
# slurm-wlm and munge, and five minutes; --install installs the packages. A Slurm that runs on this machine is left alone.
#
#   cargo build --release && deploy/slurm/try-on-one-host.sh [--install] target/release/ata
set -euo pipefail
if [ "${1:-}" = --install ]; then
    apt-get install --yes --no-install-recommends slurm-wlm munge
    shift
fi
ata=$(realpath "${1:?expected the program, as in target/release/ata}")
here=$(dirname "$(realpath "$0")")
folder=$(mktemp -d /tmp/ata-slurm-XXXX)
export SLURM_CONF=$folder/slurm.conf
settings=(--iterations 700 --budget 8 --task-batch 1 --seed 1 --eval-every 0 --wire compact)

title() { printf '\n== %s\n' "$*"; }
show() { echo "\$ $*"; "$@"; }
address() { echo "10.117.8.${1#n}"; }
queue() { show squeue --array --format='%.6i %.16j %.11T %.9N %r'; }
# What the logs have to say since the last time.
declare -A printed
news() {
    local log lines
    for log in coordinator worker-1 worker-2; do
        lines=$(wc -l < "$folder/shared/$log.log")
        echo "-- $log.log"
        tail -n "+$((${printed[$log]:-0} + 1))" "$folder/shared/$log.log" | head -n "$((lines - ${printed[$log]:-0}))" |
            grep -E ' job |resuming|JOB|worker lost|worker ready|connected to|ata: ' | cut -c 1-150 || true
        printed[$log]=$lines
    done
}

# until_true SECONDS COMMAND...
until_true() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || { echo "not within the time: $*" >&2; exit 1; }
        sleep 0.5
    done
}
reached() { [ "$(iteration)" -ge "$1" ]; }
iteration() { tail -n 1 "$folder/shared/run/metrics.csv" 2> /dev/null | cut -d, -f1 | grep -x '[0-9]*' || echo 0; }
further() { until_true 60 reached $(($(iteration) + 5)); }
node_of() { squeue --noheader --array --states=RUNNING --format=%N --jobs="$1" 2> /dev/null || true; }
runs() { [ -n "$(node_of "$1")" ]; }
rests() { ! runs "$1"; }
is_idle() { sinfo --noheader --partition=ordinary --nodes="$1" --format=%T | grep -qx idle; }
is_up() { [ "$(sinfo --noheader --Node --partition=ordinary --format=%T | grep -cx idle)" = 4 ]; }
is_down() { sinfo --noheader --partition=ordinary --nodes="$1" --format=%T | grep -q down; }
is_over() { [ -z "$(squeue --noheader)" ]; }
field() { sed -n "s/.*\"$1\": \"\{0,1\}\([^\",]*\).*/\1/p" "$2" | head -n 1; }

# The node's slurmd, all processes of the job on it, and its network.
dies() {
    local script
    script=$(pgrep -f "$folder/spool.$1/job")
    # shellcheck disable=SC2046 # process ids
    kill -KILL "$(cat "$folder/slurmd.$1.pid")" $(ps -o ppid= -p "$script") "$script" $(pgrep --parent "$script")
    ip address delete "$(address "$1")/32" dev lo
}
is_repaired() {
    ip address add "$(address "$1")/32" dev lo
    rm "$folder/slurmd.$1.pid"
    slurmd -N "$1"
    until_true 60 is_idle "$1"
}

cleanup() {
    scancel --quiet --user=root 2> /dev/null || true
    sleep 1
    for daemon in "$folder"/*.pid; do
        kill "$(cat "$daemon")" 2> /dev/null || true
    done
    for node in n1 n2 n3 n4; do ip address delete "$(address "$node")/32" dev lo 2> /dev/null || true; done
    ip route delete unreachable 10.117.8.0/24 2> /dev/null || true
    echo "files: $folder"
}
trap cleanup EXIT

title "A cluster of four nodes on $(hostname)"
mkdir -m 755 "$folder/munge" "$folder/state"
chmod 755 "$folder"
dd if=/dev/urandom of="$folder/munge/key" bs=128 count=1 status=none
chmod 400 "$folder/munge/key"
munged --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munged.pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
cat > "$SLURM_CONF" <<CONF
ClusterName=ata-try
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=10
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
SlurmctldPort=17100
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
SlurmdTimeout=10
KillWait=10
ReturnToService=2
SchedulerParameters=bf_interval=3,sched_interval=3
SlurmctldParameters=preempt_send_user_signal
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
CONF
# An address that is taken away shall lead nowhere, not to a router.
ip route add unreachable 10.117.8.0/24
for node in n1 n2 n3 n4; do
    ip address add "$(address "$node")/32" dev lo
    echo "NodeName=$node NodeHostname=$(hostname -s) NodeAddr=$(address "$node") Port=1710${node#n} CPUs=1 State=UNKNOWN" >> "$SLURM_CONF"
done
cat >> "$SLURM_CONF" <<CONF
PartitionName=ordinary Nodes=n[1-4] Default=YES MaxTime=1:00:00 PriorityTier=1 GraceTime=5
PartitionName=urgent Nodes=n[1-4] MaxTime=1:00:00 PriorityTier=9 PreemptMode=OFF
CONF
slurmctld
for node in n1 n2 n3 n4; do slurmd -N "$node"; done
until_true 30 is_up
show sinfo

title "What the run has to end with"
(cd "$folder" && "$ata" up --workers 2 --task-time none "${settings[@]}" --out "$folder/undisturbed" > "$folder/undisturbed.log" 2>&1)
expected=$(field parameters_sha256 "$folder/undisturbed/summary.json")
echo "ata up ${settings[*]}: parameters_sha256 $expected"

title "The run: a coordinator and two workers, which take 40 ms for a task"
show "$here/submit.sh" --ata "$ata" --worker-flags '--device cpu --task-time const(40) --retry-for 5' \
    "$folder/shared" 2 --device cpu --min-workers 2 --checkpoint-every 10s "${settings[@]}" | tee "$folder/submitted"
coordinator=$(sed -n 's/^coordinator: *job \([0-9]*\).*/\1/p' "$folder/submitted")
workers=$(sed -n 's/^workers: *job \([0-9]*\).*/\1/p' "$folder/submitted")
until_true 60 reached 30
queue
news

title "A worker's node dies"
dead=$(node_of "${workers}_1")
echo "iteration $(iteration), node $dead"
dies "$dead"
further
echo "iteration $(iteration), with the other worker"
until_true 60 is_down "$dead"
show sinfo --partition=ordinary
until_true 60 runs "${workers}_1"
further
queue
news

is_repaired "$dead"

title "The coordinator's job gets SIGTERM, as before the end of its time limit"
echo "iteration $(iteration)"
show scancel --batch --signal=TERM "$coordinator"
until_true 30 rests "$coordinator"
queue
until_true 60 runs "$coordinator"
further
news

title "The coordinator has to move to another node"
left=$(node_of "$coordinator")
echo "iteration $(iteration), node $left"
show scontrol update nodename="$left" state=drain reason=disk
show scontrol requeue "$coordinator"
until_true 30 rests "$coordinator"
ip address delete "$(address "$left")/32" dev lo
until_true 60 runs "$coordinator"
further
queue
news
ip address add "$(address "$left")/32" dev lo
scontrol update nodename="$left" state=resume

title "An urgent job takes a worker's node"
wanted=$(node_of "${workers}_2")
echo "iteration $(iteration), node $wanted"
show sbatch --partition=urgent --nodelist="$wanted" --output=/dev/null --wrap='sleep 15'
until_true 60 rests "${workers}_2"
queue
until_true 60 runs "${workers}_2"
further
news

title "The coordinator's node dies"
dead=$(node_of "$coordinator")
saved=$(cat "$folder/shared/run/checkpoints/latest")
echo "iteration $(iteration), saved $saved, node $dead"
dies "$dead"
until_true 60 rests "$coordinator"
queue
until_true 60 runs "$coordinator"
further
news
is_repaired "$dead"

title "The end"
until_true 420 is_over
news
found=$(field parameters_sha256 "$folder/shared/run/summary.json")
echo "state $(field state "$folder/shared/run/summary.json") after iteration $(iteration)"
echo "undisturbed: $expected"
echo "this run:    $found"
[ "$found" = "$expected" ] || { echo "the parameters differ" >&2; exit 1; }
