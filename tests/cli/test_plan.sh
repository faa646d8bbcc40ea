#!/bin/bash
# echelon plan: costs are measured once and kept, memory is what a training plans, prices obey their links, and what it
# refuses.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/plan.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

linear=(--dim 64 --depth 2 --tune off)
plan() { "$ECHELON" plan --measure-seconds 0.05 "$@"; }
json() {
    local name=$1
    shift
    plan --json "$@" >"$name.json" 2>.output
}

# ---- costs ----

check "costs are measured" json own "${linear[@]}" --batch-size 8 --devices 1,2,4
check "and kept beside the kernel timings" test -s costs.json
sum=$(sha256sum costs.json)
check "the second time they are there" json again "${linear[@]}" --batch-size 8 --devices 1,2,4
check "and nothing was measured" test "$sum" = "$(sha256sum costs.json)"
check "nor said" test ! -s .output
holds "both times the prices are the same" 'd["own"]["rows"] == d["again"]["rows"]' own again
holds "one device is measured, others are predicted" '[x["clock"] for x in d["own"]["rows"]] == ["measured", "predicted", "predicted"]' own
holds "every figure is there" 'all(x[k] >= 0 for x in d["own"]["rows"] for k in "step_time_s compute_s comm_exposed_s comm_hidden_s wait_s speedup efficiency samples_per_s planned_memory_bytes busiest_link_bytes".split())' own
holds "the exchange through shared memory hides nothing" 'r["own"][2]["comm_hidden_s"] < 1e-12 < r["own"][2]["comm_exposed_s"]' own
check "--measure measures again" json anew "${linear[@]}" --batch-size 8 --devices 1 --measure
check "which changes the file" test "$sum" != "$(sha256sum costs.json)"
check "ECHELON_COSTS names another file" env ECHELON_COSTS="$work/other.json" "$ECHELON" plan "${linear[@]}" --batch-size 8 --devices 1 --link 1GB/s,1us
check "which is then there" test -s other.json
holds "operators have their times and their kernels'" 'all(o["median_s"] >= 0 and "tuned_s" in o for m in d["other"]["machines"].values() for k in m["steps"].values() for c in k for o in c["operators"])' other

# ---- memory ----

train() { "$ECHELON" train --threads 1 --steps 2 --warmup 1 --json "$@" >train.json 2>.output; }
memory() {
    local what=$1 parallel=$2 devices=$3
    shift 3
    check "$what: a price" json price "$@" --parallel "$parallel" --devices "$devices"
    check "$what: a training" train "$@" --parallel "$parallel" --devices "$devices"
    holds "$what: memory is exact" "r['price'][$devices]['planned_memory_bytes'] == max(d['train']['summary']['planned_memory_bytes'])" price train
}
memory "linear" ddp 2 "${linear[@]}" --batch-size 8
memory "linear with adam" ddp 2 "${linear[@]}" --batch-size 8 --optimizer adam
memory "lenet" ddp 2 --model lenet --batch-size 16
memory "resnet8 on one device" ddp 1 --model resnet8 --batch-size 4 --momentum 0.9
memory "resnet8 on two" ddp 2 --model resnet8 --batch-size 4 --momentum 0.9
memory "linear, DataParallel" dp 2 "${linear[@]}" --batch-size 8
memory "lenet, DataParallel" dp 2 --model lenet --global-batch 30

# ---- time ----

# Others may be at work on this machine: one agreement in a few tries is enough.
agrees() {
    for _ in 1 2 3 4 5 6; do
        "$ECHELON" plan --json --dim 256 --depth 2 --batch-size 16 --devices 1 --link 1GB/s,1us --measure --measure-seconds 0.3 >price.json 2>>.tries || return 1
        "$ECHELON" train --json --dim 256 --depth 2 --batch-size 16 --threads 1 --steps 200 >train.json 2>>.tries || return 1
        python3 -c '
import json, sys
p = json.load(open("price.json"))["rows"][0]["step_time_s"]
m = json.load(open("train.json"))["summary"]["step_time_s"]["median"]
print("predicted", p, "measured", m)
sys.exit(abs(p - m) > 0.25 * m)' && return 0
    done
    return 1
}
check "a step on one device takes what the price says" agrees

# ---- links ----

