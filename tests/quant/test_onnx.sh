#!/bin/bash
# ONNX files that we write: onnx's checker accepts them, and ONNX Runtime, where it is installed,
# answers what we answer.
. "$ECH_SRC/tests/support/check.sh"
program=$ECH_BUILD/tests/quant_prog_onnx
# Debian's python3-onnx belongs to Debian's interpreter.
python=
for one in python3 /usr/bin/python3; do
    "$one" -c 'import onnx, numpy' 2>/dev/null && python=$one
done
[[ $python ]] || { left_out "ONNX checker" "no python3-onnx"; skip "no python3-onnx"; }
covered "ONNX checker"

# near MODEL KIND: logits of ONNX Runtime beside ours; f32 to rounding, int8 to a step or two.
near() {
    ONNX_EXACT=1 node "$ECH_SRC/bench/peers/onnx_run.js" "$1/$2.onnx" "$1/x.bin" 6 >"$1/$2.json" || return
    "$python" - "$1" "$2" <<'END'
import json, sys
import numpy
dir, kind = sys.argv[1:]
theirs = numpy.array(json.load(open(f"{dir}/{kind}.json"))["logits"]).reshape(-1, 10)
ours = numpy.fromfile(f"{dir}/{kind}.bin", dtype="f4").reshape(-1, 10)
off, size = abs(theirs - ours).max(), abs(ours).max()
print(f"{dir} {kind}: {off:.3g} of {size:.3g}")
sys.exit(not off < (1e-4 if kind == "f32" else 0.05) * size)
END
}

cd "$work" || exit 1
for model in lenet resnet8; do
    mkdir "$model"
    check "$model is written" "$program" "$model" "$model"
    for kind in f32 int8; do
        check "onnx's checker accepts $model in $kind" "$python" -c '
import onnx, sys
model = onnx.load(sys.argv[1])
onnx.checker.check_model(model, full_check=True)
names = [x.name for x in model.graph.input]
assert names == ["x"], names' "$model/$kind.onnx"
    done
    check "the int8 file holds integers, scales and pairs of operators" "$python" -c '
import onnx, sys
from onnx import numpy_helper
graph = onnx.load(sys.argv[1]).graph
kinds = [n.op_type for n in graph.node]
assert kinds.count("QuantizeLinear") > 4 and kinds.count("DequantizeLinear") > 8, kinds
tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
w = tensors["conv1.weight.whole"]
assert w.dtype == "int8" and abs(w.astype(int)).max() <= 127, w.dtype
assert (tensors["conv1.weight.scale"] > 0).all() and tensors["conv1.bias.whole"].dtype == "int32"' \
        "$model/int8.onnx"
    if NODE_PATH=${NODE_PATH-} node -e 'require("onnxruntime-node")' 2>/dev/null; then
        covered "ONNX Runtime"
        check "ONNX Runtime answers as we do for $model in f32" near "$model" f32
        check "and in int8" near "$model" int8
    else
        left_out "ONNX Runtime" "onnxruntime-node is not installed"
        ok "ONNX Runtime answers as we do # skip onnxruntime-node is not installed"
    fi
done
finish
