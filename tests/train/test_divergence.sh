#!/bin/bash
# Runs that diverge: they say so with the step and what was first not finite, end with exit code 1
# unless told to go on, and leave the last good checkpoint.
. "$ECH_SRC/tests/support/check.sh"
[[ -x $ECHELON ]] || skip "no program"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

# With this rate the loss overflows in the third step, and the parameters of the third are not finite.
wild=(--dim 64 --depth 3 --lr 100000 --steps 40 --threads 1)
train() { "$ECHELON" train "${wild[@]}" "$@"; }
# ends CODE ARGS...: a run ends with that exit code; what it printed is in said
ends() {
    local code=$1
    shift
    train "$@" >said 2>&1
    (($? == code))
}
# one_line: the run has said once that it has diverged, as its last line
one_line() {
    [[ $(grep -c 'has diverged' said) == 1 ]] && tail -n 1 said | grep -q 'has diverged: the loss is'
}
# is FILE EXPRESSION: of the record r
is() {
    python3 - "$1" "$2" <<'EOF'
import json, sys
def refuse(word): raise ValueError(word)
lines = open(sys.argv[1]).read()
if sys.argv[1].endswith("l"):
    r = [json.loads(line, parse_constant=refuse) for line in lines.splitlines()]
else:
    r = json.loads(lines, parse_constant=refuse)
assert eval(sys.argv[2]), sys.argv[2]
EOF
}

check "a run that diverges ends with exit code 1" ends 1 --save-params p.st --run-dir r
check "and says so in one line" one_line
check "with the step and the operator" grep -qE \
    "the loss is inf at step 3; first not finite in the forward pass: mse '" said
check "its last step is in the table" grep -qE '^ +3 +inf ' said
refuse "its parameters are not written" test -e p.st
check "steps are recorded up to there, as JSON" is r/steps.jsonl \
    'len(r) == 3 and r[2]["loss"] is None and r[1]["loss"] > 1e10'
check "the record says where it diverged" is r/run.json \
    'r["state"] == "diverged" and r["summary"]["diverged"]["step"] == 3 and r["summary"]["diverged"]["operator"].startswith("mse")'
check "what was not measured is no number" is r/run.json \
    'r["summary"]["step_time_s"]["median"] is None and r["summary"]["final_loss"] is None'

check "--keep-going does all steps" ends 0 --keep-going --save-params p.st --run-dir k
check "and says it once" test "$(grep -c 'has diverged and continues' said)" = 1
check "as nan and never -nan" grep -q 'nan at the last' said
refuse "as nan and never -nan (no sign)" grep -q -- '-nan' said
check "its parameters are written" test -s p.st
check "the record of all steps has it too" is k/run.json \
    'r["state"] == "done" and r["summary"]["diverged"]["step"] == 3 and r["summary"]["final_loss"] is None'
check "steps that are not finite are null" is k/steps.jsonl 'len(r) == 40 and all(s["loss"] is None for s in r[3:])'

for how in "--devices 2" "--devices 2 --shared-update off" "--devices 2 --reproducible" \
    "--accum 2" "--parallel dp --devices 2" \
    "--parallel mp --devices 2" "--parallel pipeline --devices 2" \
    "--parallel mp --devices 2 --backend shm" "--amp bf16"; do
    # shellcheck disable=SC2086
    check "$how: exit code 1" ends 1 $how
    check "$how: one line" one_line
done

# Parameters are looked at before they are saved, so no bad ones are: step 3 makes them.
for how in "" --keep-going "--devices 2" "--parallel dp --devices 2" "--parallel pipeline --devices 2"; do
    rm -rf ck
    # shellcheck disable=SC2086
    check "checkpoints ${how:-alone}" ends "$([[ $how == --keep-going ]] && echo 0 || echo 1)" \
        --save ck --save-every 1 $how
    check "the last good one stays ${how:-alone}" test "$(cat ck/LATEST)" = step-000002
done
says "--resume goes on from there" "has diverged.*step 3" train --resume ck --parallel pipeline --devices 2
rm -rf ck
check "another try would end alike" ends 1 --devices 2 --max-restarts 2 --save ck --save-every 1
refuse "so there is none" grep -q "restarting all ranks" said

"$ECHELON" train --model lenet --limit 64 --batch-size 16 --lr 1000000 --momentum 0.9 --threads 1 --epochs 1 >said 2>&1
check "a layer is named" grep -qE \
    "loss is nan at step [2-4]; (first not finite in the forward pass: (conv2d|linear) '|parameter ')" \
    said
refuse "an epoch that diverges is not evaluated" grep -q "Epoch 1" said

# A scaled loss whose gradients overflow is none of it: the step is skipped.
"$ECHELON" train --dim 64 --depth 3 --steps 20 --threads 1 --amp fp16 --loss-scale 1e9 >said 2>&1
check "gradients overflow, and steps are skipped" grep -qE "[1-9][0-9]* skipped" said
refuse "which is no divergence" grep -q diverged said
finish
