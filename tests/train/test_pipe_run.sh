#!/bin/bash
# echelon train --parallel mp and pipeline: the losses of one device, what is printed and recorded, checkpoints, groups of
# devices, more devices than cores, and what is refused.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

# run NAME ARGS...: a run whose record is in NAME
run() {
    local name=$1
    shift
    "$ECHELON" train --json --run-dir "$name" "$@" >/dev/null 2>.output
}
# holds WHAT EXPRESSION NAMES...: of the summaries s[NAME], losses l[NAME], kernels of linear layers k[NAME] and traces t[NAME] of runs
holds() {
    local what=$1 expression=$2
    shift 2
    check "$what" python3 -c '
import json, os, sys
s = {n: json.load(open(n + "/run.json"))["summary"] for n in sys.argv[2:]}
l = {n: [json.loads(x)["loss"] for x in open(n + "/steps.jsonl")] for n in s}
k = {n: sorted([o["op"], o["name"], o["kernel"]] for o in json.load(open(n + "/run.json")).get("kernels", []) if o["op"].startswith("linear")) for n in s}
t = {n: json.load(open(n + "/trace.json")) for n in s if os.path.exists(n + "/trace.json")}
if not eval(sys.argv[1]):
    sys.exit("not so: " + sys.argv[1] + "\n" + json.dumps([s, l])[:4000])' "$expression" "$@"
}
real=(--threads 1 --clock real --steps 8 --warmup 2)
linear=(--dim 32 --depth 6 --batch-size 16 "${real[@]}")

# ---- the numbers ----

check "one device" run one "${linear[@]}"
for devices in 2 5; do
    check "layers on $devices devices" run "mp$devices" "${linear[@]}" --parallel mp --devices $devices --trace
    holds "have its losses to the bit" "l['one'] == l['mp$devices'] and s['one']['params_sha256'] == s['mp$devices']['params_sha256']" one "mp$devices"
    holds "move $((devices - 1)) times each way" "(lambda x: x['forward'] == x['backward'] == $devices - 1 and x['asked'] == 6 and x['inputs'] == 2 and x['bytes'] == 2 * ($devices - 1) * 16 * 32 * 4 and len(x['moves']) == 2 * ($devices - 1))(s['mp$devices']['transfers'])" "mp$devices"
    holds "take the memory that was planned" "s['mp$devices']['peak_memory_bytes'] == s['mp$devices']['planned_memory_bytes'] and len(s['mp$devices']['peak_memory_bytes']) == $devices" "mp$devices"
    holds "which is recorded by kind" "[sum(m.values()) for m in s['mp$devices']['memory_by_kind']] == s['mp$devices']['peak_memory_bytes']" "mp$devices"
    holds "are in the record" "[p['device'] for p in s['mp$devices']['placement']] == [i * $devices // 6 for i in range(6)] and all(p['time_s'] > 0 for p in s['mp$devices']['placement'])" "mp$devices"
    holds "and are counted for each device" "[x['layers'] for x in s['mp$devices']['stages']] == [sum(p['device'] == d for p in s['mp$devices']['placement']) for d in range($devices)] and sum(x['parameters'] for x in s['mp$devices']['stages']) == s['mp$devices']['parameters']" "mp$devices"
    holds "work one at a time" "sum(s['mp$devices']['utilisation']) <= 1.1 and all(u > 0 for u in s['mp$devices']['utilisation'])" "mp$devices"
    holds "are lanes of the trace with transfers between them" "{e['tid'] for e in t['mp$devices'] if e['name'].startswith('linear ')} == set(range($devices)) and len([e for e in t['mp$devices'] if e.get('cat') == 'transfer' and e['ph'] == 'X']) == 8 * 2 * ($devices - 1)" "mp$devices"
done
# Two layouts of a weight whose times have the same sum, but not when they are added up in floating point in the order of the operators.
python3 - tuning.json ties.json <<'END'
import json, sys
times = json.load(open(sys.argv[1]))
first, second = ({"linear+relu": f * 1e-9, "linear_bwd_weights+bias": w * 1e-9, "linear_bwd_data": d * 1e-9}
                 for f, w, d in ((971, 1121, 531), (1101, 551, 971)))
