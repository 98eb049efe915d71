#!/usr/bin/env bash
# Checks the images and the compose files, by hand: needs a Docker engine, docker-compose (or `docker compose`), curl and jq, and
# root for one step, which kills a process as a crash would. The first build takes as long as any.
#
#   deploy/try-compose.sh                                         all but GPUs
#   MONITORING=off deploy/try-compose.sh                          without Prometheus and Grafana
#   GPU=on deploy/try-compose.sh                                  also the GPU image; on a machine with one, its doctor
#   COMPOSE_FILES='-f extra.yml' BUILD=off deploy/try-compose.sh  with changes of your own, and images that are there
#   PATIENCE=5 deploy/try-compose.sh                              on a machine that is slow, or busy: waits five times as long
set -euo pipefail
cd "$(dirname "$0")/.."
export COMPOSE_PROJECT_NAME=ata-try ATA_DASHBOARD_PORT=${ATA_DASHBOARD_PORT:-17071} PROMETHEUS_PORT=${PROMETHEUS_PORT:-19090}
export GRAFANA_PORT=${GRAFANA_PORT:-13000} ATA_CHECKPOINT_EVERY=2s

if command -v docker-compose >/dev/null; then compose=(docker-compose); else compose=(docker compose); fi
read -ra extra <<<"${COMPOSE_FILES:-}"
monitoring=()
if [[ ${MONITORING:-on} == on ]]; then monitoring=(-f deploy/docker-compose.monitoring.yml); fi
dc() { "${compose[@]}" -f deploy/docker-compose.yml "${monitoring[@]}" "${extra[@]}" "$@"; }
container() { dc ps -q "$1" | head -1; }
inspect() { docker inspect --format "$2" "$(container "$1")"; }
step() { printf '\n== %s (after %s s)\n' "$*" "$SECONDS"; }
fail() {
    echo "FAILED: $*" >&2
    dc logs --tail=20 >&2 || true
    exit 1
}
wait_for() { # wait_for SECONDS WHAT COMMAND…
    local until=$((SECONDS + $1 * ${PATIENCE:-1})) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < until)) || fail "waited in vain for $what"
        sleep 0.5
    done
    echo "$what: yes"
}
folder=$(mktemp -d)
trap 'dc down --volumes >/dev/null 2>&1; rm -rf "$folder"' EXIT

# What the coordinator says on the port that is published, to whom has the secret.
ask() { curl --silent --fail --insecure -H "Authorization: Bearer $secret" "https://127.0.0.1:$ATA_DASHBOARD_PORT/$1"; }
iteration() { ask api/state | jq .totals.iterations; }
at_least() { # at_least ITERATION
    local now
    now=$(iteration) && ((now >= $1))
}
saved() { ask api/state | jq -e "(.totals.saved // 0) >= $1"; }
worker_is() { ask api/state | jq -e ".workers[] | select(.name == \"$1\") | .state | IN($2)"; }
goes_on() { # goes_on WHAT: 100 more iterations
    local from
    from=$(iteration)
    wait_for 120 "$1" at_least "$((from + 100))"
}
ended() { [[ $(docker inspect --format '{{.State.Status}} {{.State.ExitCode}}' "$(dc ps -aq coordinator)") == 'exited 0' ]]; }
# The newest run's, once it has ended.
summary() {
    rm -rf "$folder/runs"
    docker cp "$(dc ps -aq coordinator):/home/ata/runs" "$folder" >/dev/null
    jq "$@" "$(printf '%s\n' "$folder"/runs/*/summary.json | tail -1)"
}

step files
if command -v promtool >/dev/null; then
    promtool check config --syntax-only deploy/monitoring/prometheus.yml
    promtool check rules deploy/monitoring/alerts.yml
    promtool test rules deploy/monitoring/alerts.test.yml
fi
"${compose[@]}" -f deploy/docker-compose.yml -f deploy/docker-compose.gpu.yml config -q
dc config -q

