#!/bin/bash
# The studies of data parallelism on one device alone: there is nothing to compare, which is no error.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/studies.sh"
export ECHELON_TUNING=$work/tuning.json ECHELON_COSTS=$work/costs.json
cd "$work" || exit 1

sizes=(dim=32 depth=2 small-dim=24 large-dim=40 batch=16 steps=8 delay=1 late=1)
check "one device alone" "$ECHELON" lab run strong-scaling comm-vs-compute dp-vs-ddp delay \
    batch-scaling imbalance --quick "${sizes[@]/#/--set=}" --devices 1 --out out
for id in strong-scaling dp-vs-ddp imbalance comm-vs-compute; do
    holds "$id says that there is nothing to compare" "$id" '"nothing to compare" in text'
done
holds "batches saturate on one device too" batch-scaling '"saturate" in json.dumps(d["answers"]) and f["n1"] == 1'
finish