layouts = []
for works in times["machines"].values():
    for work, kernels in works.items():
        layout = work.split(" 32x32.")[1].split()[0]
        layouts += [layout] if layout not in layouts else []
        row = (first, second)[layouts.index(layout) % 2].get(work.split()[0])
        kernels.update({kernel: row for kernel in kernels if row})
json.dump(times, open(sys.argv[2], "w"))
END
check "one device where layouts are as fast" run tie1 "${linear[@]}" --tuning-file ties.json
check "five devices where layouts are as fast" run tie5 "${linear[@]}" --tuning-file ties.json --parallel mp --devices 5
holds "choose alike" "l['tie1'] == l['tie5'] and s['tie1']['params_sha256'] == s['tie5']['params_sha256'] and k['tie1'] == k['tie5']" tie1 tie5
check "a pipeline of one micro-batch" run p1 "${linear[@]}" --parallel pipeline --devices 3 --micro-batches 1
holds "is the same" "l['one'] == l['p1']" one p1
for order in gpipe 1f1b; do
    check "a pipeline in the order $order" run "$order" "${linear[@]}" --parallel pipeline --devices 3 --micro-batches 8 --pipeline-schedule $order --trace
    holds "has the losses of one device" "all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(l['$order'], l['one']))" "$order" one
    holds "and its bubble beside the formula" "abs(s['$order']['bubble']['ideal'] - 2 / 10) < 1e-12 and 0 <= s['$order']['bubble']['measured'] < 1" "$order"
    holds "and every micro-batch in its trace" "len([e for e in t['$order'] if e['name'] == 'linear layers.0']) == 8 * 8" "$order"
done
holds "both orders add up alike" "l['gpipe'] == l['1f1b']" gpipe 1f1b
holds "the one in turns holds fewer activations" "s['1f1b']['memory_by_kind'][2]['activations'] * 8 == s['gpipe']['memory_by_kind'][2]['activations']" gpipe 1f1b
says "the table has the placement" '^ *layers\.5 +1 +1056 ' "$ECHELON" train "${linear[@]}" --parallel mp --devices 2
says "and the operator that a move comes after" '0 +1 +forward .* linear layers\.2' "$ECHELON" train "${linear[@]}" --parallel mp --devices 2
says "and counts what was asked for" '6 requested in a forward pass.*1 forward and 1 backward performed' "$ECHELON" train "${linear[@]}" --parallel mp --devices 2
says "--fit has every device" '^ +1 .* [0-9.]+ [KMG]?B$' "$ECHELON" train "${linear[@]}" --parallel mp --devices 2 --fit

# ---- images, epochs, checkpoints ----

samples=(--limit 50 --batch-size 16)
on_reference && samples=(--limit 26 --batch-size 8)
images=(--model resnet8 "${samples[@]}" --threads 1 --clock real --momentum 0.9 --warmup 1)
check "epochs with a rest on one device" run whole "${images[@]}" --epochs 2
check "and on three" run cut "${images[@]}" --epochs 2 --parallel mp --devices 3
holds "are the same, evaluation too" "l['whole'] == l['cut'] and s['whole']['params_sha256'] == s['cut']['params_sha256'] and s['whole']['accuracy'] == s['cut']['accuracy']" whole cut
check "a run is saved in its middle" run half "${images[@]}" --epochs 2 --parallel mp --devices 3 --save c --save-every 3
check "and goes on" run resumed "${images[@]}" --epochs 2 --parallel mp --devices 3 --resume c/step-000006
holds "to the same bits" "s['cut']['params_sha256'] == s['resumed']['params_sha256']" cut resumed

# ---- groups of devices ----

