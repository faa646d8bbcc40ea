#!/bin/bash
# Epochs from the command line: what is printed and recorded of them, learning rates of large batches and when a run goes on,
# what batch norms send, and whether a batch fits.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json ECHELON_COSTS=$work/costs.json
cd "$work" || exit 1

train() { "$ECHELON" train --tune off "$@"; }
# run NAME ARGS...: a run with records in NAME and its output in NAME.json
run() {
    local name=$1
    shift
    train --json --run-dir "$name" "$@" >"$name.json" 2>.output
}
# holds WHAT FILE EXPRESSION: a record r (or, of .jsonl, the list of its lines) is as Python says
holds() {
    check "$1" python3 -c '
import json, math, sys
text = open(sys.argv[1]).read()
r = [json.loads(l) for l in text.splitlines()] if sys.argv[1].endswith("l") else json.loads(text)
s = r.get("summary") if isinstance(r, dict) else None
near = lambda a, b: len(a) == len(b) and all(math.isclose(x, y, rel_tol=1e-12, abs_tol=1e-15) for x, y in zip(a, b))
if not ('"$3"'):
    sys.exit("not so: " + sys.argv[2] + "\nin: " + json.dumps(s or r)[:1500])' "$2" "$3"
}

# ---- what an epoch is ----

lenet=(--model lenet --limit 40 --batch-size 8 --seed 3)
number='[0-9.]+'
train "${lenet[@]}" --devices 2 --epochs 3 >printed 2>.output
for epoch in 1 2 3; do
    check "epoch $epoch is printed" grep -qE \
        "^\[Epoch $epoch/3\] time=${number}s compute=${number}s data=${number}s loss=$number train_acc=$number test_loss=$number acc=$number\$" printed
done
check "and what they cost besides steps" grep -qE '^epochs  .* % exposed data loading, .* % besides steps' printed
run epochs "${lenet[@]}" --devices 2 --epochs 3
holds "every epoch is recorded" epochs.json 'len(s["epochs"]) == 3 and all(e["samples"] == 40 for e in s["epochs"])'
holds "with its times" epochs.json \
    'all(e["time_s"] >= e["compute_s"] > 0 and e["data_s"] > 0 and e["overhead_s"] >= 0 and e["evaluation_s"] > 0 for e in s["epochs"])'
holds "its time is the sum of its parts, where rank 0 waited most for data" epochs.json \
    'all(e["compute_s"] + e["overhead_s"] <= e["time_s"] + 1e-9 for e in s["epochs"])'
holds "its losses and accuracies" epochs.json \
    'all(0 <= e["train_accuracy"] <= 1 and e["accuracy"] == e["test_accuracy"] and e["loss"] > 0 and e["test_loss"] > 0 for e in s["epochs"]) and s["accuracy"] == s["epochs"][-1]["accuracy"]'
holds "shares of all of them" epochs.json '0 < s["epoch_data_share"] < 1 and 0 <= s["epoch_overhead_share"] < 1'
holds "its steps take what it computes" epochs/steps.jsonl \
    'abs(sum(l["time_s"] for l in r if l["epoch"] == 2) - json.load(open("epochs.json"))["summary"]["epochs"][1]["compute_s"]) < 1e-9'
holds "its loss is the mean over its samples" epochs/steps.jsonl \
    'abs(sum(l["loss"] * (16 if l["step"] % 3 else 8) for l in r[3:6]) / 40 - json.load(open("epochs.json"))["summary"]["epochs"][1]["loss"]) < 1e-9'

# ---- learning rates ----

run plain "${lenet[@]}" --epochs 4 --lr 0.1
holds "a constant rate" plain/steps.jsonl '{l["lr"] for l in r} == {0.1}'
run scaled "${lenet[@]}" --devices 2 --epochs 4 --lr 0.1 --lr-scale-base 4
holds "a rate by the samples of a step" scaled/steps.jsonl 'near([l["lr"] for l in r], [0.4] * 12)'
holds "is in the record" scaled.json 'r["config"]["lr"] == 0.1 and r["config"]["lr_scale_base"] == 4 and near([r["config"]["lr_largest"]], [0.4])'
warm=("${lenet[@]}" --lr 0.1 --lr-scale-base 2 --lr-warmup-epochs 0.8)
run warm "${warm[@]}" --epochs 2
holds "a warm-up goes from the one to the other, step by step" warm/steps.jsonl \
    'near([l["lr"] for l in r], [0.1, 0.175, 0.25, 0.325] + [0.4] * 6)'
holds "and is in the record" warm.json \
    'r["config"]["lr_warmup_epochs"] == 0.8 and r["config"]["lr_warmup_steps"] == 4 and r["config"]["lr_warmup_from"] == 0.1'
run once "${lenet[@]}" --epochs 1 --lr 0.3 --lr-warmup-epochs 0.4 --lr-schedule linear
holds "one epoch: up, and down to nothing" once/steps.jsonl 'near([l["lr"] for l in r], [0.1, 0.2, 0.3, 0.2, 0.1])'
run from "${lenet[@]}" --epochs 1 --lr 0.3 --lr-warmup-epochs 0.4 --lr-warmup-from 0.1 --lr-schedule cosine
holds "from a rate of one's own, then half a cosine" from/steps.jsonl \
    'near([l["lr"] for l in r], [0.1, 0.2, 0.3, 0.225, 0.075])'
