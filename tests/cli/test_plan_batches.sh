#!/bin/bash
# echelon plan at batches that were not measured: memory is that of the plan, times are told with how far they are from what was
# measured and with an interval, and the parts of a step add up. Costs are written by hand, so that nothing is measured.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/plan.sh"
[[ -x $ECHELON ]] || skip "no program"
export ECHELON_TUNING=$work/tuning.json TMPDIR=$work
cd "$work" || exit 1


# ---- costs by hand ----

model=(--dim 32 --depth 4 --tune off)
for parallel in ddp dp; do
    check "a file of costs with $parallel" "$ECHELON" plan "${model[@]}" --batch-size 8 --measure-seconds 0.02 --parallel $parallel --devices 1,2
done
check "nothing is left of what ranks handed over" test -z "$(find . -maxdepth 1 -name 'echelon-plan-*')"
# Operators of the passes take 1 s and 0.1 s a sample, the others 1 s; twice that beside others, and 2 s of waiting. Steps that
# long are not measured: what is not in the file is computed.
python3 - <<'END'
import copy, json
doc = json.load(open("costs.json"))
for machine in doc["machines"].values():
    for name in ("allreduce", "exchange", "fetch", "rewrite", "copy", "add"):
        machine[name] = [{"bytes": 1000, "seconds": 0.1}, {"bytes": 1000000, "seconds": 1}]
    for key, rows in machine["steps"].items():
        made = []
        for beside in sorted({r["beside"] for r in rows}):
            for batch in (1, 8, 32):
                row = copy.deepcopy(next(r for r in rows if r["beside"] == beside))
                for op in row["operators"]:
                    op["median_s"] = 1 + (0.1 * batch if op["phase"] in ("forward", "backward") else 0)
                    op["median_s"] *= 2 if beside > 1 else 1
                wait = 2 if beside > 1 else 0
                row["phases"] = {k: 0.25 for k in row["phases"]} if ", dp" in key else row["phases"]
                row["hand_over_s"] = row["loading_s"] = row["loader_s"] = 0
                row["step_s"] = sum(op["median_s"] for op in row["operators"]) + 1 + wait
                row["step_s"] += 1 if ", dp" in key else 0  # scatter, gather, loss, scatter
                row.update(batch=batch, overhead_s=1 + wait, wait_s=wait, low_s=0.9 * row["step_s"], high_s=1.2 * row["step_s"])
                made.append(row)
        rows[:] = made
json.dump(doc, open("costs.json", "w"))
END
kept=$(sha256sum costs.json)
plan() { "$ECHELON" plan "${model[@]}" "$@"; }
json() {
    local name=$1
    shift
    plan --json "$@" >"$name.json" 2>.output
}

# ---- parts ----

names=()
for parallel in ddp dp mp pipeline; do
    for link in "" "--link=1MB/s,20ms"; do
        name=$parallel${link:+-links}
        names+=("$name")
        check "$parallel $link" json "$name" --parallel $parallel --global-batch 32 --devices 1,2,4 ${link:+"$link"}
    done
done
check "micro-steps" json accum --global-batch 96 --accum 3 --devices 1,2,4
names+=(accum)
holds "a step is computing, exposed communication, waiting and the rest" \
    'all(abs(x["compute_s"] + x["comm_exposed_s"] + x["wait_s"] + x["other_s"] - x["step_time_s"]) < 1e-9 * x["step_time_s"] for n in d for x in d[n]["rows"])' "${names[@]}"
holds "none of which is negative" \
    'all(x[k] >= 0 for n in d for x in d[n]["rows"] for k in ("compute_s", "comm_exposed_s", "wait_s", "other_s"))' "${names[@]}"
holds "devices that have layers wait for each other and for messages" \
    'r["mp-links"][2]["wait_s"] > 1 and r["mp-links"][2]["comm_exposed_s"] > 0.04 and r["pipeline-links"][2]["wait_s"] > 0' mp-links pipeline-links
holds "one device takes what was measured" \
    'all(r[n][1]["clock"] == "measured" and r[n][1]["step_time_s"] == next(x["step_s"] for m in d["costs"]["machines"].values() for k in m["steps"] if (", dp" in k) == (n == "dp") for x in m["steps"][k] if x["batch"] == 32 and x["beside"] == 1) for n in d if n != "costs")' costs ddp dp mp
holds "a step lies in its interval" \
    'all(x["step_time_low_s"] <= x["step_time_s"] <= x["step_time_high_s"] for n in d for x in d[n]["rows"])' "${names[@]}"
