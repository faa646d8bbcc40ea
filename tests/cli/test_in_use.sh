#!/bin/bash
# A directory that one run writes to is refused to a second one, at once and with one line; a killed run holds nothing.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

tiny=(--dim 8 --depth 1 --batch-size 2 --threads 1 --tune off)
# first FILE ARGS...: starts a slow run in the background, waits for the file; $pid
first() {
    local file=$1
    shift
    "$ECHELON" "$@" >first.out 2>first.err &
    pid=$!
    for _ in {1..1000}; do
        [[ -e $file ]] && return
        kill -0 $pid 2>/dev/null || return
        sleep 0.01
    done
}
# second WHAT PATTERN ARGS...: exits with 1 and one line that matches
second() {
    local what=$1 pattern=$2 code
    shift 2
    "$ECHELON" "$@" >/dev/null 2>.output
    code=$?
    if [[ $code == 1 && $(wc -l <.output) == 1 ]] && grep -qE -- "$pattern" .output; then
        ok "$what"
    else
        echo "exit code $code" >>.output
        not_ok "$what"
    fi
}
stop() {
    kill "${1:--TERM}" $pid
    { wait $pid; } 2>/dev/null
}
# parses DIR: every line of its steps.jsonl is JSON, and the steps count up
parses() {
    python3 -c 'import json, sys
steps = [json.loads(line)["step"] for line in open(sys.argv[1] + "/steps.jsonl")]
assert steps == list(range(1, len(steps) + 1)), steps' "$1"
}

# ---- run directories ----

first r/steps.jsonl train "${tiny[@]}" --steps 200 --delay-ms 20 --run-dir r
second "a second run in a run directory" "^echelon train: run directory r is in use by process $pid\$" \
    train "${tiny[@]}" --steps 1 --run-dir r
second "by another path" "run directory ./r//. is in use by process $pid\$" \
    train "${tiny[@]}" --steps 1 --run-dir ./r//.
second "with several ranks" "run directory r is in use by process $pid\$" \
    train "${tiny[@]}" --steps 1 --run-dir r --devices 2
check "another directory is free" "$ECHELON" train "${tiny[@]}" --steps 1 --run-dir r/inside
wait $pid
check "the first ends well" test $? = 0
check "and its records are whole" parses r
check "with all steps" test "$(wc -l <r/steps.jsonl)" = 200
check "no lock is left" test ! -e r/.run.lock

first k/steps.jsonl train "${tiny[@]}" --steps 1000 --delay-ms 20 --run-dir k --save k --save-every 1
second "one directory for both kinds, and in use" "checkpoint directory k is in use by process $pid\$" \
    train "${tiny[@]}" --steps 1 --run-dir k --save k
stop -9
check "what a killed run held is free" "$ECHELON" train "${tiny[@]}" --steps 1000 --resume k --run-dir k --save k
check "and its records are whole" parses k
check "no lock is left" test -z "$(find k -name '.*.lock')"

second "a run that cannot begin" "no file|cannot be opened" train "${tiny[@]}" --run-dir new/a \
    --save new/b --init nowhere
check "leaves no directories behind" test ! -e new

# ---- labs and quantization ----

first lab/.lab.lock lab run warmup --quick --out lab
second "a second lab in a directory" "^echelon lab run: directory of the lab lab is in use by process $pid\$" \
    lab run warmup --quick --out lab
stop
check "no lock is left" test ! -e lab/.lab.lock

# quantize takes too little time to be caught at work
mkdir q
(flock 9 && echo "4711 $(hostname)" >&9 && exec sleep 60) 9>q/.quantize.lock &
pid=$!
until [[ -s q/.quantize.lock ]]; do sleep 0.01; done
second "a second quantization" "^echelon quantize: output directory q is in use by process 4711\$" \
    quantize --init nowhere --out q
echo "4711 elsewhere" >q/.quantize.lock
second "on another machine" "is in use by process 4711 on elsewhere\$" quantize --init nowhere --out q
stop
finish
