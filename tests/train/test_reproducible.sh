#!/bin/bash
# The reproducible mode: the same bits on 1, 2 and 4 devices, with any buckets and any number of micro-steps, also where a
# run goes on with another number of devices.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

train() { "$ECHELON" train --reproducible "$@"; }
# sha ARGS...: of the parameters that a run ends with
sha() { train --json "$@" 2>.output | sed -nE 's/.*"params_sha256": "([0-9a-f]{64})".*/\1/p'; }
# same WHAT A B: both are there and equal.
same() {
    [[ -s .output ]] || echo "$2 and $3" >.output
    if [[ -n $2 && $2 == "$3" ]]; then ok "$1"; else not_ok "$1"; fi
}
# fails CODE WHAT PATTERN ARGS...: not a single step is done, and one line says why
fails() {
    local want=$1 what=$2 pattern=$3 code
    shift 3
    train "$@" >out 2>.output
    code=$?
    if [[ $code == "$want" && ! -s out && $(wc -l <.output) == 1 ]] && grep -qE -- "$pattern" .output; then
        ok "$what"
    else
        echo "exit code $code" >>.output
        not_ok "$what"
    fi
}

# ---- equal bits ----

linear=(--dim 48 --depth 3 --global-batch 32 --momentum 0.9 --steps 20)
lenet=(--model lenet --limit 400 --global-batch 32 --momentum 0.9 --steps 20)
resnet8=(--model resnet8 --limit 64 --global-batch 16 --steps 20)
middle=7 # of a run that goes on
if on_reference; then
    middle=1
    lenet=(--model lenet --limit 64 --global-batch 16 --momentum 0.9 --steps 4)
    resnet8=(--model resnet8 --limit 64 --global-batch 8 --steps 2)
fi
for model in linear lenet resnet8; do
    declare -n options=$model
    whole=$(sha "${options[@]}" --devices 1)
    for how in "--devices 2" "--devices 4" "--devices 1 --accum 2" "--devices 2 --accum 2 --bucket-mb 0.01" \
        "--devices 4 --accum 2" "--devices 4 --bucket-mb 0.000001"; do
        # shellcheck disable=SC2086
        same "$model: $how" "$whole" "$(sha "${options[@]}" $how)"
    done
done
same "each of 8 slots on a device of its own" "$(sha "${linear[@]}")" "$(sha "${linear[@]}" --devices 8)"
refuse "slots are part of the sum: 4 of them give other bits" test \
    "$(sha "${linear[@]}")" = "$(sha "${linear[@]}" --slots 4)"
same "but the same on all devices" "$(sha "${linear[@]}" --slots 4 --devices 2)" "$(sha "${linear[@]}" --slots 4)"
refuse "without the mode, 2 devices round otherwise" test "$("$ECHELON" train "${lenet[@]}" --tune off --threads 1 --json |
    grep params_sha256)" = "$("$ECHELON" train "${lenet[@]}" --tune off --devices 2 --json 2>/dev/null | grep params_sha256)"

# A slot is one image: 8 of resnet18's in a step. On the reference device it would take a minute.
if ! on_reference; then
    resnet18=(--model resnet18 --limit 24 --global-batch 8 --steps 4)
    [[ ${ECH_SAN:-} || ${ECHELON_ISA:-} == generic ]] && resnet18=(--model resnet18 --limit 8 --global-batch 8 --steps 1)
    whole=$(sha "${resnet18[@]}" --devices 1 --accum 2)
    same "resnet18: --devices 2" "$whole" "$(sha "${resnet18[@]}" --devices 2)"
    same "resnet18: --devices 4 --bucket-mb 1" "$whole" "$(sha "${resnet18[@]}" --devices 4 --bucket-mb 1)"
fi

# ---- an epoch's end, and going on ----

# 70 images in steps of 32: 6 of them wait for the next epoch.
short=(--model lenet --limit 70 --global-batch 32 --epochs 2)
same "epochs with a rest" "$(sha "${short[@]}" --devices 1)" "$(sha "${short[@]}" --devices 4)"

whole=$(sha "${lenet[@]}" --devices 2)
train "${lenet[@]}" --steps $middle --devices 2 --save half >/dev/null 2>&1
for devices in 1 2 4; do
    same "saved on 2 devices, goes on with $devices" "$whole" "$(sha "${lenet[@]}" --devices $devices --resume half)"
done
whole=$(sha "${resnet8[@]}" --devices 4)
train "${resnet8[@]}" --steps $middle --devices 1 --save one >/dev/null 2>&1
same "saved on 1 device, goes on with 4" "$whole" "$(sha "${resnet8[@]}" --devices 4 --resume one)"
says "other slots do not go on" '--slots 8; this run has 4' train "${lenet[@]}" --slots 4 --resume half

# ---- what it costs, and what cannot be ----

says "its cost is printed" 'summing slots .* of the step' train "${linear[@]}" --devices 2
fails 2 "slots that the devices do not divide" '--devices 3 with --accum 1: --reproducible divides its 8 slots evenly' \
    "${linear[@]}" --global-batch 48 --devices 3
fails 2 "micro-steps that do not divide them" '--devices 1 with --accum 3: .* 8 slots' "${linear[@]}" --global-batch 48 --accum 3
fails 2 "more devices than slots" '--devices 16 .* 8 slots' "${linear[@]}" --devices 16
fails 1 "samples that the slots do not divide" '30 samples a step cannot be divided into 8 equal slots' \
    "${linear[@]}" --global-batch 30
fails 2 "several threads" '--threads 2: --reproducible requires 1' "${linear[@]}" --threads 2
fails 2 "slots that are no power of two" '--slots 6: must be a power of two' "${linear[@]}" --slots 6
fails 2 "synchronised batch norms" '--sync-bn: --reproducible has the batch statistics of a slot' \
    "${resnet8[@]}" --sync-bn --devices 2
finish
