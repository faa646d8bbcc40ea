#!/bin/bash
# The studies of epochs and of int8 at tiny sizes: every run works, every answer is complete, figures that do not depend on the
# machine are what they must be, and other records are told in other sentences.
. "$ECH_SRC/tests/support/check.sh"
[[ -x $ECHELON ]] || skip "no program"
export ECHELON_TUNING=$work/tuning.json ECHELON_COSTS=$work/costs.json
unset ECH_CIFAR
export https_proxy=http://127.0.0.1:1 # no image set: these are synthetic
cd "$work" || exit 1

# holds WHAT STUDY EXPRESSION: of the study d, its runs r by id, its answers' figures f by name, its answers' text, and the
# records of its runs by id
holds() {
    check "$1" python3 -c '
import json, os, sys
d = json.load(open("out/studies/%s.json" % sys.argv[1]))
r = {x["id"]: x for x in d["runs"]}
f = {x["name"]: x["value"] for a in d["answers"] for x in a["figures"]}
text = " ".join(a["text"] for a in d["answers"])
def record(id):
    for name in "run.json", "result.json":
        path = os.path.join("out", r[id]["record"], name)
        if os.path.exists(path):
            return json.load(open(path))
if not eval(sys.argv[2]):
    sys.exit("not so: %s\n%s\n%s" % (sys.argv[2], f, text))' "$2" "$3"
}

studies=(epoch-batch epoch-scaling comm-split bandwidth large-batch buffers)
ladders=(weight-histograms quant-weights activation-histograms quant-activations quant-bias)
sizes=(--set images=128 --set batch=2 --set memory_mb=30 --set few=1 --set small=8 --set large=64 --set tested=200 --set samples=50
    --set large-batch.epochs=2 --set epochs=1)
run() { "$ECHELON" lab run "$@" --quick --out out "${sizes[@]}"; }

check "tiny studies" run "${studies[@]}" "${ladders[@]}"
for id in "${studies[@]}" "${ladders[@]}"; do
    holds "$id has all of its runs" "$id" 'r and all(x["status"] in ("done", "reused") or "out of memory" in x["reason"] for x in r.values())'
    holds "and complete answers" "$id" 'd["answers"] and d["tables"] and d["plots"] and "Not known" not in text'
    holds "of fifteen lines at most" "$id" 'all(len(a["text"]) <= 15 * 110 for a in d["answers"])'
done

holds "a batch that does not fit is known before" epoch-batch 'r["b512n1"]["status"] == "skipped" and "out of memory: a batch of 512 needs" in r["b512n1"]["reason"]'
holds "and the largest one that fits" epoch-batch 'f["largest"] == record("fit")["largest_batch"] and f["room"] == 30e6'
holds "memory is what was planned" epoch-batch 'abs(f["off"]) < 0.05'
holds "three studies share the runs of epochs" bandwidth 'all(x["record"] == {y["id"]: y for y in json.load(open("out/studies/epoch-scaling.json"))["runs"]}[k]["record"] for k, x in r.items() if k.startswith("b"))'
holds "an epoch has the same images on any number of devices" epoch-scaling 'f["steps_b2n1"] == 64 and f["steps_b2n4"] == 16 and f["grown"] == 4 * 128'
holds "every all-reduce is counted" bandwidth 'f["sum_b2n2"] == 32 * f["m_b2n2"] and abs(f["use_b2n2"] / f["slip_b2n2"] - 32) < 1e-6'
holds "also of what was published" bandwidth 'abs(f["published_slip"] - f["published_low"]) < 0.001 and f["published_times"] > 1'
holds "synthetic images are called so" buffers '"synthetic" in text'
holds "buffers are sent, or statistics" buffers 'f["buf_cast_batch"] > 0 and f["stat_sync_batch"] > 0'
holds "the broadcast changes no parameter" buffers '"the same bits with and without" in text'
holds "large batches make fewer steps" large-batch 'f["steps_small"] == 8 * f["steps_large"] and abs(f["lr_scaled"] / f["lr_large"] - 8) < 1e-9'

holds "accuracies are those of the ladder" quant-bias 'all(f["r%dacc" % k] == record("best")["ladder"][k]["accuracy"]["share"] for k in (1, 2, 3))'
holds "differences too" quant-bias 'abs(f["r5diff"] - 100 * (record("best")["ladder"][5]["accuracy"]["share"] - record("best")["ladder"][0]["accuracy"]["share"])) < 1e-9'
holds "behind ReLUs the negative side is empty" activation-histograms '"nothing lies below zero" in text and f["after"] == f["empty"] == 4'
holds "there is a panel for each layer" weight-histograms 'len(d["plots"][0]["panels"]) == 5'

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
print([x["record"] for x in json.load(open("out/studies/%s.json" % sys.argv[1]))["runs"] if x["id"] == sys.argv[2]][0])' "$1" "$2"; }

tensor=out/$(record_of weight-histograms tensor)/result.json
change "$tensor" 'd["ladder"][1].update(lost=60, gained=2)'
check "it is told again" run weight-histograms
holds "one scale is not enough where it loses" weight-histograms '"is not enough for this network" in text and abs(f["tensor_diff"] + 29) < 1e-9'
change "$tensor" 'd["ladder"][1].update(lost=3, gained=2)'
check "and again" run weight-histograms
holds "and enough where it does not" weight-histograms '"is enough for the weights" in text and "no difference that can be claimed" in text'
best=out/$(record_of quant-bias best)/result.json
change "$best" 'd["timings"]["int8"] = [2 * x for x in d["timings"]["f32"]]'
check "slower int8" run quant-bias
holds "is called slower" quant-bias '"int8 is slower here" in text and abs(f["faster"] - 0.5) < 1e-9'
finish
