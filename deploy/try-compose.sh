#!/usr/bin/env bash
# Checks the images and the compose files, by hand: needs a Docker engine, docker-compose (or `docker compose`), curl and jq, and
# root for one step, which kills a process as a crash would. The first build takes as long as any.
#
#   deploy/try-compose.sh                                         all but GPUs
#   MONITORING=off deploy/try-compose.sh                          without Prometheus and Grafana
#   GPU=on deploy/try-compose.sh                                  also the GPU image; on a machine with one, its doctor
#   COMPOSE_FILES='-f extra.yml' BUILD=off deploy/try-compose.sh  with changes of your own, and images that are there
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
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < until)) || fail "waited in vain for $what"
        sleep 0.5
    done
    echo "$what: yes"
}
trap 'dc down --volumes >/dev/null 2>&1' EXIT

# What the coordinator's own page says: JSON, with the secret that may read.
state() {
    secret=$(dc exec -T coordinator ata token show --status | tr -d '\r')
    curl --silent --fail --insecure -H "Authorization: Bearer $secret" "https://127.0.0.1:$ATA_DASHBOARD_PORT/api/state"
}
at_least() { # at_least ITERATION
    local now
    now=$(state | jq '[.. | objects | select(has("totals")) | .totals.iterations] | max')
    [[ $now =~ ^[0-9]+$ ]] && ((now >= $1))
}
saved() { [[ $(state | jq '[.. | objects | select(has("totals")) | .totals.saved // 0] | max') -gt $1 ]]; }

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
ATA_ITERATIONS=100000 dc up -d --no-build "${services[@]}"
wait_for 60 "the coordinator is healthy" bash -c "[[ \$(docker inspect --format '{{.State.Health.Status}}' $(container coordinator)) == healthy ]]"
[[ $(dc exec -T worker id -u | tr -d '\r') == 10001 ]] || fail "a worker runs as another user than ata"
[[ $(curl --silent --insecure -o /dev/null -w '%{http_code}' "https://127.0.0.1:$ATA_DASHBOARD_PORT/metrics") == 401 ]] \
    || fail "metrics without the secret"
wait_for 120 "it trains" at_least 100
wait_for 60 "it is saved" saved 100

if [[ ${MONITORING:-on} == on ]]; then
    step monitoring
    prometheus=http://127.0.0.1:$PROMETHEUS_PORT/api/v1
    targets() { curl --silent "$prometheus/targets" | jq -e '.data.activeTargets[0].health == "up"'; }
    wait_for 60 "Prometheus reads the coordinator" targets
    sleep 30 # so that rates have a few points
    # Price and energy need a configuration, and the test loss an evaluation.
    # shellcheck disable=SC2016 # Grafana's variables, not the shell's
    jq -r '.. | objects | select(has("expr")) | .expr' deploy/monitoring/grafana/dashboards/ata.json | sort -u | grep -vE 'price|energy|test_' \
        | while read -r query; do
            filled=${query//'$instance'/.*}
            filled=${filled//'$__rate_interval'/20s}
            filled=${filled//'$__range'/5m}
            answer=$(curl --silent --data-urlencode "query=$filled" "$prometheus/query")
            [[ $(jq -r .status <<<"$answer") == success ]] || fail "$query: $(jq -r .error <<<"$answer")"
            [[ $(jq '.data.result | length' <<<"$answer") -gt 0 ]] || fail "$query: no data"
        done
    echo "the dashboard's queries have data: yes"
    curl --silent "$prometheus/rules" | jq -e '[.data.groups[].rules[] | .health] | all(. == "ok")' >/dev/null || fail "a rule fails"
    if [[ ${GRAFANA:-on} == on ]]; then
        wait_for 60 "Grafana has the dashboard" curl --silent --fail "http://127.0.0.1:$GRAFANA_PORT/api/dashboards/uid/ata"
    fi
fi

step a coordinator that crashes
before=$(state | jq '[.. | objects | select(has("totals")) | .totals.saved // 0] | max')
# `docker kill` would count as a stop on purpose, and the container stay down.
kill -9 "$(inspect coordinator '{{.State.Pid}}')" || fail "this step needs root"
crashed() { [[ $(inspect coordinator '{{.RestartCount}}') -gt 0 ]]; }
wait_for 30 "its container was started again" crashed
wait_for 60 "the run goes on after what was saved" at_least "$((before + 1))"
dc logs coordinator | grep -c "worker ready" | xargs echo "workers ready, before and after:"

step a worker that is killed
docker kill "$(container worker)" >/dev/null
wait_for 60 "the run goes on without it" at_least "$((before + 200))"
dc down --volumes >/dev/null 2>&1

step scaled
ATA_ITERATIONS=300 ATA_MIN_WORKERS=11 dc up -d --no-build --scale worker=8 coordinator worker worker-half worker-quarter worker-eighth
coordinator=$(dc ps -aq coordinator)
wait_for 300 "the run ends" bash -c "[[ \$(docker inspect --format '{{.State.Status}} {{.State.ExitCode}}' $coordinator) == 'exited 0' ]]"
folder=$(mktemp -d)
docker cp "$coordinator:/home/ata/runs" "$folder" >/dev/null
jq -e '.workers == 11 and .iterations == 300' "$folder"/runs/*/summary.json >/dev/null || fail "expected 11 workers and 300 iterations"
jq -c '{workers, iterations, runtime_s, allocation_mean}' "$folder"/runs/*/summary.json
rm -r "$folder"

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
