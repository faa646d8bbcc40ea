#!/bin/bash
# Options of a step on a model that is spread over devices: each gives what one device gives with the same option, or the ranks of
# data parallelism where there are groups.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

# run NAME ARGS...: a run whose record is in NAME
run() {
    local name=$1
    shift
    timeout 100 "$ECHELON" train --json --run-dir "$name" --threads 1 --clock real --tune off --warmup 1 "$@" \
        >/dev/null 2>.output
}
# holds WHAT EXPRESSION NAMES...: of the summaries s[NAME] and steps l[NAME] of runs
holds() {
    local what=$1 expression=$2
    shift 2
    check "$what" python3 -c '
import json, sys
s = {n: json.load(open(n + "/run.json"))["summary"] for n in sys.argv[2:]}
l = {n: [json.loads(x) for x in open(n + "/steps.jsonl")] for n in s}
def sha(n): return s[n]["params_sha256"]
def of(n, key): return [x.get(key) for x in l[n]]
def equal(a, b): # to the bit: what a step reports of numbers, and what it leaves
    keys = ("loss", "scale", "skipped", "grad_norm", "lr")
    return sha(a) == sha(b) and all(of(a, k) == of(b, k) for k in keys) and s[a].get("accuracy") == s[b].get("accuracy")
def near(a, b, by): return all(abs(x - y) <= by * abs(y) for x, y in zip(of(a, "loss"), of(b, "loss")))
def as_planned(n): return s[n]["peak_memory_bytes"] == s[n]["planned_memory_bytes"]
if not eval(sys.argv[1]):
    sys.exit("not so: " + sys.argv[1] + "\n" + json.dumps([{n: sha(n) for n in s}, l])[:4000])' "$expression" "$@"
}
# alike WHAT OTHER NAME ARGS...: a run has the bits of another, and takes the memory that was planned
alike() {
    local what=$1 other=$2 name=$3
    shift 3
    check "$what" run "$name" "$@"
    holds "has the bits of $other" "equal('$name', '$other') and as_planned('$name')" "$name" "$other"
}

linear=(--dim 32 --depth 6 --batch-size 16 --steps 6 --lr 0.5 --momentum 0.9)
micro=(--dim 32 --depth 6 --batch-size 4 --accum 4 --steps 6 --lr 0.5 --momentum 0.9)
batch=16 half=8 limits=(61 51) epochs=2 orders=(gpipe 1f1b)
on_reference && batch=4 limits=(19) epochs=1 orders=(1f1b)
images=(--model resnet8 --limit $((3 * batch + 2)) --batch-size "$batch" --epochs "$epochs" --momentum 0.9)
# The last batch of the epoch is a rest, of which the micro-batches differ in size.
parts=(--model resnet8 --limit $((3 * batch)) --batch-size "$batch" --epochs "$epochs" --momentum 0.9)
steps=(--model resnet8 --limit $((3 * batch)) --batch-size $((batch / 4)) --accum 4 --epochs "$epochs" --momentum 0.9)

# matrix NAME OPTIONS...: the same options on one device and on several, as micro-batches and micro-steps, and in groups
matrix() {
    local o=$1
    shift
    check "$o: one device" run "$o-one" "${linear[@]}" "$@"
    alike "$o: two devices" "$o-one" "$o-mp" "${linear[@]}" "$@" --parallel mp --devices 2
    alike "$o: three ranks" "$o-one" "$o-ranks" "${linear[@]}" "$@" --parallel mp --devices 3 --backend shm
    check "$o: four micro-steps" run "$o-steps" "${micro[@]}" "$@"
    alike "$o: four micro-batches" "$o-steps" "$o-pipe" "${linear[@]}" "$@" --parallel pipeline --devices 3 --micro-batches 4
    alike "$o: in three ranks" "$o-steps" "$o-pipe-ranks" "${linear[@]}" "$@" --parallel pipeline --devices 3 \
        --micro-batches 4 --backend shm
    check "$o: images on one device" run "$o-image" "${images[@]}" "$@"
    alike "$o: images on three" "$o-image" "$o-images" "${images[@]}" "$@" --parallel mp --devices 3
    on_reference && [[ $o != skip ]] && return
    check "$o: micro-steps of images" run "$o-image-steps" "${steps[@]}" "$@"
    alike "$o: micro-batches of images" "$o-image-steps" "$o-image-pipe" "${parts[@]}" "$@" --parallel pipeline --devices 2 \
        --micro-batches 4
    check "$o: two ranks" run "$o-ddp" "${images[@]}" "$@" --devices 2
    alike "$o: two groups" "$o-ddp" "$o-mesh" "${images[@]}" "$@" --devices 4 --mp 2
}

matrix bf16 --amp bf16
on_reference || matrix fp16 --amp fp16 --loss-scale off # there, "skip" has all that this has
holds "bf16 moves half of the bytes" "s['bf16-mp']['transfers']['bytes'] == 2 * 16 * 32 * 2" bf16-mp

# ---- micro-steps ----

check "eight micro-steps of two samples" run accum "${linear[@]}" --batch-size 2 --accum 8
alike "on two devices" accum accum-mp "${linear[@]}" --batch-size 2 --accum 8 --parallel mp --devices 2
alike "in three ranks" accum accum-ranks "${linear[@]}" --batch-size 2 --accum 8 --parallel mp --devices 3 --backend shm
alike "two micro-steps of four micro-batches" accum accum-pipe "${linear[@]}" --batch-size 8 --accum 2 --parallel pipeline \
    --devices 3 --micro-batches 4
alike "four of two in ranks" accum accum-pipe-ranks "${linear[@]}" --batch-size 4 --accum 4 --parallel pipeline --devices 3 \
    --micro-batches 2 --backend shm
