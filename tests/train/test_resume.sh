#!/bin/bash
# Runs that are interrupted and go on give the bits of runs that are not; checkpoints that cannot be used get one
# sentence each.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

train() { "$ECHELON" train --threads 1 "$@"; }
# value KEY FILE: a number or text of a record, the last one of that name.
value() { sed -nE "s/.*\"$1\": \"?([^\",]*)\"?,?\$/\1/p" "$2" | tail -n 1; }
sha() { train --json "$@" >"$work/.run" 2>"$work/.output" && value params_sha256 "$work/.run"; }
# same WHAT A B: both are there and equal.
same() {
    echo "$2 and $3" >"$work/.output"
    if [[ -n $2 && $2 == "$3" ]]; then ok "$1"; else not_ok "$1"; fi
}
# sentence WHAT PATTERN ARGS...: the run fails with exit code 1 and one line that matches.
sentence() {
    local what=$1 pattern=$2 code
    shift 2
    train "$@" >/dev/null 2>"$work/.output"
    code=$?
    if [[ $code == 1 && $(wc -l <"$work/.output") == 1 ]] && grep -qE -- "$pattern" "$work/.output"; then
        ok "$what"
    else
        echo "exit code $code" >>"$work/.output"
        not_ok "$what"
    fi
}

# ---- equal bits ----

small=(--dim 16 --depth 2 --batch-size 8)
sgd=("${small[@]}" --momentum 0.9 --weight-decay 0.01)
whole=$(sha "${sgd[@]}" --steps 20)
first=$(value first_loss .run) final=$(value final_loss .run)
check "a run is saved at its end" train "${sgd[@]}" --steps 9 --save a
same "sgd with momentum goes on to the same bits" "$whole" "$(sha "${sgd[@]}" --steps 20 --resume a --save a)"
same "with the loss of the very first step" "$first" "$(value first_loss .run)"
same "and the last loss" "$final" "$(value final_loss .run)"
same "nothing is left to do" "$whole" "$(sha "${sgd[@]}" --steps 20 --resume a --save a)"
same "and its loss is still known" "$final" "$(value final_loss .run)"
same "an older checkpoint can be named" "$whole" "$(sha "${sgd[@]}" --steps 20 --resume a/step-000009)"

same "a lost tuning file changes nothing" "$whole" \
    "$(sha "${sgd[@]}" --steps 20 --resume a/step-000009 --tuning-file fresh.json)"
same "nothing is timed then" 0 "$(value timed_kernels .run)"
check "and the kernels are the same" grep -q "\"kernels\": \"the same\"" .run
cp -r a other && sed -i 's/"kernel": "[^"]*"/"kernel": "gone"/' other/step-000009/state.json
seal() { # seal DIR: as if it had been written so
    local file sum
    for file in model.safetensors optimizer.safetensors state.json; do
        sum=$(sha256sum <"$1/$file" | cut -d' ' -f1)
        perl -0pi -e "s/(\"\Q$file\E\": \{\s*\"bytes\": )\d+(,\s*\"sha256\": \")[^\"]*/\${1}$(stat -c %s "$1/$file")\${2}$sum/" \
            "$1/MANIFEST.json"
    done
    sha256sum <"$1/MANIFEST.json" | cut -d' ' -f1 >"$1/COMPLETE"
}
seal other/step-000009
says "kernels that are not here are chosen anew, and it is said" 'chosen anew.*no kernel .gone.' \
    train "${sgd[@]}" --steps 20 --resume other/step-000009

adam=("${small[@]}" --optimizer adam --lr-schedule step --lr-step 4)
whole=$(sha "${adam[@]}" --steps 17)
train "${adam[@]}" --steps 6 --save b >/dev/null 2>&1
same "adam and a schedule go on to the same bits" "$whole" "$(sha "${adam[@]}" --steps 17 --resume b)"
same "with an idle time, too" "$whole" "$(sha "${adam[@]}" --steps 17 --resume b --delay-ms 1)"

# 22 images in batches of 4: the last of an epoch has 2. Shuffled and augmented.
lenet=(--model lenet --limit 22 --batch-size 4 --momentum 0.9)
whole=$(sha "${lenet[@]}" --epochs 2)
losses=$(grep '"loss"' .run)
train "${lenet[@]}" --steps 4 --save c >/dev/null 2>&1
same "images go on in the middle of an epoch" "$whole" "$(sha "${lenet[@]}" --epochs 2 --resume c)"
same "and the losses of the epochs are the same" "$losses" "$(grep '"loss"' .run)"
train "${lenet[@]}" --epochs 1 --save d >/dev/null 2>&1
same "and at the end of one" "$whole" "$(sha "${lenet[@]}" --epochs 2 --resume d --save d)"
same "with the losses of both" "$losses" "$(grep '"loss"' .run)"

