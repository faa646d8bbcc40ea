#!/bin/bash
# echelon train --parallel dp: the losses of one device, records of every device, checkpoints, and what it refuses.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

train() { "$ECHELON" train --threads 1 "$@"; }
dp() { train --parallel dp "$@"; }
# Runs python3 over the summary s of a run's record and its trace t.
ask() { python3 -c "import json; s = json.load(open('r/run.json'))['summary']; t = json.load(open('r/trace.json')); assert $1, s"; }
# sentence WHAT CODE PATTERN ARGS...: one line that matches.
sentence() {
    local what=$1 expected=$2 pattern=$3 code
    shift 3
    dp "$@" >/dev/null 2>"$work/.output"
    code=$?
    if [[ $code == "$expected" && $(wc -l <"$work/.output") == 1 ]] && grep -qE -- "$pattern" "$work/.output"; then
        ok "$what"
    else
        echo "exit code $code" >>"$work/.output"
        not_ok "$what"
    fi
}
# value KEY FILE: a number or text of a record, the last one of that name.
value() { sed -nE "s/.*\"$1\": \"?([^\",]*)\"?,?\$/\1/p" "$2" | tail -n 1; }
sha() { dp --json "$@" >"$work/.run" 2>"$work/.output" && value params_sha256 "$work/.run"; }

linear=(--dim 24 --depth 2 --steps 8 --warmup 2 --tune off)
check "two devices train" dp "${linear[@]}" --global-batch 15 --devices 2 --run-dir r --trace
check "one device does too" train "${linear[@]}" --global-batch 15 --json --run-dir one
check "to the same loss" python3 -c "
import json
a, b = (json.load(open(d + '/run.json'))['summary'] for d in ('r', 'one'))
assert abs(a['final_loss'] - b['final_loss']) <= 1e-5 * b['final_loss'], (a, b)
assert a['first_loss'] > a['final_loss']"
check "the record has both devices" ask "s['devices'] == 2 and s['world_size'] == 1 and len(s['utilisation']) == 2"
check "both were busy" ask "all(0 < u <= 1 for u in s['utilisation'])"
check "memory is what was planned" ask "s['peak_memory_bytes'] == s['planned_memory_bytes'] and len(s['peak_memory_bytes']) == 2"
check "and the first device has more of it" ask "s['peak_memory_bytes'][0] > s['peak_memory_bytes'][1] > 0"
for thread in 0 1; do
    check "the trace has the parts of device $thread" ask \
        "len([e for e in t if e['tid'] == $thread and e['name'] == 'forward']) == 8"
    check "and its operators" ask \
        "len([e for e in t if e['tid'] == $thread and e['name'].startswith('linear_bwd_weights')]) == 16"
done
check "the optimizer is the first device's" ask "{e['tid'] for e in t if e['name'].startswith('sgd')} == {0}"

# 50 images in batches of 15: the last of an epoch has 5, and three devices have parts of 5, 5, 5 and of 2, 2, 1.
images=(--model lenet --limit 50 --global-batch 15 --devices 3 --momentum 0.9 --warmup 1)
whole=$(sha "${images[@]}" --epochs 2)
check "epochs with a short batch end with an evaluation" grep -q '"accuracy"' .run
check "a run is saved in its middle" dp "${images[@]}" --epochs 2 --save c --save-every 3
resumed=$(sha "${images[@]}" --epochs 2 --resume c/step-000006)
echo "$whole and $resumed" >.output
check "and goes on to the same bits" test -n "$whole" -a "$whole" = "$resumed"

says "--memory counts the whole batch of device 0" 'Planned memory for a batch of 15:' dp "${linear[@]}" --global-batch 15 --devices 2 --memory
sentence "more devices than there can be" 1 '65 data parallel devices: from 1 to 64' "${linear[@]}" --devices 65
sentence "accumulation is none of it" 2 '--accum is not supported with DataParallel' "${linear[@]}" --devices 2 --accum 2
sentence "synchronised batch norms are none of it" 2 '--sync-bn is not supported with DataParallel' "${linear[@]}" --devices 2 --sync-bn
sentence "memory that is not there" 1 'limit is 20000 bytes' "${linear[@]}" --devices 2 --device-memory 20000
finish