check "given links" json slow "${linear[@]}" --batch-size 8 --devices 2,1024 --link 1MB/s,10ms --algorithm ring
bytes=$((4 * (64 * 64 + 64) * 2))
holds "a ring is priced by hand" "abs(r['slow'][2]['comm_s'] - 2 * (0.01 + $bytes / 2 / 1e6)) < 1e-9 and abs(r['slow'][1024]['comm_s'] - 2046 * (0.01 + $bytes / 1024 / 1e6)) < 1e-6" slow
holds "and bytes are counted" "abs(r['slow'][2]['busiest_link_bytes'] - $bytes) <= 1 and d['slow']['exchanged_bytes'] == $bytes" slow
holds "communication is half from 2 devices on" 'd["slow"]["communication_is_half"]["devices"] == 2' slow
check "many devices" json many "${linear[@]}" --batch-size 8 --devices 1-4096 --link 12GB/s,5us
holds "are all there" 'len(d["many"]["rows"]) == 4096' many
holds "samples per second grow with them" 'r["many"][4096]["samples_per_s"] > r["many"][64]["samples_per_s"] > r["many"][1]["samples_per_s"]' many
refuse "more than the cluster has are refused" plan "${linear[@]}" --batch-size 8 --devices 1-4096 --cluster "$ECH_SRC/examples/cluster.json"
check "a cluster" json cluster "${linear[@]}" --batch-size 8 --devices 1,8,32 --cluster "$ECH_SRC/examples/cluster.json"
holds "slower links between its nodes cost more" 'r["cluster"][32]["comm_s"] > r["cluster"][8]["comm_s"] > 0' cluster
check "a step that is cut" json cut "${linear[@]}" --global-batch 64 --devices 1,2,8 --link 1GB/s,1us
holds "has smaller parts" '[x["batch"] for x in d["cut"]["rows"]] == [64, 32, 8]' cut

# ---- layers on several devices ----

stack=(--dim 32 --depth 4 --tune off --measure-seconds 0.05)
check "layers on devices one after the other" json layers "${stack[@]}" --parallel mp --batch-size 16 --devices 1,2,4 --link 1GB/s,10ms
# A gradient of data is under way while that of the weights beside it is computed: messages hide behind one step at most.
holds "cost their messages there and back" 'all(0 <= r["layers"][n]["step_time_s"] - 0.02 * (n - 1) <= r["layers"][1]["step_time_s"] + 0.001 for n in (2, 4))' layers
holds "and idle most of the time" 'r["layers"][4]["bubble"] >= 0.75 and r["layers"][1]["bubble"] == 0' layers
holds "with a share of the memory" 'r["layers"][4]["planned_memory_bytes"] < r["layers"][2]["planned_memory_bytes"] < r["layers"][1]["planned_memory_bytes"]' layers
check "a pipeline of them" json pipe "${stack[@]}" --parallel pipeline --batch-size 16 --devices 1,2,4 --micro-batches 4
holds "has its micro-batches" '[(x["micro_batches"], x["batch"]) for x in d["pipe"]["rows"]] == [(1, 16), (4, 4), (4, 4)]' pipe
holds "and says nothing of all-reduces" '"communication_is_half" not in d["pipe"]' pipe
says "the table shows the bubble" '\(D-1\)/\(M\+D-1\)' plan "${stack[@]}" --parallel pipeline --batch-size 16 --devices 1 --micro-batches 4

# ---- what is shown ----

says "the table says what was measured" ' measured$' plan "${linear[@]}" --batch-size 8 --devices 1,2 --link 1GB/s,1us
says "and what was not" ' predicted$' plan "${linear[@]}" --batch-size 8 --devices 1,2 --link 1GB/s,1us
says "where communication takes half" 'half of the step' plan "${linear[@]}" --batch-size 8 --devices 1,2 --link 1MB/s,1ms
says "or nowhere" '^Communication takes less than half of the step on any number of devices\.$' plan "${linear[@]}" --batch-size 8 --devices 1,2 --link 1TB/s,0us
says "advice" 'efficiency of at least 50 %' plan "${linear[@]}" --batch-size 8 --devices 1,2 --link 10GB/s,1us --advise --efficiency 0.5
check "a picture" plan "${linear[@]}" --batch-size 8 --devices 1,2,4 --link 1GB/s,1us --plot curve.svg
check "that is XML" python3 -c 'import xml.etree.ElementTree as e; r = e.parse("curve.svg").getroot(); assert r.tag.endswith("svg"); t = " ".join(x.text or "" for x in r.iter()); assert "efficiency" in t and "devices" in t and "4 devices: hierarchical is cheapest" in t, t'
if has_part cairo && has_part pango; then
    check "and one as PNG" plan "${linear[@]}" --batch-size 8 --devices 1,2,4 --link 1GB/s,1us --plot curve.png
    check "that is one" python3 -c 'assert open("curve.png", "rb").read(4) == b"\x89PNG"'
