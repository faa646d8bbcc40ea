#!/bin/bash
# Mixed precision from the command line: on several devices, going on from a checkpoint, and evaluated as it is trained.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

train() { "$ECHELON" train --threads 1 "$@"; }
# sha ARGS...: of the parameters that a run ends with
sha() { train --json "$@" 2>.output | sed -nE 's/.*"params_sha256": "([0-9a-f]{64})".*/\1/p'; }
# same WHAT A B: both are there and equal.
same() {
    [[ -s .output ]] || echo "$2 and $3" >.output
    if [[ -n $2 && $2 == "$3" ]]; then ok "$1"; else not_ok "$1"; fi
}

lenet=(--model lenet --limit 400 --global-batch 32 --momentum 0.9 --steps 12)
on_reference && lenet=(--model lenet --limit 64 --global-batch 8 --momentum 0.9 --steps 6)
resnet=(--model resnet8 --limit 70 --batch-size 32)
on_reference && resnet=(--model resnet8 --limit 18 --batch-size 8)
for amp in bf16 fp16; do
    whole=$(sha "${lenet[@]}" --amp $amp --reproducible)
    for how in "--devices 2" "--devices 2 --accum 2" "--devices 4"; do
        # shellcheck disable=SC2086
        same "$amp, reproducible: $how" "$whole" "$(sha "${lenet[@]}" --amp $amp --reproducible $how)"
    done
    same "$amp on two devices, twice" "$(sha "${lenet[@]}" --amp $amp --devices 2)" \
        "$(sha "${lenet[@]}" --amp $amp --devices 2)"
    same "$amp: going on from a checkpoint" "$(sha "${lenet[@]}" --amp $amp)" \
        "$(sha "${lenet[@]}" --amp $amp --steps 5 --save "at-$amp" >/dev/null &&
            sha "${lenet[@]}" --amp $amp --resume "at-$amp")"
    refuse "$amp is not f32" test "$whole" = "$(sha "${lenet[@]}" --reproducible)"
    check "$amp: an epoch and its evaluation" train "${resnet[@]}" --epochs 1 --amp $amp
    check "$amp: synchronised batch norms" train "${resnet[@]}" --devices 2 --steps 2 --sync-bn --amp $amp
done
says "memory of 16 bits is planned" "copies" train --fit --model resnet18 --batch-size 32 --amp bf16
finish
