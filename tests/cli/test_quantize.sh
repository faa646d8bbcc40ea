#!/bin/bash
# echelon quantize: the ladder of a small trained net, its files and records, and what it refuses.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

quantize() { timeout 60 "$ECHELON" quantize "$@"; }
# holds WHAT EXPRESSION FILE: of the JSON document d; l: rows of its ladder by name.
holds() {
    check "$1" python3 -c '
import json, sys
d = json.load(open(sys.argv[2]))
l = {r["name"]: r for r in d.get("ladder", [])} if isinstance(d, dict) else {}
if not eval(sys.argv[1]):
    sys.exit("not so: " + sys.argv[1] + "\n" + json.dumps(d)[:2500])' "$2" "$3"
}

limit=300
on_reference && limit=100
# On the CPU, also where the reference quantizes it.
check "a net is trained" env -u ECHELON_DEVICE "$ECHELON" train --model lenet --data synthetic --limit 1500 --no-augment \
    --batch-size 25 --epochs 5 --optimizer adam --lr 0.002 --tune off --save saved --run-dir run
weights=$(find saved -name model.safetensors | sort | tail -n 1)
small=(--model lenet --init "$weights" --data synthetic --limit "$limit" --samples 100 --sensitivity 100 --tune off)

check "it is quantized" quantize "${small[@]}" --out out
cp "$work/.output" table
for row in f32 weights 'weights \+ activations' 'weights \+ activations \+ bias' 'mistake: biases' 'mistake: clamped'; do
    says "the ladder has a rung: $row" "^$row " cat table
done
says "each layer is tried alone" '^fc3 +[0-9]' cat table
files=(int8.safetensors int8.onnx f32.onnx quantize.json predictions.csv histograms.json histograms.csv weights-1.svg activations-1.svg
    ladder.svg)
! has_part cairo || ! has_part pango || files+=(weights-1.png activations-1.png ladder.png)
for file in "${files[@]}"; do
    check "$file is written" test -s "out/$file"
done
holds "f32 has learned something" 'l["f32"]["accuracy"]["share"] > 0.5' out/quantize.json
holds "int8 is near it" 'abs(l["weights + activations + bias"]["accuracy"]["share"] - l["f32"]["accuracy"]["share"]) <= 0.02' out/quantize.json
holds "and mostly says the same" 'l["weights + activations + bias"]["agreement"]["share"] >= 0.97' out/quantize.json
holds "fake quantization says what int8 says" 'abs(l["the same in float arithmetic"]["agreement"]["hits"] - l["weights + activations + bias"]["agreement"]["hits"]) <= 1' out/quantize.json
holds "cutting off the upper half costs" 'l["mistake: clamped at 127"]["agreement"]["share"] < l["weights + activations + bias"]["agreement"]["share"]' out/quantize.json
holds "intervals hold their share" 'all(r["accuracy"]["low"] <= r["accuracy"]["share"] <= r["accuracy"]["high"] for r in d["ladder"])' out/quantize.json
holds "what is lost and gained is the difference to f32" 'all(r["gained"] - r["lost"] == r["accuracy"]["hits"] - d["ladder"][0]["accuracy"]["hits"] and r["gained"] + r["lost"] <= r["agreement"]["count"] - r["agreement"]["hits"] for r in d["ladder"])' out/quantize.json
holds "every output channel of a weight has its scale" '[len(v["scales"]) for v in d["values"] if v["what"] == "weight"] == [6, 16, 120, 84, 10]' out/quantize.json
holds "the file is at most 28 % of f32" 'd["int8_file_bytes"] <= 0.28 * d["f32_file_bytes"]' out/quantize.json
holds "behind a ReLU nothing is below zero" 'all(v["min"] >= 0 and v["type"] == "u8" for v in d["values"] if v["what"] == "after ReLU")' out/quantize.json
holds "before it much is" 'all(v["min"] < 0 for v in d["values"] if v["what"] == "before ReLU")' out/quantize.json
holds "histograms count every value" 'all(sum(h["counts"]) == h["count"] for h in d)' out/histograms.json
holds "the record has them too" 'd["values"] == json.load(open("out/histograms.json"))' out/quantize.json
holds "the bar of the zeros holds them" 'all(h["counts"][h["zero_bin"]] >= h["zeros"] * h["count"] - 0.5 for h in d)' out/histograms.json

check "the file is loaded back" quantize --model lenet --load out/int8.safetensors --data synthetic --limit "$limit" --out again
holds "with the same answers" 'l["weights + activations + bias"]["accuracy"]["hits"] == json.load(open("out/quantize.json"))["ladder"][3]["accuracy"]["hits"]' again/quantize.json