fi
says "nodes have a stated size" '12 GB/s, 5.00 us; nodes of 8 devices' plan "${linear[@]}" --batch-size 8 --devices 1,64 --link 12GB/s,5us
says "or that of an option" 'overhead per message; nodes of 4 devices' plan "${linear[@]}" --batch-size 8 --devices 1,64 --link 12GB/s,5us,1us --node-size 4
says "where the batch no longer divides" '^From 16 devices on: 24 samples do not divide\.$' plan "${linear[@]}" --global-batch 24 --devices 1,16 --link 12GB/s,5us
says "help has examples" 'echelon plan --model resnet18' plan --help

# ---- what it refuses ----

# sentence WHAT PATTERN ARGS...: usage, one line that matches.
sentence() {
    local what=$1 pattern=$2 code
    shift 2
    plan "${linear[@]}" "$@" >/dev/null 2>.output
    code=$?
    if [[ $code == 2 && $(wc -l <.output) == 1 ]] && grep -qE -- "$pattern" .output; then
        ok "$what"
    else
        echo "exit code $code" >>.output
        not_ok "$what"
    fi
}
sentence "a picture of another kind" '--plot curve.jpg: the name must end in .svg or .png' --plot curve.jpg
sentence "a picture that cannot be written, before anything is measured" 'plot: .*nowhere/x.svg' --dim 96 --plot nowhere/x.svg
sentence "no devices" '--devices 0: must be from 1 to 1000000' --devices 0
sentence "too many devices" 'must be from 1 to 1000000' --devices 1,1000001
sentence "devices that are no numbers" "--devices 'two'" --devices two
sentence "devices with something behind" "--devices '1,2x'" --devices 1,2x
sentence "a list that ends in a comma" "--devices '1,'" --devices 1,
sentence "a range that goes back" 'ends before it begins' --devices 8-2
sentence "a range of too many" 'more than 8192' --devices 1-10000
sentence "negative devices" "--devices '-1'" --devices=-1
sentence "nonsense for a link" 'link' --link fast
sentence "a link without latency" 'link' --link 12GB/s
sentence "a link that goes backwards" 'link' --link=-1GB/s,1us
sentence "a cluster that is not there" 'nowhere.json' --cluster nowhere.json
echo '{"nodes": 2, "devices_per_node": 2, "speed": 3}' >bad.json
sentence "a cluster with an unknown member" 'speed' --cluster bad.json
sentence "two descriptions of links" 'both given' --link 1GB/s,1us --cluster bad.json
sentence "two batches" 'both given' --batch-size 8 --global-batch 8
sentence "fewer samples than devices" '--global-batch 4 for 8 devices' --global-batch 4 --devices 8
sentence "an algorithm for shared memory" 'this machine' --algorithm ring
sentence "more than DataParallel takes" 'dp supports at most 64' --parallel dp --devices 65
sentence "more devices than layers" '9 model-parallel devices for a model of' --parallel mp --devices 1,9
sentence "micro-batches that do not divide" 'must divide the batch of 8' --parallel pipeline --batch-size 8 --micro-batches 3 --devices 2
sentence "micro-batches of ddp" '--micro-batches is not supported with data parallelism' --micro-batches 2
sentence "advice on layers" '--advise is not supported with model parallelism' --parallel mp --devices 1,2 --advise
sentence "no time to measure in" 'measure-seconds' --measure-seconds 0
sentence "an efficiency of nothing" 'efficiency' --advise --efficiency 0
echo '{"version": 9}' >broken.json
says "a costs file of another program is told" 'delete it to measure anew' plan "${linear[@]}" --batch-size 8 --devices 1 --link 1GB/s,1us --costs-file broken.json
check "and is not replaced" test "$(cat broken.json)" = '{"version": 9}'
finish
