#!/bin/bash
# A lab that is ended: runs by their limit, the whole by signals, and nothing of it is left.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/labs.sh"

"$program" lab run endless --quick --run-limit 1 --format html --out "$lab" >"$work/out" 2>"$work/err"
check "a study of which no run succeeded is a failure" test $? = 1
says "and named" 'lab run: study endless has no result: all of its 1 runs failed' cat "$work/err"
says "a run that takes too long is stopped, and its row says so" \
    '"reason": "stopped after 1\.[0-9] s, its limit"' cat "$lab/studies/endless.json"
check "nobody of it is left" nobody "$lab"

# interrupt SIGNAL CODE: a lab that is stopped in the middle of its run
interrupt() {
    local pid got i
    rm -f "$lab"/runs/train-*/steps.jsonl
    # A shell lets what it starts in the background ignore SIGINT.
    env --default-signal=INT "$program" lab run endless --quick --run-limit 20 --out "$lab" >"$work/out" 2>"$work/err" &
    pid=$!
    for ((i = 0; i < 200; i++)); do
        grep -q '"step":' "$lab"/runs/train-*/steps.jsonl 2>/dev/null &&
            [[ $(pgrep -c -f -- "$lab/runs/train") -ge 3 ]] && break
        sleep 0.05
    done
    [[ $(pgrep -c -f -- "$lab/runs/train") -ge 3 ]] || { echo "it never ran"; cat "$work/err"; return 1; }
    kill "-$1" "$pid"
    wait "$pid"
    got=$?
    cat "$work/err"
    [[ $got == "$2" ]] && nobody "$lab"
}
check "SIGTERM stops the run and its ranks" interrupt TERM 143
says "and what is finished is told" 'stopped by signal 15; 0 of 1 studies are told' cat "$work/err"
check "SIGINT too" interrupt INT 130
check "when the lab is killed nothing survives it" interrupt KILL 137

# A study that asks for runs for ever hears of no signal; the lab ends all the same, with the same code.
end_stuck() {
    local pid i
    "$program" lab run stuck --quick --out "$lab" >"$work/out" 2>"$work/err" &
    pid=$!
    for ((i = 0; i < 400; i++)); do
        grep -q '^stuck$' "$work/err" && break
        sleep 0.05
    done
    kill -TERM "$pid"
    for ((i = 0; i < 400; i++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL "$pid" 2>/dev/null && echo "it had to be killed"
    wait "$pid"
    [[ $? == 143 ]] && grep -q "it did not stop by itself, and is ended" "$work/err"
}
check "SIGTERM ends a lab while it asks for runs" end_stuck
finish