check "two ranks" run ddp "${linear[@]}" --devices 2
check "two groups of two devices" run mesh "${linear[@]}" --devices 4 --mp 2
holds "have the same losses to the bit" "l['ddp'] == l['mesh'] and s['ddp']['params_sha256'] == s['mesh']['params_sha256']" ddp mesh
holds "and count all devices" "s['mesh']['devices'] == 4 and s['mesh']['world_size'] == 2 and len(s['mesh']['utilisation']) == 4" mesh
check "images in two groups" run mesh-images "${images[@]}" --epochs 1 --devices 4 --mp 2
check "and on two ranks" run ddp-images "${images[@]}" --epochs 1 --devices 2
holds "are the same" "l['ddp-images'] == l['mesh-images'] and s['ddp-images']['accuracy'] == s['mesh-images']['accuracy']" ddp-images mesh-images
check "two groups of pipelines" run mesh-pipe "${linear[@]}" --devices 4 --mp 2 --parallel pipeline --micro-batches 4
holds "are near" "all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(l['mesh-pipe'], l['ddp']))" mesh-pipe ddp

# ---- more devices than cores ----

check "six devices by virtual clocks" run virtual --dim 32 --depth 6 --batch-size 16 --steps 8 --warmup 2 --parallel mp --devices 6 --clock virtual
holds "compute the same, and say so" "l['virtual'] == l['one'] and s['virtual']['clock'] == 'emulated'" virtual one
check "groups by virtual clocks" run virtual-mesh --dim 32 --depth 6 --batch-size 16 --steps 8 --warmup 2 --devices 4 --mp 2 --clock virtual
holds "compute the same too" "l['virtual-mesh'] == l['ddp'] and s['virtual-mesh']['clock'] == 'emulated'" virtual-mesh ddp
check "slow links" run slow --dim 32 --depth 6 --batch-size 16 --steps 8 --warmup 2 --parallel mp --devices 3 --clock virtual --link 1GB/s,100ms
holds "cost their latency there and back" "0.4 <= s['slow']['step_time_s']['median'] <= 0.45" slow

# ---- what is refused ----

# wrong CODE PATTERN ARGS...: one line that matches
wrong() {
    local expected=$1 pattern=$2 code
    shift 2
    timeout 20 "$ECHELON" train --dim 8 --depth 3 --steps 2 --warmup 0 --threads 1 "$@" >/dev/null 2>.output
    code=$?
    if [[ $code == "$expected" && $(wc -l <.output) == 1 ]] && grep -qE -- "$pattern" .output; then
        ok "refused: $*"
    else
        echo "exit code $code" >>.output
        not_ok "refused: $*"
    fi
}
wrong 1 '4 model-parallel devices for a model of 3 layers' --parallel mp --devices 4
wrong 1 "placement '0,1': has a device for 2 layers, and the model has 3" --parallel mp --devices 2 --placement 0,1
wrong 1 "placement '0,1,2': there is no device 2" --parallel mp --devices 2 --placement 0,1,2
wrong 1 "placement 'evenly'" --parallel mp --devices 2 --placement evenly
wrong 1 "in the order of the devices" --parallel pipeline --devices 2 --placement 0,1,0 --micro-batches 2
wrong 2 'micro-batches 3: must divide the batch of 8' --parallel pipeline --devices 2 --batch-size 8 --micro-batches 3
wrong 1 'a batch of 9 samples in 2 micro-batches' --parallel pipeline --devices 2 --global-batch 9 --micro-batches 2
wrong 2 'has one micro-batch; --parallel pipeline has more' --parallel mp --devices 2 --micro-batches 2
wrong 2 'groups of 2 devices must divide them' --devices 3 --mp 2
wrong 2 '--placement is not supported with data parallelism' --placement half
wrong 2 '--mp is not supported with DataParallel' --parallel dp --mp 2
wrong 2 '--reproducible is not supported with model parallelism' --parallel mp --devices 2 --reproducible
wrong 2 '--straggle is not supported with model parallelism' --devices 4 --mp 2 --straggle 1:5
wrong 1 'device [01]: .*limit is 2000 bytes' --parallel mp --devices 2 --device-memory 2000
finish