holds "bytes are those of all micro-steps" \
    "s['accum-mp']['transfers']['bytes'] == 2 * 16 * 32 * 4 and s['accum-pipe']['transfers']['bytes'] == 4 * 16 * 32 * 4" \
    accum-mp accum-pipe
check "micro-steps of images, with a rest" run accum-image "${images[@]}" --batch-size $((batch / 2)) --accum 2
alike "on three devices" accum-image accum-images "${images[@]}" --batch-size $((batch / 2)) --accum 2 --parallel mp --devices 3
check "on two ranks" run accum-ddp "${images[@]}" --batch-size $((batch / 4)) --accum 2 --devices 2
alike "in two groups" accum-ddp accum-mesh "${images[@]}" --batch-size $((batch / 4)) --accum 2 --devices 4 --mp 2

# ---- the norm of the gradient over all devices ----

matrix clip --clip-norm 0.05
holds "gradients were clipped" "max(of('clip-one', 'grad_norm')) > 0.05 and min(of('clip-image', 'grad_norm')) > 0.05" \
    clip-one clip-image
check "layers in turns" run clip-turns "${linear[@]}" --clip-norm 0.05 --parallel mp --devices 2 --placement 0,1,0,1,1,0
holds "have the same norm" "equal('clip-turns', 'clip-one')" clip-turns clip-one

# ---- a scaled loss ----

on_reference || matrix scale --amp fp16
matrix skip --amp fp16 --loss-scale 67108864 --clip-norm 0.05
holds "some steps were skipped, and not all" "0 < sum(map(bool, of('skip-one', 'skipped'))) < 6" skip-one
on_reference || holds "of images too" "0 < sum(map(bool, of('skip-image', 'skipped'))) < 8" skip-image
if ! on_reference; then
    check "a run that is skipping is saved" run skip-save "${images[@]}" --amp fp16 --loss-scale 67108864 --clip-norm 0.05 \
        --parallel mp --devices 3 --save c --save-every 3
    check "and goes on" run skip-resumed "${images[@]}" --amp fp16 --loss-scale 67108864 --clip-norm 0.05 --parallel mp --devices 3 \
        --resume c/step-000006
    holds "to the same bits" "sha('skip-resumed') == sha('skip-image')" skip-resumed skip-image
fi

# ---- gradients in 16 bits between groups ----

check "gradients in f32" run f32-mesh "${images[@]}" --devices 4 --mp 2
check "gradients in bf16 on two ranks" run wire-ddp "${images[@]}" --grad-dtype bf16 --devices 2
alike "and in two groups" wire-ddp wire-mesh "${images[@]}" --grad-dtype bf16 --devices 4 --mp 2
holds "half of the bytes travel" "s['wire-mesh']['comm_bytes_per_step'] < s['f32-mesh']['comm_bytes_per_step']" \
    wire-mesh f32-mesh

# ---- batch norms over groups ----

# The last batch of an epoch has 13 samples, whose micro-batches have other sizes in each group; or 3, fewer than micro-batches.
for limit in "${limits[@]}"; do
    sync=(--model resnet8 --limit "$limit" --batch-size "$half" --epochs "$epochs" --momentum 0.9 --sync-bn)
    check "batch norms over two ranks" run "sync$limit" "${sync[@]}" --devices 2
    alike "over two groups" "sync$limit" "sync$limit-mesh" "${sync[@]}" --devices 4 --mp 2
    check "micro-steps of two ranks" run "sync$limit-steps" "${sync[@]}" --batch-size $((half / 4)) --accum 4 --devices 2
    for order in "${orders[@]}"; do # losses are weighed in another order where sizes differ
        check "micro-batches of two groups, $order" run "sync$limit-$order" "${sync[@]}" --devices 4 --mp 2 \
            --parallel pipeline --micro-batches 4 --pipeline-schedule $order
        holds "have their parameters to the bit" \
            "sha('sync$limit-$order') == sha('sync$limit-steps') and near('sync$limit-$order', 'sync$limit-steps', 1e-12) and as_planned('sync$limit-$order')" \
            "sync$limit-$order" "sync$limit-steps"
    done
done
check "one batch" run sync-one --model resnet8 --limit $((6 * half)) --batch-size $((2 * half)) --epochs "$epochs" --momentum 0.9
check "halves of it in two groups" run sync-halves --model resnet8 --limit $((6 * half)) --batch-size "$half" --epochs "$epochs" \
    --momentum 0.9 --sync-bn --devices 4 --mp 2
holds "agree to rounding" "near('sync-halves', 'sync-one', 1e-3)" sync-halves sync-one
check "bf16 micro-steps" run sync-bf16 "${sync[@]}" --amp bf16 --clip-norm 1 --batch-size $((half / 2)) --accum 2 --devices 2
alike "groups of three devices in bf16" sync-bf16 sync-three "${sync[@]}" --amp bf16 --clip-norm 1 --devices 6 --mp 3 \
    --parallel pipeline --micro-batches 2

# ---- on virtual clocks ----

virtual=(--clock virtual --link "1GB/s,100ms" --dim 32 --depth 6 --batch-size 8 --steps 4)
check "two micro-steps by virtual clocks" run virtual "${virtual[@]}" --accum 2 --amp fp16 --clip-norm 0.05 --parallel mp --devices 2
holds "pay for both, and for agreeing on the update" "0.6 <= s['virtual']['step_time_s']['median'] <= 0.65" virtual
check "batch norms by virtual clocks" run virtual-sync --clock virtual "${sync[@]}" --devices 4 --mp 2 --parallel pipeline \
    --micro-batches 4
holds "compute the same" "sha('virtual-sync') == sha('sync$limit-steps')" virtual-sync "sync$limit-steps"
finish
