#!/bin/bash
# Loss scaling, clipping and gradients in bf16 from the command line: what the records say, steps that are skipped, the end of a
# training that no scale helps, checkpoints, and losses held against those of another run.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

train() { "$ECHELON" train --threads 1 --tune off "$@"; }
# run NAME ARGS...: a run with records in NAME and its output in NAME.json
run() {
    local name=$1
    shift
    train --json --run-dir "$name" "$@" >"$name.json" 2>.output
}
# holds WHAT FILE EXPRESSION: a record r (or, of .jsonl, the list of its lines) is as Python says
holds() {
    check "$1" python3 -c '
import json, sys
text = open(sys.argv[1]).read()
r = [json.loads(l) for l in text.splitlines()] if sys.argv[1].endswith("l") else json.loads(text)
s = r["summary"] if isinstance(r, dict) else None
t = s.get("stability") if s else None
if not ('"$3"'):
    sys.exit("not so: " + sys.argv[2] + "\nin: " + json.dumps(t or r)[:1500])' "$2" "$3"
}
get() { python3 -c 'import json, sys; s = json.load(open(sys.argv[1]))["summary"]; print(eval(sys.argv[2]))' "$1" "$2"; }
same() {
    echo "$2 and $3" >.output
    if [[ -n $2 && $2 == "$3" ]]; then ok "$1"; else not_ok "$1"; fi
}

small=(--dim 48 --depth 2 --batch-size 8 --lr 0.1)

# ---- records ----

check "a plain run" run plain "${small[@]}" --steps 12
holds "says nothing about stability" plain.json '"stability" not in s and r["config"]["amp"] == "off"'
holds "nor in its steps" plain/steps.jsonl 'not any(k in l for l in r for k in ("scale", "skipped", "grad_norm"))'
check "a scaled one" run scaled "${small[@]}" --steps 12 --loss-scale 65536
same "a scale is undone to the bit" "$(get plain.json 's["params_sha256"]')" "$(get scaled.json 's["params_sha256"]')"
holds "its steps have the scale" scaled/steps.jsonl \
    'all(l["scale"] == 65536 and l["skipped"] is False and l["grad_norm"] > 0 for l in r)'
holds "and it was stable" scaled.json \
    't["skipped_steps"] == 0 and t["scale_history"] == [[1, 65536]] and t["largest_gradient"] > 0 and t["nonfinite_events"] == []'
run fp16 "${small[@]}" --steps 6 --amp fp16
holds "fp16 is scaled by itself" fp16/steps.jsonl 'all(l["scale"] == 65536 for l in r)'
run fp16off "${small[@]}" --steps 6 --amp fp16 --loss-scale off
holds "unless it is switched off" fp16off/steps.jsonl 'all(l["scale"] == 1 and not l["skipped"] for l in r)'
says "bf16 is not, and says why" 'not scaled: bf16 has the exponents of f32' train "${small[@]}" --steps 6 --amp bf16
says "and sums up its stability in a line" '^stability .* 0 non-finite steps, 0 skipped' train "${small[@]}" --steps 6 --amp bf16
run memory "${small[@]}" --steps 6 --devices 2
holds "memory is told by kind, for every device" memory.json \
    'len(s["memory_by_kind"]) == 2 and all(set(k) >= set("weights copies gradients optimizer activations workspace".split()) and sum(k.values()) == m for k, m in zip(s["memory_by_kind"], s["planned_memory_bytes"]))'

# ---- skipped steps ----

