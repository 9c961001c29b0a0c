#!/bin/sh
# Says whether a scheduler got worse than its stored baseline.
#
#   gate.sh [SCHEDULER]            compares; exits with 3 if a figure is worse than its margin allows, with 0 if none is
#   gate.sh --update [SCHEDULER]   makes this run the baseline, which is committed: after a change that is meant, after a
#                                  change of gate.toml, and with another version of warmcore
#
# SCHEDULER is what `warmcore compare -s` takes: a sched_ext program's path after `scx:`, with its own options
# ('scx:build/scx_mine --slice 5'), or a scheduler of warmcore's with tunables. The default is eevdf.
#
# Environment: WARMCORE, the program (warmcore in PATH); GATE_DIR, the directory of gate.toml and baseline.json (this
# script's); GATE_OUT, where table.md and study.json of this run go (./gate-out); GATE_ONLY, a part of figures' names,
# with commas between several: only these are run.
set -eu

update=
case "${1-}" in
-h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
--update)
    update=yes
    shift
    ;;
esac
if [ $# -gt 1 ]; then
    echo "gate.sh: one scheduler, in quotes if it has options of its own; gate.sh --help says more" >&2
    exit 2
fi
warmcore=${WARMCORE:-warmcore}
directory=${GATE_DIR:-$(dirname "$0")}
out=${GATE_OUT:-gate-out}
SCHEDULER=${1:-eevdf}
export SCHEDULER

# The study with this scheduler in every cell, in a directory of its own: beside the baseline to be compared with it,
# alone to become it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk '/^schedulers = / { printf "schedulers = [\047\047\047%s\047\047\047]\n", ENVIRON["SCHEDULER"]; next } { print }' \
    "$directory/gate.toml" >"$work/gate.toml"
if [ -z "$update" ]; then
    if [ ! -f "$directory/baseline.json" ]; then
        echo "gate.sh: there is no $directory/baseline.json; gate.sh --update makes it" >&2
        exit 2
    fi
    cp "$directory/baseline.json" "$work/baseline.json"
fi

mkdir -p "$out"
code=0
"$warmcore" study run "$work/gate.toml" --out "$work/run" --page "$out/table.md" ${GATE_ONLY:+--only "$GATE_ONLY"} \
    >"$out/table.txt" 2>"$out/messages.txt" || code=$?
if [ ! -f "$work/run/study.json" ]; then
    cat "$out/messages.txt" >&2
    exit "$code"
fi
cp "$work/run/study.json" "$out/study.json"
if [ -n "$update" ]; then
    if grep -q '"no_value"' "$out/study.json"; then
        cat "$out/table.txt"
        echo "gate.sh: figures without a value make no baseline; $out/study.json has the reasons" >&2
        exit 3
    fi
    cp "$out/study.json" "$directory/baseline.json"
    echo "$directory/baseline.json is of $SCHEDULER now: commit it"
    exit 0
fi
cat "$out/table.md"
cat "$out/messages.txt" >&2
exit "$code"