# ---- running statistics that every rank has of its own ----

resnet=(--model resnet8 --limit 40 --batch-size 4 --devices 2 --tune off)
own=("${resnet[@]}" --no-broadcast-buffers)
whole=$(sha "${own[@]}" --epochs 2 --save e)
accuracy=$(grep accuracy .run)
train "${own[@]}" --steps 3 --save f >/dev/null 2>&1
same "ranks go on with statistics of their own" "$whole" "$(sha "${own[@]}" --epochs 2 --resume f --save f)"
same "to the same accuracy" "$accuracy" "$(grep accuracy .run)"
for part in model buffers; do
    check "and the same $part" cmp {e,f}/step-000010/$part.safetensors
done
check "the statistics of all ranks are saved" python3 -c '
import json, struct
data = open("e/step-000010/buffers.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
mean = json.loads(data[8:8 + size])["bn1.running_mean"]
values = struct.unpack("<32f", data[8 + size:][slice(*mean["data_offsets"])])
assert mean["shape"] == [2, 16] and values[:16] != values[16:], (mean, values)'
same "a checkpoint can be copied with nothing left to do" "$whole" "$(sha "${own[@]}" --epochs 2 --resume e --save g)"
check "with its statistics" cmp {e,g}/step-000010/buffers.safetensors
train "${resnet[@]}" --steps 3 --save h >/dev/null 2>&1
check "statistics that are broadcast are saved once" test ! -e h/step-000003/buffers.safetensors

# ---- killed ----

cosine=("${small[@]}" --optimizer adamw --lr-schedule cosine --steps 40)
whole=$(sha "${cosine[@]}" --run-dir r1)
"$ECHELON" train --threads 1 "${cosine[@]}" --delay-ms 10 --save k --save-every 3 --run-dir r2 >/dev/null 2>&1 &
pid=$!
for _ in {1..500}; do
    [[ -e k/step-000009 ]] && break
    sleep 0.01
done
kill -9 $pid
{ wait $pid; } 2>/dev/null
refuse "a run is killed in its middle" test -e k/step-000039
same "what it had saved goes on to the same bits" "$whole" \
    "$(sha "${cosine[@]}" --resume k --save k --save-every 3 --run-dir r2)"
step_losses() { sed -E 's/.*("step":[0-9]+).*("loss":[^,]*),.*/\1 \2/' "$1"; }
same "the records hold every step once, with the same losses" "$(step_losses r1/steps.jsonl)" \
    "$(step_losses r2/steps.jsonl)"
same "the last two are kept" "LATEST step-000039 step-000040 " "$(find k -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ' ')"

# ---- what cannot be used ----

more=("${sgd[@]}" --steps 30)
sentence "nothing there" 'no checkpoint at nowhere: No such file' "${more[@]}" --resume nowhere
mkdir empty && sentence "an empty directory" 'no checkpoint in empty' "${more[@]}" --resume empty
sentence "a file" 'no checkpoint at tuning.json: it is not a directory' "${more[@]}" --resume tuning.json
sentence "another model" 'is a checkpoint of linear; this run trains lenet' "${lenet[@]}" --steps 30 --resume a
sentence "another width" '--dim 16; this run has 32' "${more[@]}" --dim 32 --resume a
sentence "another batch" '--batch-size 8; this run has 4' "${more[@]}" --batch-size 4 --resume a
sentence "another optimizer" '--optimizer sgd; this run has adam' "${adam[@]}" --steps 30 --resume a
sentence "another rate" '--lr 0.01; this run has 0.02' "${more[@]}" --lr 0.02 --resume a
sentence "another momentum" '--momentum 0.9; this run has 0.8' "${more[@]}" --momentum 0.8 --resume a
sentence "another seed" '--seed 0; this run has 1' "${more[@]}" --seed 1 --resume a
sentence "another number of threads" '--threads 1; this run has 2' "${more[@]}" --threads 2 --resume a
sentence "another cosine" '--steps 40; this run has 50' "${cosine[@]}" --steps 50 --resume k
sentence "another order" '--no-shuffle false; this run has true' "${lenet[@]}" --epochs 2 --no-shuffle --resume d
sentence "other data" '--limit 22; this run has 30' "${lenet[@]}" --epochs 2 --limit 30 --resume d
sentence "fewer steps than it has" 'is at step 20; this run ends at step 10' "${sgd[@]}" --steps 10 --resume a
sentence "the directory of another run is not written to" 'holds step 20 of another run' "${more[@]}" --save a
says "--save-every alone is wrong usage" '--save-every requires --save' train --save-every 3

# broken WHAT PATTERN COMMAND: a copy of a good one that the command, run inside of it, spoils.
broken() {
    rm -rf x && cp -r a/step-000020 x && (cd x && eval "$3")
    sentence "$1" "$2" "${more[@]}" --resume x
}
# ranks refuse after the launcher has said how many they are, and it names the first that fails
apart() { says "$1" "$2" train "${@:3}"; }
apart "broadcast buffers after runs without" '--no-broadcast-buffers true; this run has false' \
    "${resnet[@]}" --epochs 2 --resume e
apart "buffers of their own after broadcast ones" '--no-broadcast-buffers false; this run has true' \
    "${own[@]}" --epochs 2 --resume h

# Files of CIFAR-10 whose first 20 images have two of each label; the others are black.
mkdir cifar && truncate -s 30730000 cifar/data_batch_{1..5}.bin cifar/test_batch.bin
# paint SEED: pixels of the 20 images, whose labels stay as they are
paint() {
    python3 - "$1" <<'PY'
import random, sys
random.seed(int(sys.argv[1]))
for name in ("data_batch_1", "test_batch"):
    with open(f"cifar/{name}.bin", "r+b") as file:
        for image in range(20):
            file.write(bytes([image % 10]) + random.randbytes(3072))
PY
}
cifar=(--model lenet --data cifar10 --data-dir cifar --limit 20 --batch-size 4)
paint 1
train "${cifar[@]}" --steps 2 --save i >/dev/null 2>&1
check "the same images" train "${cifar[@]}" --epochs 1 --resume i
paint 2
sentence "other pixels under the same labels" 'i/step-000002: its images have the SHA-256 .*; those of this run have' \
    "${cifar[@]}" --epochs 1 --resume i
cp -r i/step-000002 j && python3 - <<'PY' && seal j
import json
state = json.load(open("j/state.json"))
del state["config"]["pixels"]
json.dump(state, open("j/state.json", "w"))
PY
check "a checkpoint of before the images were hashed" train "${cifar[@]}" --epochs 1 --resume j

broken "no marker" 'x is incomplete: it has no COMPLETE' 'rm COMPLETE'
broken "half a marker" 'x is incomplete: COMPLETE is truncated' 'truncate -s 10 COMPLETE'
broken "no manifest" 'x/MANIFEST.json is missing' 'rm MANIFEST.json'
broken "a changed manifest" 'x/MANIFEST.json has the SHA-256 .*; COMPLETE says' 'echo >>MANIFEST.json'
for part in model.safetensors optimizer.safetensors state.json; do
    broken "no $part" "x/$part is missing from the checkpoint" "rm $part"
    broken "half of $part" "x/$part has 100 bytes; MANIFEST.json says" "truncate -s 100 $part"
    broken "a changed byte in $part" "x/$part has the SHA-256 .*; MANIFEST.json says" \
        "printf '#' | dd of=$part bs=1 seek=90 conv=notrunc status=none"
done
broken "a pipe for a part" 'x/model.safetensors: is a pipe, not a regular file' 'rm model.safetensors; mkfifo model.safetensors'
broken "another format" 'state.json: the format is 9, written by Echelon' 'sed -i "s/\"format\": 1/\"format\": 9/" state.json; seal .'
broken "no JSON" 'state.json: ' 'echo "{" >state.json; seal .'
broken "another model under its name" "model.safetensors: .*layers" 'cp ../c/step-000004/model.safetensors .; seal .'
broken "another optimizer's state" "optimizer.safetensors: .*momentum.* which the optimizer needs" \
    'cp ../b/step-000006/optimizer.safetensors .; seal .'
rm -rf y && cp -r a y
echo nonsense >y/LATEST && sentence "a LATEST that is none" 'y/LATEST does not name a checkpoint' "${more[@]}" --resume y
echo step-000777 >y/LATEST && sentence "a LATEST that leads nowhere" 'names step-000777, which does not exist' "${more[@]}" --resume y
rm y/LATEST && check "without LATEST the newest is taken" grep -q 'y/step-000020' <(train "${more[@]}" --resume y)
finish