# goes_on WHAT TOGETHER REST: the steps of REST have the rates that TOGETHER has, and it ends with the same bits.
goes_on() {
    holds "$1 has the same rates" "$3/steps.jsonl" \
        "r and all(json.loads(l)['lr'] == m['lr'] for l, m in zip(list(open('$2/steps.jsonl'))[-len(r):], r)) and r[-1]['step'] == 12"
    holds "and ends with the same bits" "$3.json" \
        "s['params_sha256'] == json.load(open('$2.json'))['summary']['params_sha256'] and r['resumed']['step'] < 12"
}
long=("${lenet[@]}" --lr 0.1 --lr-scale-base 2 --lr-warmup-epochs 1.6)
run whole "${long[@]}" --steps 12
run part "${long[@]}" --steps 5 --save ckpt
run rest "${long[@]}" --steps 12 --resume ckpt
goes_on "a run that goes on in the middle of its warm-up" whole rest
run curve "${long[@]}" --steps 12 --lr-schedule cosine --save curved --save-every 10
run bend "${long[@]}" --steps 12 --lr-schedule cosine --resume "$(find curved -name '*10' -type d)"
goes_on "one that goes on along a cosine" curve bend
says "but not with another warm-up" 'was made with --lr-warmup-epochs 1.6; this run has 0.4' \
    train "${lenet[@]}" --lr 0.1 --lr-scale-base 2 --lr-warmup-epochs 0.4 --steps 12 --resume ckpt
says "nor with another scale" 'was made with --lr-scale-base 2; this run has 0' \
    train "${lenet[@]}" --lr 0.1 --lr-warmup-epochs 1.6 --steps 12 --resume ckpt

# ---- batch norms ----

resnet=(--model resnet8 --limit 24 --batch-size 6 --devices 2 --epochs 2 --lr 0.1 --threads 1)
channels=$((16 + 2 * 16 + 3 * 32 + 3 * 64))
run sent "${resnet[@]}"
holds "buffers are counted apart from gradients" sent.json \
    "s['buffer_bytes_per_step'] == 2 * 4 * $channels and s['comm_bytes_per_step'] == 4 * s['parameters'] + s['buffer_bytes_per_step']"
holds "and timed" sent.json \
    '0 < s["buffer_s"] <= min(k["buffers_s"] for k in s["communication"]["ranks"]) and all(k["buffers_s"] <= k["sync_s"] for k in s["communication"]["ranks"])'
holds "what is broadcast does not drift" sent.json 'all("statistics_drift" not in e for e in s["epochs"])'
run alone "${resnet[@]}" --no-broadcast-buffers
holds "left alone nothing is sent" alone.json 's["buffer_bytes_per_step"] == 0 and s["buffer_s"] == 0'
holds "and every layer drifts" alone.json \
    'all(len(e["statistics_drift"]["layers"]) == 9 and all(0 < l["mean_rms"] <= l["mean_largest"] and 0 < l["variance_rms"] <= l["variance_largest"] for l in e["statistics_drift"]["layers"]) for e in s["epochs"])'
holds "the most of all is that of a layer" alone.json \
    'all(e["statistics_drift"]["mean_largest"] == max(l["mean_largest"] for l in e["statistics_drift"]["layers"]) for e in s["epochs"])'
holds "the parameters are the same" alone.json 's["params_sha256"] == json.load(open("sent.json"))["summary"]["params_sha256"]'
says "a line says so" 'running statistics differ between 2 ranks: means by up to .* largest in (bn1|layer)' \
    train "${resnet[@]}" --no-broadcast-buffers
run synced "${resnet[@]}" --no-broadcast-buffers --sync-bn
holds "synchronised ones stay together" synced.json \
    'all(e["statistics_drift"]["mean_largest"] < 1e-6 and e["statistics_drift"]["variance_largest"] < 1e-6 for e in s["epochs"])'
holds "for which statistics are sent" synced.json "s['communication']['statistics_bytes'] == 4 * 4 * $channels"

# ---- what fits ----

sweep=(plan --model resnet18 --momentum 0.9 --memory '32,128,512,2048,8192')
"$ECHELON" "${sweep[@]}" --device-memory 48GB --json >fit.json 2>.output
holds "every batch has a row" fit.json '[x["batch"] for x in r["rows"]] == [32, 128, 512, 2048, 8192] and r["device_memory"] == 48 * 10**9'
holds "with its memory by kind" fit.json 'all(sum(x["memory_by_kind"].values()) == x["planned_memory_bytes"] for x in r["rows"])'
holds "the largest batch splits them" fit.json 'all(x["fits"] == (x["batch"] <= r["largest_batch"]) for x in r["rows"]) and r["largest_batch"] > 2048'
"$ECHELON" "${sweep[@]}" --device-memory 4GB --json >small.json 2>.output
holds "one that does not fit has a row too" small.json '[x["fits"] for x in r["rows"]] == [True, True, True, False, False]'
largest=$(python3 -c 'import json; print(json.load(open("small.json"))["largest_batch"])')
says "so much fits" ' fits$' "$ECHELON" plan --model resnet18 --momentum 0.9 --memory "$largest" --device-memory 4GB
says "and not one more" ' does not fit$' "$ECHELON" plan --model resnet18 --momentum 0.9 --memory "$((largest + 1))" --device-memory 4GB
says "in a table" '^ +8192 .* does not fit$' "$ECHELON" "${sweep[@]}" --device-memory 4GB
says "with the largest below" '^The largest batch that fits in 4.00 GB is [0-9]+\.$' "$ECHELON" "${sweep[@]}" --device-memory 4GB
says "batches that nobody can count do not fit" '1073741824 .*does not fit' \
    "$ECHELON" plan --model resnet18 --fit 1073741824 --device-memory 48GB
