#!/bin/bash
# A lab that is repeated: whole records stay until others are whole, whatever ends the runs that were to replace them.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/labs.sh"

# records: every file of whole runs that studies are told of
records() { find "$lab"/runs -name '*.new' -prune -o -name '*.failed' -prune -o -type f -print0 \
    | sort -z | xargs -0 sha256sum; }
check "a study is told" "$program" lab run probe --quick --out "$lab"
before=$(records)
check "repeated, all of it fails" code 1 "$program" lab run probe --quick --force --run-limit \
    0.001 --format html --out "$lab"
check "what is said is that it failed" is "first failed again failed onward skipped machine failed" runs "$lab" probe
check "its records stay, and why it failed stands beside them" \
    bash -c 'test "$1" = "$2" && ls "$3"/runs/train-*.failed/errors.txt' - "$before" "$(records)" "$lab"
says "which the next lab takes" '^probe +0 +5 +0 +0 ' "$program" lab run probe --quick --format html --out "$lab"
# The first of the runs that measure the noise is a second old or so when it is stopped.
stop_forced() {
    local pid got i
    env --default-signal=INT "$program" lab run probe --quick --force --out "$lab" >"$work/out" 2>"$work/err" &
    pid=$!
    for ((i = 0; i < 200; i++)); do
        compgen -G "$lab/runs/train-*.new/steps.jsonl" >/dev/null && break
        sleep 0.02
    done
    kill "-$1" "$pid"
    wait "$pid"
    got=$?
    [[ $got == "$2" ]] && nobody "$lab" && "$program" report "$lab" --format html
}
check "when --force is interrupted the report can still be made" stop_forced INT 130
check "when it is killed too" stop_forced KILL 137
check "and no record is gone" test "$(records | wc -l)" -ge "$(wc -l <<<"$before")"
finish
