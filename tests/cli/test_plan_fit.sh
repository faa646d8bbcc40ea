#!/bin/bash
# echelon plan fit: what it prints and what programs read say the same, and wrong calls and tables get one line.
. "$ECH_SRC/tests/support/check.sh"
table=$ECH_SRC/examples/a40_compute.csv

check "published runs are fitted" eval '"$ECHELON" plan fit "$table" --predict 4,8 >"$work/text"'
says "each batch has its compute time" "^ +32 +14\.58" cat "$work/text"
says "terms that look the same are named" "these rows cannot separate fixed cost per step and link bandwidth" cat "$work/text"
says "predictions are marked" "predictions \(all predicted" cat "$work/text"
says "rows show measured, fitted and error" "measured s +fitted s +error %" cat "$work/text"
says "the view of scaling is named" "An epoch of fixed data is strong scaling" cat "$work/text"

agree() {
    "$ECHELON" plan fit "$1" --predict 2,4,8 --json >"$work/out.json" || return 1
    python3 - "$work/out.json" "$work/text" <<'END'
import json, sys
doc = json.load(open(sys.argv[1]))
text = [line.split() for line in open(sys.argv[2])]
assert len(doc["rows"]) == 6 and len(doc["predictions"]) == 9, doc
assert [f["form"] for f in doc["forms"] if f["kept"]], "no form was kept"
for row in doc["rows"]:
    assert abs(row["error"]) < 0.02 and row["measured_s"] > 0, row
for p in doc["predictions"]:
    t = p["time_s"]
    assert p["clock"] == "predicted" and t["low"] < t["value"] < t["high"], p
    assert abs(p["efficiency"]["value"] * p["devices"] - p["speedup"]["value"]) < 1e-9, p
    assert (p["measured_s"] is not None) == (p["devices"] == 2), p
    assert p["amdahl"]["time_s"] > 0 and 0 <= p["gustafson"]["fraction"]["value"] <= 1, p
    if p["devices"] > 2:
        line = [str(p["devices"]), str(p["batch"]), "%.4f" % t["value"]]
        assert any(words[:3] == line for words in text), line
END
}
check "JSON and text agree" agree "$table"
cp "$work/text" "$work/kept"
check "the runs with data loading" eval '"$ECHELON" plan fit "$ECH_SRC/examples/a40_loading.csv" --predict 4,8 >"$work/text" && agree "$ECH_SRC/examples/a40_loading.csv"'
says "other batches are interpolated" "^ +4 +64 " "$ECHELON" plan fit "$table" --predict 4 --batch 64
says "twice and four times the most is the default" "^ +8 +512 " "$ECHELON" plan fit "$table"
says "help" "Runs: a line that names the columns" "$ECHELON" plan fit --help

# wrong CODE PATTERN ARGS...: one case
wrong() {
    local code=$1 pattern=$2 got
    shift 2
    timeout 20 "$ECHELON" plan fit "$@" >"$work/out" 2>"$work/.output" </dev/null
    got=$?
    if [[ $got == "$code" && ! -s $work/out && $(wc -l <"$work/.output") == 1 ]] &&
        grep -qE -- "$pattern" "$work/.output"; then
        ok "plan fit $*"
    else
        echo "exit $got, expected $code with /$pattern/" >>"$work/.output"
        not_ok "plan fit $*"
    fi
}
# bad PATTERN LINE...: a table of these lines is refused
bad() {
    local pattern=$1
    shift
    printf '%s\n' "$@" >"$work/bad.csv"
    wrong 1 "bad\.csv.*$pattern" "$work/bad.csv"
}
head=devices,batch,samples,bytes,time
wrong 2 "TABLE.csv.* is missing"
wrong 2 "--predict 0: must be from 1 to" "$table" --predict 0
wrong 2 "--predict '2,': must be numbers" "$table" --predict 2,
wrong 2 "--predict 'four': must be numbers" "$table" --predict four
wrong 2 "--predict '-4': must be numbers" "$table" --predict=-4
wrong 2 "--predict 99999999999999999999: must be from 1 to" "$table" --predict 99999999999999999999
wrong 2 "--confidence 100: must be at most 99.9" "$table" --confidence 100
wrong 2 "--noise 0: must be at least" "$table" --noise 0
wrong 1 "nothere.csv" "$work/nothere.csv"
wrong 1 "$work" "$work"
: >"$work/empty.csv"
wrong 1 "empty\.csv is empty" "$work/empty.csv"
bad "line 1, column speed: there is no such column" "$head,speed" 1,32,50000,0,1,1
bad "line 1, column time: is missing" devices,batch,samples,bytes 1,32,50000,0
bad "line 1, column batch: occurs twice" "batch,$head"
bad "line 3, column time: slow is not a number" "$head" 1,32,50000,0,1 2,32,50000,1,slow
bad "line 2, column time: -1 must be at least" "$head" 1,32,50000,0,-1
bad "line 3: is the same as line 2" "$head" 1,32,50000,0,1 1,32,50000,0,1
bad "2 rows; a fit needs at least 3" "$head" 1,32,50000,0,1 2,32,50000,5,1
bad "column devices: is 1 in every row" "$head" 1,32,50000,0,1 1,64,50000,0,1 1,128,50000,0,1
finish