# CPU seconds of a search; one for a huge device makes about as many plans as one for a small one.
cpu() {
    python3 -c '
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
u = resource.getrusage(resource.RUSAGE_CHILDREN)
print(u.ru_utime + u.ru_stime)' "$ECHELON" plan --model resnet18 --fit 64 --device-memory "$1"
}
check "the search takes no longer where the device is huge" \
    python3 -c 'import sys; sys.exit(float(sys.argv[1]) > 20 * float(sys.argv[2]))' "$(cpu 4000000GB)" "$(cpu 48GB)"
for parallel in ddp mp dp pipeline; do
    devices=2 && [ $parallel = ddp ] && devices=1
    for model in resnet8 resnet18; do
        says "nor do those of $model with $parallel" \
            "a batch of (134217728|268435456) needs [0-9]+ bytes; the device.s limit" \
            "$ECHELON" train --fit --model $model --batch-size 134217728 --parallel $parallel --devices $devices
    done
done
fits=(train --model lenet --momentum 0.9 --threads 1 --memory)
says "train --memory says what a batch needs" '^Planned memory for a batch of 128:' "$ECHELON" "${fits[@]}" --batch-size 128
says "and what would be the most" '^The largest batch that fits in 48.0 GB is [0-9]+' "$ECHELON" "${fits[@]}" --device-memory 48GB
says "a global batch is split over the devices" '^Planned memory for a batch of 64:' "$ECHELON" "${fits[@]}" --global-batch 128 --devices 2
refuse "one that does not fit is a failure" "$ECHELON" "${fits[@]}" --batch-size 128 --device-memory 2MB
says "that says both" 'a batch of 128 needs [0-9]+ bytes; the device.s limit is 2000000 bytes' \
    "$ECHELON" "${fits[@]}" --batch-size 128 --device-memory 2MB
says "not even one" 'Not even a batch of 1 fits in 100 KB' "$ECHELON" "${fits[@]}" --device-memory 100KB
"$ECHELON" "${fits[@]}" --batch-size 64 --device-memory 1GB --json >fit.json 2>.output
run taken --model lenet --momentum 0.9 --threads 1 --batch-size 64 --limit 128 --steps 3
holds "a run takes what was said" taken.json 's["planned_memory_bytes"][0] == json.load(open("fit.json"))["rows"][0]["planned_memory_bytes"]'

# ---- what is refused ----

# wrong CODE PATTERN ARGS...: one line that matches.
wrong() {
    local code=$1 pattern=$2 got
    shift 2
    "$ECHELON" "$@" >/dev/null 2>.output
    got=$?
    if [[ $got == "$code" && $(wc -l <.output) == 1 ]] && grep -qE -- "$pattern" .output; then
        ok "echelon $*"
    else
        echo "exit code $got" >>.output
        not_ok "echelon $*"
    fi
}
wrong 2 '--lr-warmup-epochs -1: must be at least 0' train "${lenet[@]}" --epochs 1 --lr-warmup-epochs -1
wrong 2 '--lr-warmup-epochs nan: must be a number' train "${lenet[@]}" --epochs 1 --lr-warmup-epochs nan
wrong 2 '--lr-scale-base 0: must be at least 1' train "${lenet[@]}" --epochs 1 --lr-scale-base 0
wrong 2 '--lr-scale-base -128: must be at least 1' train "${lenet[@]}" --epochs 1 --lr-scale-base -128
wrong 2 '--lr-warmup-from requires --lr-warmup-epochs' train "${lenet[@]}" --epochs 1 --lr-warmup-from 0.1
wrong 1 'warms up over 1 epochs \(5 steps\) of a run of 5 steps' train "${lenet[@]}" --epochs 1 --lr-warmup-epochs 1 --lr-schedule cosine
wrong 2 "--memory 'many': must be numbers" plan --memory many
wrong 2 "--memory '32,': must be numbers" plan --fit 32,
wrong 2 '--memory 32,0: must be from 1 to' plan --memory 32,0
wrong 2 '--memory 99999999999999999999: must be from 1 to' plan --fit 99999999999999999999
wrong 2 '--memory lists the batches' plan --fit 32 --batch-size 8
wrong 2 '--device-memory 0: must be at least 1' plan --fit 32 --device-memory 0
finish
