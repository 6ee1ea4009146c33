#!/usr/bin/env bash
# Move clusters of 0.8 to 0.11 to one of 4.x, and keep their clients. The files beside it say what is
# moved; docs/guides/moving.md says when to run which step, and what people do in between.
#
#   ./move.sh look       what is ready, and what isn't (exit code 1)
#   ./move.sh copy       run the bridges, until Ctrl-C; services do so in production
#   ./move.sh gateways   run the gateways, likewise
#   ./move.sh rehearse   show where each group would go on, if the gateways can be reached
#   ./move.sh cut-over   move the groups, while no client runs; may be repeated
#   ./move.sh back       move them back, while no client runs
set -euo pipefail
cd "$(dirname "$0")"
source ./move.env
at=(-b "$BOOTSTRAP")
if [ -n "$SCALA_GROUPS" ]; then at+=(--zookeeper "$ZOOKEEPER"); fi

run_each() { # COMMAND FILE...: run all until one of them ends, or this script is ended
  local command=$1 file
  trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
  trap 'exit 0' INT TERM
  for file in "${@:2}"; do
    aiokafka08 "$command" run "$file" &
  done
  wait -n
}

# Find which groups have offsets in the new ZooKeeper: those that go on there. This also shows, before
# anything is changed, that the gateways and ZooKeeper can be reached.
find_moved() {
  moved=
  if [ -z "$SCALA_GROUPS$JOBS" ]; then return; fi
  if ! moved=$(aiokafka08 group list "${at[@]}" --format tsv); then
    echo "error: ${at[*]} (move.env): not reached. This step has changed nothing" >&2
    exit 1
  fi
  moved=$(awk -F'\t' '$2 == "zookeeper" { print $1 }' <<<"$moved")
}

is_moved() { # GROUP
  grep -Fqx -- "$1" <<<"$moved"
}

case ${1:-} in
  look)
    code=0
    for file in $BRIDGES; do
      echo "== bridge plan $file"
      aiokafka08 bridge plan "$file" 2>&1 || code=1
    done
    for file in $GATEWAYS; do
      echo "== gateway check $file"
      aiokafka08 gateway check "$file" 2>&1 || code=1
    done
    exit "$code"
    ;;
  copy)
    run_each bridge $BRIDGES
    ;;
  gateways)
    run_each gateway $GATEWAYS
    ;;
  rehearse)
    find_moved
    for file in $BRIDGES; do
      aiokafka08 bridge groups "$file"
    done
    for job in $JOBS; do
      aiokafka08 bridge groups "$job.toml"
    done
    ;;
  cut-over)
    find_moved
    for file in $BRIDGES; do
      aiokafka08 bridge cutover "$file" --execute
    done
    for group in $SCALA_GROUPS; do
      if is_moved "$group"; then continue; fi
      aiokafka08 group export "$group" --store kafka "${at[@]}" |
        aiokafka08 group import --store zookeeper "${at[@]}" --execute
    done
    for job in $JOBS; do
      if [ -e "$job.new.csv" ]; then continue; fi
      aiokafka08 bridge groups "$job.toml" --execute
      aiokafka08 group export "$job" --store kafka --as csv "${at[@]}" >"$job.csv.part"
      mv "$job.csv.part" "$job.new.csv"
    done
    ;;
  back)
    find_moved
    for group in $SCALA_GROUPS; do
      if ! is_moved "$group"; then continue; fi
      aiokafka08 group export "$group" --store zookeeper "${at[@]}" |
        aiokafka08 group import --store kafka "${at[@]}" --execute
    done
    for file in $BRIDGES; do
      aiokafka08 bridge cutover "$file" --rollback
    done
    for job in $JOBS; do # from what it has read, in $job.new.csv, to $job.old.csv
      if [ ! -e "$job.new.csv" ]; then continue; fi
      aiokafka08 group import "$job.new.csv" --store kafka "${at[@]}" --execute
      aiokafka08 bridge cutover "$job.toml" --rollback --dry-run --format tsv |
        awk -F'\t' -v OFS=, 'NR > 1 { print $1, $2, $3, $6 }' >"$job.csv.part"
      mv "$job.csv.part" "$job.old.csv"
      rm "$job.new.csv"
    done
    for group in $SCALA_GROUPS; do
      if ! is_moved "$group"; then continue; fi
      aiokafka08 group delete "$group" --store zookeeper "${at[@]}" --yes
    done
    ;;
  *)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
