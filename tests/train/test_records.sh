#!/bin/bash
# Records stay small, whatever the number of steps, and a full disk ends them and not the training run.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/ranks.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

tiny=(train --dim 8 --depth 1 --batch-size 2 --threads 1 --tune off)
# holds WHAT EXPRESSION: over r (run.json), s (the lines of steps.jsonl) and t (steps of the trace) of a run directory.
holds() {
    check "$1" python3 -c '
import json, os, sys
d = sys.argv[1]
r = json.load(open(d + "/run.json"))
s = [json.loads(l) for l in open(d + "/steps.jsonl")] if os.path.isfile(d + "/steps.jsonl") else []
t = [e for e in json.load(open(d + "/trace.json")) if e.get("cat") == "step"] if os.path.isfile(d + "/trace.json") else []
sys.exit(0 if eval(sys.argv[2]) else f"{len(s)} lines, {len(t)} traced steps: " + str(r.get("incomplete_records")))' "$2" "$3"
}

# ---- many steps ----

"$ECHELON" "${tiny[@]}" --steps 100000000 --run-dir many >/dev/null 2>&1 &
pid=$!
check "as many steps as are allowed are begun" until_steps many/steps.jsonl 1000
kill $pid
wait $pid 2>/dev/null
says "more are refused" '100000001.*(100000000|1e8|1e\+08)' "$ECHELON" "${tiny[@]}" --steps 100000001

"$ECHELON" "${tiny[@]}" --steps 1100 --run-dir traced --trace >/dev/null 2>&1
holds "a trace is of the first 1000 steps" traced 'len(s) == 1100 and [e["name"] for e in t] == [f"step {i}" for i in range(1, 1001)]'

"$ECHELON" "${tiny[@]}" --steps 1100 --devices 2 --clock virtual --run-dir pair >/dev/null 2>&1
holds "details of the exchange are of the first 1000 steps and of every tenth" pair \
    '[l["step"] for l in s if "buckets" in l] == [*range(1, 1001), *range(1010, 1101, 10)] and len(s) == 1100'

# ---- full ----

# Bash counts in KB here, and a shell that ignores SIGXFSZ hands that on.
(trap '' XFSZ; ulimit -f 64; exec "$ECHELON" "${tiny[@]}" --steps 2000 --run-dir full) >out 2>err
code=$?
same_code() { [[ $code == "$1" ]]; }
check "a full disk does not end a run" same_code 0
check "which warns once, and names the file and the reason" test "$(grep -c 'full/steps.jsonl cannot be written: File too large' err)" == 1
says "its results are given" '^parameters   sha256' cat out
says "with the file that is incomplete" '^records +steps.jsonl is incomplete: File too large after step [0-9]+' cat out
holds "and run.json says so" full \
    'r["state"] == "done" and r["incomplete_records"] == [{"file": "steps.jsonl", "reason": f"File too large after step {len(s)}"}]'
holds "the lines that are there are whole" full '[l["step"] for l in s] == [*range(1, len(s) + 1)] and 100 < len(s) < 2000'

(trap '' XFSZ; ulimit -f 64; exec "$ECHELON" "${tiny[@]}" --steps 200 --run-dir torn --trace) >out 2>err
code=$?
check "nor does a trace that does not fit" same_code 0
says "it is said of the trace too" 'the trace is incomplete: torn/trace.json cannot be written: File too large' cat err
check "in run.json too" grep -q '"file": "trace.json"' torn/run.json

# A disk with nothing left even for run.json: the results are printed, and the exit code tells.
mkdir disk
if mount -t tmpfs -o size=64k none disk 2>/dev/null; then
    "$ECHELON" "${tiny[@]}" --steps 2000 --run-dir disk/run >out 2>err
    code=$?
    umount disk
    check "where run.json cannot be written either, the run has failed" same_code 1
    says "with the reason" 'disk/run/run.json.*No space left on device' cat err
    says "and its results are given all the same" '^parameters   sha256' cat out
fi
finish
