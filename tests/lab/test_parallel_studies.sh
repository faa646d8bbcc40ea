#!/bin/bash
# The studies of data parallelism at tiny sizes: every run works, every answer is complete, and
# figures that do not depend on the machine are what they must be.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/studies.sh"
export ECHELON_TUNING=$work/tuning.json ECHELON_COSTS=$work/costs.json
cd "$work" || exit 1

studies=(warmup strong-scaling comm-vs-compute dp-vs-ddp delay batch-scaling imbalance)
sizes=(dim=32 depth=2 small-dim=24 large-dim=40 batch=16 steps=8 delay=1 late=1)
tiny=(--quick "${sizes[@]/#/--set=}")
check "tiny studies" "$ECHELON" lab run "${studies[@]}" "${tiny[@]}" --out out
for id in "${studies[@]}"; do
    holds "$id has all of its runs" "$id" 'r and all(x["status"] in ("done", "reused") for x in r.values())'
    holds "and complete answers" "$id" \
        'd["answers"] and d["tables"] and d["plots"] and "No result" not in text and "Nothing can be said" not in text'
    holds "of fifteen lines at most" "$id" 'all(len(a["text"]) <= 15 * 110 for a in d["answers"])'
done
check "every figure can be computed again" python3 "$ECH_SRC/tests/lab/recompute.py" out

holds "the same seed gives the same losses" warmup '"have the same bits." in text and "NOT" not in text'
holds "and another seed others" warmup 'f["loss"] != f["other_loss"]'
holds "repetitions are runs of their own" warmup 'len({x["record"] for x in r.values()}) == 4'
holds "runs of the same words are one" delay \
    'r["d0_n2"]["record"] == {x["id"]: x for x in json.load(open("out/studies/strong-scaling.json"))["runs"]}["n2"]["record"]'
# Two layers of 32 x 32 with their biases make 2112 parameters.
holds "DDP moves an all-reduce" dp-vs-ddp \
    'f["ddp_bytes2"] == 4 * 2112 * 4 / 2 and f["ddp_bytes4"] == 4 * 2112 * 4 * 3 / 4'
holds "device 0 of DataParallel moves everything for everyone" dp-vs-ddp \
    'f["dp_bytes4"] > 2 * 3 * 2112 * 4 and f["bytes_ratio"] > 2.9'
holds "another device of DataParallel adds its share" dp-vs-ddp 'f["each"] >= 2 * 2112 * 4'
# A line through 0, 1, 2 and 4 ms. Four devices are emulated, so that a busy machine does not matter.
holds "a delay adds what it says" delay '0.8 < f["slope4"] < 1.5'
holds "so does a late device" imbalance '0.8 < f["slope4"] < 1.5'
holds "which is found" imbalance 'f["straggler"] == 0'

survive "${studies[@]}" "${sizes[@]}"
finish