services=(coordinator worker worker-half worker-quarter worker-eighth)
if [[ ${MONITORING:-on} == on ]]; then services+=(prometheus-data prometheus); fi
# Grafana's image is the largest; with GRAFANA=off the dashboard's queries are still checked.
if [[ ${MONITORING:-on} == on && ${GRAFANA:-on} == on ]]; then services+=(grafana); fi

step a cluster of unequal machines
if [[ ${BUILD:-on} == on ]]; then dc build; fi
# With these every metric has a value.
printf '[workers.%s]\nprice_per_hour = 1.0\nwatts = 100\n' worker worker-half >"$folder/ata.toml"
cat >"$folder/extra.yml" <<EOF
services:
  coordinator:
    environment: {ATA_CONFIG: /home/ata/ata.toml, ATA_EVAL_EVERY: 50, ATA_CLIP_NORM: 100}
    volumes: ["$folder/ata.toml:/home/ata/ata.toml:ro"]
EOF
chmod 755 "$folder"
extra+=(-f "$folder/extra.yml")
ATA_ITERATIONS=100000 dc up -d --no-build "${services[@]}"
healthy() { [[ $(inspect coordinator '{{.State.Health.Status}}') == healthy ]]; }
wait_for 60 "the coordinator is healthy" healthy
[[ $(dc exec -T worker id -u | tr -d '\r') == 10001 ]] || fail "a worker runs as another user than ata"
[[ $(dc exec -T worker find credentials -type f | tr -d '\r') == credentials/for-workers/join-token ]] \
    || fail "a worker sees other secrets than the join token"
[[ $(curl --silent --insecure -o /dev/null -w '%{http_code}' "https://127.0.0.1:$ATA_DASHBOARD_PORT/metrics") == 401 ]] \
    || fail "metrics without the secret"
secret=$(dc exec -T coordinator ata token show --status | tr -d '\r')
wait_for 120 "it trains" at_least 100
wait_for 60 "it is saved" saved 100

step status
dc exec -T coordinator ata status
# From outside: the token has the name inside.
dc exec -T coordinator cat credentials/status-token | sed "s/coordinator:7071/127.0.0.1:$ATA_DASHBOARD_PORT/" >"$folder/status-token"
docker run --rm --network host -v "$folder/status-token:/status-token:ro" ata status --token-file /status-token | head -1
if command -v promtool >/dev/null; then
    ask metrics | promtool check metrics
    echo "promtool approves of the metrics: yes"
fi