parts='^ +1 +32 +([0-9.]+) s +([0-9.]+) s +0 s +0 s +1\.00 s +0 s '
says "the table has them too" "$parts" plan --batch-size 32 --devices 1 --link 1GB/s,1us

# ---- times between and beyond ----

one=(--devices 1 --link "1GB/s,1us")
for batch in 8 20 32 128 1000000; do
    check "a batch of $batch" json "b$batch" --batch-size $batch "${one[@]}"
done
step='(lambda batch: r["b8"][1]["step_time_s"] + (r["b32"][1]["step_time_s"] - r["b8"][1]["step_time_s"]) * (batch - 8) / 24)'
holds "known batches are measured" 'all(r[n][1]["batch_measured"] and r[n][1]["extrapolated"] == 1 and r[n][1]["extrapolated_from"] is None for n in d)' b8 b32
holds "their interval is that of the steps" 'all(abs(r[n][1]["step_time_low_s"] / r[n][1]["step_time_s"] - 0.9) < 1e-9 and abs(r[n][1]["step_time_high_s"] / r[n][1]["step_time_s"] - 1.2) < 1e-9 for n in d)' b8 b32
holds "others lie on the line" "all(abs(r['b%d' % b][1]['step_time_s'] / $step(b) - 1) < 1e-9 and not r['b%d' % b][1]['batch_measured'] for b in (20, 128, 1000000))" b8 b20 b32 b128 b1000000
holds "and say how far it is" '[(r["b%d" % b][1]["extrapolated"], r["b%d" % b][1]["extrapolated_from"]) for b in (20, 128, 1000000)] == [(1, None), (4, 32), (31250, 32)]' b20 b128 b1000000
holds "no less time, and no more per sample" 'abs(r["b128"][1]["step_time_low_s"] - 0.9 * r["b32"][1]["step_time_s"]) < 1e-9 and abs(r["b128"][1]["step_time_high_s"] - 1.2 * 4 * r["b32"][1]["step_time_s"]) < 1e-9' b32 b128
says "in words" '^Extrapolated from batch 32 to 128 \(4x\): a step on 1 device takes [0-9.]+ s to [0-9.]+ s\.$' plan --batch-size 128 "${one[@]}"
check "nothing was measured" test "$kept" = "$(sha256sum costs.json)"

# ---- memory ----

# fit WHAT PARALLEL DEVICES ARGS...: what echelon train --fit says of the same training
fit() {
    local what=$1 parallel=$2 devices=$3
    shift 3
    check "$what: a price" json price "$@" --parallel "$parallel" --devices "$devices" --link 1GB/s,1us
    "$ECHELON" train --threads 1 --fit --json "${model[@]}" "$@" --parallel "$parallel" --devices "$devices" >fit.json 2>.output
    holds "$what: memory as in train --fit" "r['price'][$devices]['planned_memory_bytes'] == d['fit']['rows'][0]['planned_memory_bytes']" price fit
}
for batch in 1 8 100 1000000; do
    fit "a batch of $batch" ddp 1 --batch-size $batch
done
fit "a part of a batch" ddp 3 --global-batch 100
fit "micro-steps" ddp 2 --batch-size 8 --accum 3
fit "micro-steps of a pipeline" pipeline 2 --batch-size 8 --accum 3
fit "gradients in bf16" ddp 2 --batch-size 8 --grad-dtype bf16
fit "DataParallel" dp 3 --global-batch 100
fit "layers on devices" mp 2 --batch-size 96
fit "a pipeline" pipeline 4 --batch-size 96 --micro-batches 6
says "the table and the kinds below it show the same" '^same$' python3 -c '
import re, subprocess, sys
text = subprocess.run(sys.argv[1:], capture_output=True, text=True).stdout
row = re.search(r"^ +1 +128\* .* ([0-9.]+ [kKMG]?B) +0 B +- +predicted$", text, re.M).group(1)
total = re.search(r"^  total +([0-9.]+ [kKMG]?B) ", text, re.M).group(1)
print("same" if row == total else text)' "$ECHELON" plan "${model[@]}" --batch-size 128 "${one[@]}"

# ---- where costs are kept ----

unwritable() { ECHELON_COSTS=/proc/costs.json plan --measure-seconds 0.02 --batch-size 4 "${one[@]}" 2>told; }
check "a cache directory that cannot be written" unwritable
says "is told" 'costs are not kept: /proc/costs.json' cat told
check "and again nothing is left" test -z "$(find . -maxdepth 1 -name 'echelon-plan-*')"
finish