for how in "--weights max --per tensor --activations max" "--weights 3sigma --activations entropy" \
    "--weights percentile --per tensor --activations percentile --percentile 99.9"; do
    # shellcheck disable=SC2086 # the words are options
    check "other scales: $how" quantize "${small[@]}" --sensitivity 0 --out '' $how
done
# peak BATCH: kB of memory that quantizing few images takes at most.
peak() {
    python3 -c '
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' \
        "$ECHELON" quantize "${small[@]}" --limit 20 --samples 20 --sensitivity 0 --timed 2 --out '' --batch-size "$1"
}
check "a batch is never larger than the images that there are" test "$(peak 100000)" -lt "$(($(peak 20) * 3 / 2))"
check "a directory of checkpoints stands for its newest" quantize "${small[@]}" --init saved --sensitivity 0 --out ''
check "--json prints one object" sh -c '"$0" quantize "$@" --out "" --json >json.out 2>/dev/null' "$ECHELON" "${small[@]}"
holds "with the ladder in it" 'len(l) == 7' json.out

# ---- refused ----

# wrong WHAT PATTERN CODE ARGS...
wrong() {
    local what=$1 pattern=$2 code=$3
    shift 3
    check "$what" sh -c '"$@" >out.txt 2>&1; test $? = '"$code" _ "$ECHELON" quantize "$@"
    says "$what, with a sentence" "$pattern" cat out.txt
    check "$what, in one line" sh -c 'test "$(wc -l <out.txt)" = 1'
}
wrong "no weights are refused" 'one source of weights is needed' 2 --model lenet --out ''
wrong "an empty calibration set is refused" 'a calibration set of 0 samples: at least 1 is needed' 2 "${small[@]}" --samples 0 --out ''
wrong "too many samples are refused" '60000 samples for calibration: the training set has 50000' 2 "${small[@]}" --samples 60000 --out ''
wrong "a model of vectors is refused" 'only image models' 2 --model linear --init "$weights" --out ''
wrong "weights of another model are refused" 'tensor|parameter' 2 --model resnet18 --init "$weights" --out ''
wrong "a file in f32 is none in int8" 'this is not an int8 network' 1 --model lenet --load "$weights" --out ''
wrong "a directory without checkpoints is refused" 'out' 1 --model lenet --init out --out ''
wrong "a file that is not there is refused" 'nowhere.safetensors' 1 --model lenet --load nowhere.safetensors --out ''
wrong "cifar10 without a directory is refused" 'needs --data-dir' 2 --model lenet --init "$weights" --data cifar10 --out ''

# edit NAME EXPRESSION: a copy of the weights with one tensor w (numpy) changed, or of the int8 file with its scales s.
edit() {
    python3 - "$weights" "$@" <<'END'
import json, math, struct, sys
source, out, name, kind = sys.argv[1:5]
raw = bytearray(open(source, "rb").read())
n = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8:8 + n])
begin, end = (8 + n + o for o in header[name]["data_offsets"])
count = (end - begin) // 4
values = list(struct.unpack(f"<{count}f", raw[begin:end]))
values = [math.nan if kind == "nan" and i == 3 else 0.0 if kind == "zero" else v for i, v in enumerate(values)]
raw[begin:end] = struct.pack(f"<{count}f", *values)
open(out, "wb").write(raw)
END
}
check "a weight becomes NaN" edit nan.safetensors conv1.weight nan
wrong "NaN weights are refused" "element 3 of 'conv1.weight' is -?nan; weights must be finite" 2 --model lenet --init nan.safetensors --out ''
check "a weight becomes zero" edit zero.safetensors fc2.weight zero
wrong "a layer whose range is zero is refused" "layer 'fc2' has a weight range of zero" 2 --model lenet --init zero.safetensors --out ''
check "a scale becomes zero" python3 - <<'END'
import json, struct
raw = open("out/int8.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8:8 + n])
scales = json.loads(header["__metadata__"]["echelon.int8"])
scales["activations"]["x"]["scale"] = 0
header["__metadata__"]["echelon.int8"] = json.dumps(scales)
text = json.dumps(header).encode()
open("bad.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + raw[8 + n:])
END
wrong "a scale of zero is refused" "the activation scale of 'x' is 0; it must be a finite number above 0" 1 --model lenet --load bad.safetensors --out ''
says "--help teaches" 'Kullback-Leibler' "$ECHELON" quantize --help
finish