if [[ ${MONITORING:-on} == on ]]; then
    step monitoring
    prometheus=http://127.0.0.1:$PROMETHEUS_PORT/api/v1
    targets() { curl --silent "$prometheus/targets" | jq -e '.data.activeTargets[0].health == "up"'; }
    wait_for 60 "Prometheus reads the coordinator" targets
    sleep 30 # so that rates have a few points
    queries=0
    while read -r query; do
        # shellcheck disable=SC2016 # Grafana's variables, not the shell's
        filled=${query//'$instance'/.*}
        # shellcheck disable=SC2016
        filled=${filled//'$__rate_interval'/20s}
        # shellcheck disable=SC2016
        filled=${filled//'$__range'/5m}
        answer=$(curl --silent --data-urlencode "query=$filled" "$prometheus/query")
        [[ $(jq -r .status <<<"$answer") == success ]] || fail "$query: $(jq -r .error <<<"$answer")"
        [[ $(jq '.data.result | length' <<<"$answer") -gt 0 ]] || fail "$query: no data"
        queries=$((queries + 1))
    done < <(jq -r '.. | objects | select(has("expr")) | .expr' deploy/monitoring/grafana/dashboards/ata.json | sort -u)
    echo "queries of the dashboard that have data: $queries, all"
    curl --silent "$prometheus/rules" | jq -e '[.data.groups[].rules[] | .health == "ok" and .state == "inactive"] | all' >/dev/null \
        || fail "a rule fails, or fires"
    if [[ ${GRAFANA:-on} == on ]]; then
        wait_for 60 "Grafana has the dashboard" curl --silent --fail "http://127.0.0.1:$GRAFANA_PORT/api/dashboards/uid/ata"
    fi
fi

step a worker that is stopped, and started again
half=$(container worker-half)
docker stop "$half" >/dev/null
wait_for 30 "the coordinator sees it" worker_is worker-half '"away"'
goes_on "the run goes on without it"
docker logs "$half" 2>&1 | grep 'this worker has left' >/dev/null || fail "it was ended before it had left"
# 0 would keep it away when Docker starts again, as after a reboot.
[[ $(docker inspect --format '{{.State.Status}} {{.State.ExitCode}}' "$half") == 'exited 130' ]] || fail "it did not stay away"
dc start worker-half
wait_for 30 "it is back" worker_is worker-half '"computing", "idle"'

step a worker that hangs
docker pause "$(container worker)" >/dev/null
wait_for 30 "the coordinator sees it" worker_is worker '"away"'
goes_on "the run goes on without it"
docker unpause "$(container worker)" >/dev/null
wait_for 60 "it is back" worker_is worker '"computing", "idle"'

step a worker that is killed
docker kill "$(container worker-quarter)" >/dev/null
goes_on "the run goes on without it"
dc start worker-quarter

step a coordinator that crashes
before=$(ask api/state | jq .totals.saved)
# `docker kill` would count as a stop on purpose, and the container stay down.
kill -9 "$(inspect coordinator '{{.State.Pid}}')" || fail "this step needs root"
crashed() { [[ $(inspect coordinator '{{.RestartCount}}') -gt 0 ]]; }
wait_for 30 "its container was started again" crashed
wait_for 60 "the run goes on after what was saved" at_least "$((before + 1))"
dc logs coordinator | grep -o 'resuming run.*' | tail -1
wait_for 60 "all workers are back" bash -c "[[ \$(docker logs $(container coordinator) 2>&1 | sed '1,/resuming run/d' | grep -c 'worker ready') -ge 4 ]]"

step a run that is stopped, shortened and resumed to its end
last=$(($(iteration) + 500))
ATA_ITERATIONS=$last dc up -d --no-build "${services[@]}"
wait_for 300 "the run ends" ended
[[ $(summary -r '"\(.state) \(.iterations)"') == "finished $last" ]] || fail "expected $last iterations"
summary -c '{iterations, runtime_s, worker_names, allocation_mean, task_mean_s}'
dc down --volumes >/dev/null 2>&1

step what does not help is not done again
helpless() { docker run --rm --entrypoint restartable.sh ata worker "$@" 2>&1 | tail -1; }
[[ $(helpless --join wrong) == *'ended with 64;'* ]] || fail "a wrong token is tried again"

step scaled
ATA_ITERATIONS=300 ATA_MIN_WORKERS=11 dc up -d --no-build --scale worker=8 coordinator worker worker-half worker-quarter worker-eighth
wait_for 300 "the run ends" ended
summary -e '.workers == 11 and .iterations == 300' >/dev/null || fail "expected 11 workers and 300 iterations"
summary -c '{workers, iterations, runtime_s, worker_names, allocation_mean}'

if [[ ${GPU:-off} == on ]]; then
    step GPU image
    gpu() { "${compose[@]}" -f deploy/docker-compose.yml -f deploy/docker-compose.gpu.yml "$@"; }
    if [[ ${BUILD:-on} == on ]]; then gpu build worker-gpu; fi
    docker run --rm ata:gpu --version
    if docker run --rm --gpus all ata:gpu --version >/dev/null 2>&1; then
        gpu run --rm --no-deps worker-gpu doctor --device wgpu
    else
        echo "no GPU, or no NVIDIA container toolkit: the image was built, and not tried"
    fi
fi
docker image ls --format '{{.Repository}}:{{.Tag}} {{.Size}}' ata
printf '\nall passed in %s s\n' "$SECONDS"
