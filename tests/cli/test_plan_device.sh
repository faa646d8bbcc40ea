#!/bin/bash
# echelon plan --device-spec: a device by description is priced at once, without a measurement, and wrong files get one line.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/plan.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

devices=$ECH_SRC/examples/devices
plan() { timeout 20 "$ECHELON" plan "$@"; }
json() {
    local name=$1
    shift
    plan --json "$@" >"$name.json" 2>.output
}

resnet=(--model resnet18 --momentum 0.9 --batch-size 128)
check "a GPU" json a40 "${resnet[@]}" --devices 1,2,1024 --device-spec "$devices/a40.json"
check "says nothing" test ! -s .output
check "and measures nothing" test ! -e costs.json -a ! -e tuning.json
holds "every row is predicted" 'all(x["clock"] == "predicted" for x in d["a40"]["rows"])' a40
holds "the link is the device's" 'd["a40"]["links"]["source"] == "device" and abs(d["a40"]["links"]["inside"]["bytes_per_s"] - 12.8e9) < 1' a40
holds "and so is the memory" 'd["a40"]["memory"]["device_memory"] == 48e9' a40
holds "it names the device, its file and its calibration" 'd["a40"]["device"]["name"] == "NVIDIA A40" and "batch 128" in d["a40"]["device"]["calibration"] and d["a40"]["device"]["file"].endswith("a40.json")' a40
holds "the parts of a step add up" 'all(abs(x["step_time_s"] - x["compute_s"] - x["comm_exposed_s"] - x["wait_s"] - x["other_s"]) < 1e-9 for x in d["a40"]["rows"])' a40
check "given links go first" json link "${resnet[@]}" --devices 2 --device-spec "$devices/a40.json" --link 1GB/s,50us
holds "and are slower here" 'r["link"][2]["comm_exposed_s"] > r["a40"][2]["comm_exposed_s"] and d["link"]["links"]["source"] == "given"' a40 link
check "a memory limit goes first" json small "${resnet[@]}" --devices 1 --device-spec "$devices/a40.json" --device-memory 1GB
holds "so fewer samples fit" 'd["small"]["memory"]["largest_batch"] < d["a40"]["memory"]["largest_batch"]' a40 small
check "batches by memory alone" plan --model resnet18 --memory 128,1048576 --device-spec "$devices/a40.json"
check "mixed precision" json half "${resnet[@]}" --devices 1 --device-spec "$devices/a40.json" --amp fp16
holds "is faster" 'r["half"][1]["step_time_s"] < r["a40"][1]["step_time_s"]' a40 half
check "accumulation" json accum "${resnet[@]}" --devices 1,2 --device-spec "$devices/a40.json" --accum 4
holds "takes as many times as long" '3.8 < r["accum"][1]["step_time_s"] / r["a40"][1]["step_time_s"] < 4.1' a40 accum
for parallel in dp mp pipeline; do
    check "--parallel $parallel" json "$parallel" --dim 1024 --depth 4 --batch-size 64 --devices 1,2,4 --parallel $parallel --device-spec "$devices/v100.json"
    holds "has prices and ranges" "all(0 < x['step_time_low_s'] <= x['step_time_s'] <= x['step_time_high_s'] for x in d['$parallel']['rows'])" $parallel
done
says "the table says what is not calibrated" '^Not calibrated' plan "${resnet[@]}" --devices 1 --device-spec "$devices/v100.json"
says "and prints a range" '^ +1 +128 +[0-9.]+ ms +[0-9.]+ ms to [0-9.]+ ms$' plan "${resnet[@]}" --devices 1 --device-spec "$devices/v100.json"
says "or what it is calibrated on" '^Calibrated on ResNet-18.*error of about 15 %' plan "${resnet[@]}" --devices 1 --device-spec "$devices/a40.json"
says "the help has an example" 'device-spec examples/devices/a40.json' plan --help

# refused WHAT PATTERN ARGUMENTS...: one line that matches, at once, and a failure
refused() {
    local what=$1 pattern=$2
    shift 2
    if timeout 2 "$ECHELON" plan "$@" >.out 2>.output; then
        not_ok "$what"
    elif [[ $(wc -l <.output) == 1 && ! -s .out ]] && grep -qE -- "$pattern" .output; then
        ok "$what"
    else
        not_ok "$what"
    fi
}
changed() { sed "s|$1|$2|" "$devices/a40.json" >changed.json; }
refused "a file that is not there" 'nowhere.json' --device-spec nowhere.json
echo '{"name": ' >torn.json
refused "a file that is no JSON" 'torn.json' --device-spec torn.json
echo '[]' >list.json
refused "a file that is no object" 'list.json: a device must be an object' --device-spec list.json
changed '"memory_bandwidth"' '"bandwidth"'
refused "an unknown member" 'changed.json: "bandwidth" is no member' --device-spec changed.json
changed '"value": 84' '"value": -84'
refused "a negative number" 'changed.json: "multiprocessors" is -84: it must be from 1 to 1e\+06' --device-spec changed.json
changed '"value": 84' '"value": "many"'
refused "another type" 'changed.json: "multiprocessors" is a string: it must be a number' --device-spec changed.json
refused "measuring does not go with it" '--measure does not apply' --device-spec "$devices/a40.json" --measure
refused "nor do measured costs" '--costs-file does not apply' --device-spec "$devices/a40.json" --costs-file costs.json
finish
