#!/bin/bash
# The studies of epochs at tiny sizes: every run works or says why not, every answer is complete,
# and figures that do not depend on the machine are what they must be.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/studies.sh"
export ECHELON_TUNING=$work/tuning.json ECHELON_COSTS=$work/costs.json
unset ECH_CIFAR
export https_proxy=http://127.0.0.1:1 npm_config_fetch_retries=0 # no image set: these are synthetic
cd "$work" || exit 1

studies=(epoch-batch epoch-scaling comm-split bandwidth large-batch buffers)
sizes=(images=128 batch=2 memory_mb=30 few=1 small=8 large=64 epochs=2 seeds=2)
check "tiny studies" "$ECHELON" lab run "${studies[@]}" --quick --out out "${sizes[@]/#/--set=}"
for id in "${studies[@]}"; do
    holds "$id has all of its runs" "$id" \
        'r and all(x["status"] in ("done", "reused") or "out of memory" in x["reason"] or x["id"] == "plan_b32" for x in r.values())'
    holds "and complete answers" "$id" 'd["answers"] and d["tables"] and d["plots"] and "No result" not in text'
    holds "of fifteen lines at most" "$id" 'all(len(a["text"]) <= 15 * 110 for a in d["answers"])'
done

check "every figure is what its source gives, and answers have no other digits" python3 \
    "$ECH_SRC/tests/lab/recompute.py" out
holds "a batch that does not fit is known before" epoch-batch \
    'r["b512n1"]["status"] == "skipped" and "out of memory: a batch of 512 needs" in r["b512n1"]["reason"]'
holds "and the largest one that fits" epoch-batch 'f["largest"] == record("fit")["largest_batch"] and f["room"] == 30e6'
holds "a run takes what its plan said, to the byte" epoch-batch '"to the byte what its own plan said" in text'
"$ECHELON" plan --model resnet8 --momentum 0.9 --weight-decay 5e-4 --fit 32 --threads 1 \
    --device-memory 30MB --json >fit.json
holds "and what plan --fit says, now that the kernels' times are known" epoch-batch \
    'record("b32n1")["summary"]["peak_memory_bytes"][0] == json.load(open("fit.json"))["rows"][0]["planned_memory_bytes"]'
holds "three studies share the runs of epochs" bandwidth \
    'all(x["record"] == {y["id"]: y for y in json.load(open("out/studies/epoch-scaling.json"))["runs"]}[k]["record"] for k, x in r.items() if k.startswith("b"))'
holds "an epoch has the same images on any number of devices" epoch-scaling \
    'f["steps_b2n1"] == 64 and f["steps_b2n4"] == 16 and f["grown"] == 4 * 128'
holds "every all-reduce is counted" bandwidth \
    'f["sum_b2n2"] == 32 * f["m_b2n2"] and abs(f["use_b2n2"] / f["slip_b2n2"] - 32) < 1e-6'
holds "also of what was published" bandwidth \
    'abs(f["published_slip"] - f["published_low"]) < 0.001 and f["published_times"] > 1'
holds "synthetic images are called so" buffers '"synthetic" in text'
holds "buffers are sent, or statistics" buffers 'f["buf_cast_batch"] > 0 and f["stat_sync_batch"] > 0'
holds "the broadcast changes no parameter" buffers '"the same bits with and without" in text'
holds "large batches make fewer steps" large-batch \
    'f["steps_small"] == 8 * f["steps_large"] and abs(f["lr_scaled"] / f["lr_large"] - 8) < 1e-9'
survive "${studies[@]}" "${sizes[@]}"
finish