# make FILE FIRST REST: one batch of 8 samples, all of whose numbers are about REST, but for the first.
make() {
    python3 - "$@" <<'END'
import json, math, struct, sys
first, rest = map(float, sys.argv[2:])
x = struct.pack("<384f", first, *(rest * math.sin(k) for k in range(1, 384)))
y = struct.pack("<384f", *(math.cos(k) for k in range(384)))
header = json.dumps({"x": {"dtype": "F32", "shape": [8, 48], "data_offsets": [0, len(x)]},
                     "y": {"dtype": "F32", "shape": [8, 48], "data_offsets": [len(x), 2 * len(x)]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(header)) + header + x + y)
END
}

# A scale at the end of f32 overflows with large samples until it has been halved often enough.
make large.safetensors 1000 1000
free_of_scale=(--dim 48 --depth 2 --data large.safetensors --optimizer adam --lr 0.001)
over=("${free_of_scale[@]}" --loss-scale 1.7014118346046923e38) # 2^127: exact
check "a scale that is too large" run over "${over[@]}" --steps 40
holds "is halved from step to step" over/steps.jsonl \
    'r[0]["skipped"] and not r[-1]["skipped"] and all(b["scale"] == a["scale"] / (2 if a["skipped"] else 1) for a, b in zip(r, r[1:]))'
holds "which is recorded" over.json \
    't["skipped_steps"] == t["nonfinite_steps"] == len(t["nonfinite_events"]) == len(t["scale_history"]) - 1 > 0 and t["nonfinite_events"][0] == 1'
holds "gradients that are not finite have no norm" over/steps.jsonl 'all((l["grad_norm"] is None) == l["skipped"] for l in r)'
skipped=$(get over.json 's["stability"]["skipped_steps"]')
run short "${free_of_scale[@]}" --steps $((40 - skipped))
same "what is left is the training without the skipped steps" "$(get over.json 's["params_sha256"]')" \
    "$(get short.json 's["params_sha256"]')"
run over2 "${over[@]}" --steps 40 --devices 2
holds "two devices skip together" over2.json 't["skipped_steps"] > 0 and t["scale_history"][-1][1] < 2**127'

# With a sample that is far too large every step breaks, and no scale helps.
make huge.safetensors 1e30 0.5
huge=(--dim 48 --depth 2 --data huge.safetensors --loss-scale 0.001 --steps 100)
says "a loss that is not finite is no matter of its scale" 'has diverged: the loss is inf at step 1' train "${huge[@]}"
says "a training run that goes on without any scale that helps ends with an error message" \
    'not finite in 16 consecutive steps at the smallest loss scale, 6\.10352e-05' train "${huge[@]}" --keep-going
train "${huge[@]}" --keep-going >.output 2>&1
same "and exit code 1" 1 $?

# ---- clipping ----

run clipped "${small[@]}" --steps 8 --clip-norm 0.01
holds "a clipped run tells its norms" clipped/steps.jsonl 'all(l["grad_norm"] > 0.01 and "scale" not in l for l in r)'
run loose "${small[@]}" --steps 8 --clip-norm 1e6
run free "${small[@]}" --steps 8
same "a norm that is never reached changes no bit" "$(get loose.json 's["params_sha256"]')" "$(get free.json 's["params_sha256"]')"
refuse "one that is does" test "$(get clipped.json 's["params_sha256"]')" = "$(get free.json 's["params_sha256"]')"
reproducible=(--dim 48 --depth 2 --global-batch 16 --lr 0.1 --reproducible --clip-norm 0.01 --loss-scale 1024 --steps 6)
run r1 "${reproducible[@]}"
run r2 "${reproducible[@]}" --devices 2 --bucket-mb 0.001
same "the reproducible mode clips to the same bits on any number of devices" "$(get r1.json 's["params_sha256"]')" \
    "$(get r2.json 's["params_sha256"]')"

# ---- gradients in bf16 ----

two=("${small[@]}" --devices 2 --steps 10 --bucket-mb 0.004)
run f32 "${two[@]}" --shared-update off
run bf16 "${two[@]}" --grad-dtype bf16
holds "half of the bytes travel" bf16.json \
    's["comm_bytes_per_step"] == 2 * s["parameters"] and r["config"]["grad_dtype"] == "bf16"'
holds "for losses that are nearly the same" bf16/steps.jsonl \
    "all(abs(l['loss'] - json.loads(m)['loss']) < 1e-3 * l['loss'] for l, m in zip(r, open('f32/steps.jsonl'))) and r[-1]['loss'] != json.loads(open('f32/steps.jsonl').readlines()[-1])['loss']"
holds "a device takes what was planned" bf16.json 's["peak_memory_bytes"] == s["planned_memory_bytes"]'
run accum "${two[@]}" --grad-dtype bf16 --accum 3 --clip-norm 0.1 --loss-scale 64
holds "with accumulation, clipping and a scale" accum.json \
    's["comm_bytes_per_step"] == 2 * s["parameters"] and s["peak_memory_bytes"] == s["planned_memory_bytes"]'
run virtual "${two[@]}" --grad-dtype bf16 --clock virtual --link 1GB/s,5us
run virtual32 "${two[@]}" --shared-update off --clock virtual --link 1GB/s,5us
holds "emulated links carry half" virtual.json \
    "abs(sum(b['bytes'] for b in s['communication']['buckets']) * 2 / sum(b['bytes'] for b in json.load(open('virtual32.json'))['summary']['communication']['buckets']) - 1) < 0.05"
run one "${small[@]}" --steps 4 --grad-dtype bf16
run one32 "${small[@]}" --steps 4
same "one device exchanges nothing, and has the bits of f32" "$(get one.json 's["params_sha256"]')" "$(get one32.json 's["params_sha256"]')"

# ---- checkpoints ----

whole=$(get over.json 's["params_sha256"]')
train "${over[@]}" --steps 5 --save ckpt >/dev/null 2>&1
run resumed "${over[@]}" --steps 40 --resume ckpt
same "scale and steps of adam go on to the same bits" "$whole" "$(get resumed.json 's["params_sha256"]')"
holds "and all skipped steps are counted" resumed.json "t['skipped_steps'] == $skipped"
holds "the scale goes on where it was" resumed.json \
    "t['scale_history'][-1][1] == json.load(open('over.json'))['summary']['stability']['scale_history'][-1][1]"
says "another scale is refused" 'made with --loss-scale 1.70141183e\+38; this run has off' \
    train "${free_of_scale[@]}" --steps 40 --resume ckpt
train "${small[@]}" --steps 5 --save old >/dev/null 2>&1
python3 - <<'END'
import hashlib, json, os
place = "old/step-000005/"
state = json.load(open(place + "state.json"))
for key in "amp grad-dtype clip-norm loss-scale".split():
    del state["config"][key]
del state["position"]["updates"]
assert "scaler" not in state
open(place + "state.json", "w").write(json.dumps(state))
manifest = json.load(open(place + "MANIFEST.json"))
text = open(place + "state.json", "rb").read()
def fix(node):
    for key, value in node.items():
        if key == "state.json":
            value["bytes"], value["sha256"] = len(text), hashlib.sha256(text).hexdigest()
        elif isinstance(value, dict):
            fix(value)
fix(manifest)
open(place + "MANIFEST.json", "w").write(json.dumps(manifest))
open(place + "COMPLETE", "w").write(hashlib.sha256(open(place + "MANIFEST.json", "rb").read()).hexdigest() + "\n")
END
run old12 "${small[@]}" --steps 12 --resume old
same "a checkpoint from before there was scaling goes on" "$(get plain.json 's["params_sha256"]')" "$(get old12.json 's["params_sha256"]')"
says "but not with other options" 'made with --amp off; this run has bf16' train "${small[@]}" --steps 12 --resume old --amp bf16

# ---- against an f32 run ----

run near "${small[@]}" --steps 12 --amp bf16 --against plain
holds "losses are held against those of another run" near.json \
    't["loss_against_f32"]["steps"] == 12 and 0 <= t["loss_against_f32"]["final"] <= t["loss_against_f32"]["largest"] < 0.02 and t["loss_against_f32"]["run"] == "plain"'
run apart "${small[@]}" --steps 12 --clip-norm 0.001 --against plain
holds "and differ where the training does" apart.json \
    't["loss_against_f32"]["largest"] > 1e-4 and t["loss_against_f32"]["largest_at_step"] > 1'
says "a line says so" 'losses differ from those of plain by at most .* %' train "${small[@]}" --steps 12 --clip-norm 0.001 --against plain
says "another seed is refused" 'plain/run.json: it has seed 0 and this run has 3' train "${small[@]}" --seed 3 --against plain
says "another model" 'plain/run.json: it has dim 48 and this run has 40' train "${small[@]}" --dim 40 --against plain
says "another batch" 'it has global_batch 8 and this run has 9' train --dim 48 --depth 2 --lr 0.1 --batch-size 9 --against plain
says "a run that is not f32" 'it ran with amp "bf16"; an f32 run is needed' train "${small[@]}" --steps 12 --against near
rm plain/steps.jsonl
says "and one without its steps" 'plain/steps.jsonl cannot be read' train "${small[@]}" --against plain
finish
