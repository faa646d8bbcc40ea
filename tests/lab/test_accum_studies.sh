#!/bin/bash
# The studies of accumulation and precision at tiny sizes: every run works, every answer is complete, and gradients and
# memory are what they must be.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/studies.sh"
export ECHELON_TUNING=$work/tuning.json ECHELON_COSTS=$work/costs.json
cd "$work" || exit 1

studies=(accum-amp accum-sweep)
sizes=(dim=32 gradient-dim=24 steps=8 micro-batch=4)
check "tiny studies" "$ECHELON" lab run "${studies[@]}" --quick --out out "${sizes[@]/#/--set=}"
for id in "${studies[@]}"; do
    complete "$id"
done

holds "accumulation divides the loss for the gradient of the whole batch" accum-sweep \
    'f["gap_with"] < 1e-5 and abs(f["with"] - 1) < 1e-5'
holds "and without the division it is as many times as long" accum-sweep \
    'abs(f["without"] / f["k2"] - 1) < 1e-4 and abs(f["gap_without"] / (f["k2"] - 1) - 1) < 1e-4'
holds "which the answer says" accum-sweep '"So the division makes accumulation the training of one large batch" in text'
holds "the effective batch is a product" accum-sweep 'f["product"] == f["global2"] == 4 * 2 * 32'
holds "activations are halved" accum-amp 'f["act_share"] < 0.6'
survive "${studies[@]}" "${sizes[@]}"
finish
