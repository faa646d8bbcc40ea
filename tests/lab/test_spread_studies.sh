#!/bin/bash
# The studies of accumulation, precision and layers on devices at tiny sizes: every run works, every answer is complete, and the
# figures that do not depend on the machine are what they must be.
. "$ECH_SRC/tests/support/check.sh"
[[ -x $ECHELON ]] || skip "no program"
export ECHELON_TUNING=$work/tuning.json ECHELON_COSTS=$work/costs.json
cd "$work" || exit 1

# holds WHAT STUDY EXPRESSION: of the study d, its runs r by id, its answers' figures f by name, and all of its text
holds() {
    check "$1" python3 -c '
import json, sys
d = json.load(open("out/studies/%s.json" % sys.argv[1]))
r = {x["id"]: x for x in d["runs"]}
f = {x["name"]: x["value"] for a in d["answers"] for x in a["figures"]}
text = " ".join(a["text"] for a in d["answers"])
if not eval(sys.argv[2]):
    sys.exit("not so: %s\n%s\n%s" % (sys.argv[2], f, text))' "$2" "$3"
}

studies=(accum-amp accum-sweep mp-placement mp-depth mp-devices mp-transfers)
check "tiny studies" "$ECHELON" lab run "${studies[@]}" --quick --out out --set dim=32 --set gradient-dim=24 --set steps=8 \
    --set micro-batch=4 --set batch=8
for id in "${studies[@]}"; do
    holds "$id has all of its runs" "$id" 'r and all(x["status"] in ("done", "reused") for x in r.values())'
    holds "and complete answers" "$id" 'd["answers"] and d["tables"] and d["plots"] and "Not known" not in text and "Nothing can be said" not in text'
    holds "of fifteen lines at most" "$id" 'all(len(a["text"]) <= 15 * 110 for a in d["answers"])'
done

holds "accumulation divides the loss for the gradient of the whole batch" accum-sweep 'f["gap_with"] < 1e-5 and abs(f["with"] - 1) < 1e-5'
holds "and without the division it is as many times as long" accum-sweep 'abs(f["without"] / f["k2"] - 1) < 1e-4 and abs(f["gap_without"] / (f["k2"] - 1) - 1) < 1e-4'
holds "which the answer says" accum-sweep '"So the division makes accumulation the training of one large batch" in text'
holds "the effective batch is a product" accum-sweep 'f["product"] == f["global2"] == 4 * 2 * 32'
holds "activations are halved" accum-amp 'f["act_share"] < 0.6'
holds "half of the layers are on each device" mp-placement 'f["on0"] == f["on1"] == 3 and f["forward"] == f["backward"] == 1 and f["bytes"] == 8 * 32 * 4'
holds "a layer's device follows the rule" mp-devices '"Every layer of every run" in text and f["apart"] == 1'
holds "data moves once less than there are devices" mp-transfers 'f["asked"] == 20 and f["moves2"] == f["back2"] == 1 and f["moves5"] == f["back5"] == 4 and "once less than there are devices" in text'
holds "in proportion to the cuts" mp-transfers 'abs(f["each"] - 2 * 8 * 32 * 4) < 1e-6 and abs(f["from"] - 1) < 1e-6'
holds "runs of the same words are one" mp-transfers 'r["mp5"]["record"] == {x["id"]: x for x in json.load(open("out/studies/mp-devices.json"))["runs"]}["mp5"]["record"]'
finish
