#!/bin/bash
# The gradient of accumulated micro-batches against that of the whole batch, from the command line: a single step of plain sgd with
# a large learning rate leaves the gradient in the parameters, and --params-against says how far two such runs are apart.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

LR=1e6
# run NAME ARGS...: one step over 24 samples; the record is NAME.json
run() {
    local name=$1
    shift
    "$ECHELON" train --json --threads 1 --tune off --dim 40 --depth 3 --steps 1 --clip-norm 1e30 --run-dir "$name" "$@" \
        >"$name.json" 2>.output
}
# holds WHAT EXPRESSION NAMES...: of the gradients' norms g[NAME], losses l[NAME] and, by the gradient of the whole batch, how far
# d[NAME] the update is from that of the whole batch
holds() {
    local what=$1 expression=$2
    shift 2
    check "$what" python3 -c '
import json, sys
step = {n: json.loads(open(n + "/steps.jsonl").readline()) for n in ["whole", *sys.argv[3:]]}
g, l = ({n: s[k] for n, s in step.items()} for k in ("grad_norm", "loss"))
s = {n: json.load(open(n + "/run.json"))["summary"] for n in step}
d = {n: r["params_against"]["distance"] / (float(sys.argv[2]) * g["whole"]) for n, r in s.items() if "params_against" in r}
if not eval(sys.argv[1]):
    sys.exit("not so: %s with %s" % (sys.argv[1], [g, l, d]))' "$expression" "$LR" "$@"
}

check "the whole batch" run whole --batch-size 24 --lr $LR --save-params whole.safetensors
check "itself again" run again --batch-size 24 --lr $LR --params-against whole.safetensors
holds "is at no distance" "d['again'] == 0 and s['again']['params_against']['norm'] > 0" again
for devices in 1 2; do
    for K in 2 4; do
        words=(--devices "$devices" --batch-size $((24 / K / devices)) --accum "$K" --params-against whole.safetensors)
        check "$K micro-steps on $devices devices" run part "${words[@]}" --lr $LR
        holds "have its gradient" "d['part'] <= 1e-5 and abs(l['part'] / l['whole'] - 1) <= 1e-6" part
        check "their losses undivided" run sum "${words[@]}" --lr $LR --undivided
        holds "give $K times the gradient" "abs(g['sum'] / g['whole'] / $K - 1) <= 1e-5 and abs(d['sum'] / ($K - 1) - 1) <= 1e-4 and abs(l['sum'] / l['whole'] / $K - 1) <= 1e-6" sum
        check "and a learning rate of a ${K}th" run less "${words[@]}" --lr "$(python3 -c "print($LR / $K)")" --undivided
        holds "makes up for it" "d['less'] <= 1e-5" less
    done
done
says "the distance is printed" 'difference from whole.safetensors: norm 0, relative to a norm of [1-9]' "$ECHELON" train --threads 1 --tune off \
    --dim 40 --depth 3 --steps 1 --batch-size 24 --lr $LR --clip-norm 1e30 --params-against whole.safetensors

# ---- what is refused ----

# wrong CODE PATTERN ARGS...: one line that matches
wrong() {
    local expected=$1 pattern=$2 code
    shift 2
    timeout 20 "$ECHELON" train --dim 40 --depth 3 --steps 2 --threads 1 --tune off "$@" >/dev/null 2>.output
    code=$?
    if [[ $code == "$expected" && $(wc -l <.output) == 1 ]] && grep -qE -- "$pattern" .output; then
        ok "refused: $*"
    else
        echo "exit code $code" >>.output
        not_ok "refused: $*"
    fi
}
wrong 2 '--undivided requires --accum 2 or more' --undivided
wrong 2 '--undivided requires .*without --reproducible' --undivided --accum 2 --reproducible
wrong 2 '--params-against has nothing to compare' --params-against whole.safetensors --fit
wrong 1 'nothing.safetensors' --params-against nothing.safetensors
wrong 1 "whole.safetensors: there is no tensor 'layers.3" --params-against whole.safetensors --depth 4
finish
