#!/bin/bash
# The studies of int8 at tiny sizes: every answer is complete, figures are those of the ladder, and
# other records are told in other sentences.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/studies.sh"
export ECHELON_TUNING=$work/tuning.json ECHELON_COSTS=$work/costs.json
unset ECH_CIFAR
export https_proxy=http://127.0.0.1:1 npm_config_fetch_retries=0 # no image set: these are synthetic
cd "$work" || exit 1

studies=(weight-histograms quant-weights activation-histograms quant-activations quant-bias)
sizes=(images=1500 epochs=2 tested=200 samples=50)
run() { "$ECHELON" lab run "$@" --quick --out out "${sizes[@]/#/--set=}"; }
check "tiny studies" run "${studies[@]}"
for id in "${studies[@]}"; do
    holds "$id has all of its runs" "$id" \
        'r and all(x["status"] in ("done", "reused") or "out of memory" in x["reason"] for x in r.values())'
    holds "and complete answers" "$id" 'd["answers"] and d["tables"] and d["plots"] and "No result" not in text'
    holds "of fifteen lines at most" "$id" 'all(len(a["text"]) <= 15 * 110 for a in d["answers"])'
done

check "every figure is what its source gives, and answers have no other digits" python3 \
    "$ECH_SRC/tests/lab/recompute.py" out
holds "accuracies are those of the ladder" quant-bias \
    'all(f["r%dacc" % k] == record("best")["ladder"][k]["accuracy"]["share"] for k in (1, 2, 3))'
holds "differences too" quant-bias \
    'abs(f["r5diff"] - 100 * (record("best")["ladder"][5]["accuracy"]["share"] - record("best")["ladder"][0]["accuracy"]["share"])) < 1e-9'
holds "behind ReLUs the negative side is empty" activation-histograms \
    '"nothing lies below zero" in text and f["after"] == 4'
holds "there is a panel for each layer" weight-histograms 'len(d["plots"][0]["panels"]) == 5'

survive "${studies[@]}" "${sizes[@]}"

# ---- other records, other sentences ----

# change RECORD EXPRESSION: of the record d
change() {
    python3 - "$1" "$2" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(d, open(sys.argv[1], "w"))
PY
}
record_of() { python3 -c 'import json, sys
print([x["record"] for x in json.load(open("out/studies/%s.json" % sys.argv[1]))["runs"] if x["id"] == sys.argv[2]][0])' \
    "$1" "$2"; }

tensor=out/$(record_of weight-histograms tensor)/result.json
change "$tensor" 'd["ladder"][1].update(lost=60, gained=2)'
check "it is told again" run weight-histograms
holds "one scale is not enough where it loses" weight-histograms \
    '"is not enough for this network" in text and abs(f["tensor_diff"] + 29) < 1e-9'
change "$tensor" 'd["ladder"][1].update(lost=3, gained=2)'
check "and again" run weight-histograms
holds "and enough where it does not" weight-histograms \
    '"is enough for the weights" in text and "no difference that can be claimed" in text'
best=out/$(record_of quant-bias best)/result.json
change "$best" 'd["timings"]["int8"] = [2 * x for x in d["timings"]["f32"]]'
check "slower int8" run quant-bias
holds "is called slower" quant-bias '"int8 is slower here" in text and abs(f["faster"] - 0.5) < 1e-9'
finish
