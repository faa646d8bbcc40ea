#!/bin/bash
# --max-restarts: a run whose ranks are killed ends with the bits, the steps and the code of one that was left alone.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/ranks.sh"
cd "$work" || exit 1
RANDOM=5

# same A B: two run directories tell of the same training, every step once
same() {
    python3 - "$@" <<'PY'
import json, sys
def read(run):
    steps = [json.loads(line) for line in open(f"{run}/steps.jsonl")]
    summary = json.load(open(f"{run}/run.json"))["summary"]
    assert [s["step"] for s in steps] == list(range(1, len(steps) + 1)), f"{run}: steps are not 1, 2, 3"
    return [(s["step"], s["epoch"], s["loss"], s["lr"]) for s in steps], summary["params_sha256"], summary["final_loss"]
a, b = map(read, sys.argv[1:])
for x, y in zip(a[0], b[0]):
    assert x == y, f"{x} and {y}"
assert a == b, f"{len(a[0])} steps to {a[1:]}, {len(b[0])} to {b[1:]}"
PY
}
# Ranks that are just being started are not there at once.
hit() { kill -9 "$(rank_pid "$1")" 2>/dev/null; }
# kill_rank R AT_STEP: once the run has come so far
kill_rank() { until_steps run/steps.jsonl "$2" && until_true 10 hit "$1"; }
# restarts N: waits until it has started again so often
restarts() { until_true 30 file_says err "restarting all ranks \\($1 of"; }
whole() { rm -rf whole && "$ECHELON" train "$@" --run-dir whole >/dev/null 2>&1; }
leftovers() { find "$1" -name '.*' -o -name '*.tmp'; }

# ---- linear, with momentum; each rank in turn ----

net=(--dim 32 --depth 2 --momentum 0.9 --devices 2 --global-batch 6 --lr-schedule cosine --steps 150 --tune off)
check "a run that is left alone" whole "${net[@]}"
for victim in 0 1; do
    rm -rf run a
    start train "${net[@]}" --delay-ms 10 --run-dir run --save a --save-every 20 --max-restarts 3
    check "rank $victim dies between two checkpoints" kill_rank $victim 50
    over 60
    cp err .output
    check "and the run ends well" test $code = 0
    says "after all were started again" "rank $victim .*signal 9" cat err
    check "with the same bits, and every step once" same whole run
    says "it went on from the last checkpoint" '"checkpoint": "a/step-0*([4-9]0|1[0-4]0)"' cat run/run.json
    check "no half of a checkpoint is left" test -z "$(leftovers a)"
done

# ---- many deaths, most of them while rank 0 saves ----

rm -rf run a
start train "${net[@]}" --delay-ms 5 --run-dir run --save a --save-every 1 --max-restarts 20
deaths=0
for step in 10 25 40 60 80 100; do
    until_steps run/steps.jsonl $step || break
    for ((i = RANDOM % 5; i > 0; i--)); do nap; done
    until_true 10 hit 0 && deaths=$((deaths + 1))
    restarts $deaths || break
done
over 60
cp err .output
check "6 deaths of the rank that saves, and the run ends well ($deaths)" test "$deaths $code" = "6 0"
check "with the same bits, and every step once" same whole run
check "no half of a checkpoint is left" test -z "$(leftovers a)"

cp -r a b
for resume in "" "--resume b"; do
    # shellcheck disable=SC2086
    "$ECHELON" train "${net[@]}" --save a $resume --max-restarts 2 >said 2>&1
    check "a restart takes no checkpoint of another run for its own $resume" test $? = 1
    check "which is said before a rank is started" test "$(cat said)" = \
        "echelon train: checkpoint directory a holds step 150 of another run: resume that one, or save elsewhere"
done
check "one that it resumes is its own" "$ECHELON" train "${net[@]}" --resume a --save a --max-restarts 2

# ---- without checkpoints, and without restarts ----

rm -rf run
start train "${net[@]}" --delay-ms 5 --run-dir run --max-restarts 1
kill_rank 1 20
over 60
cp err .output
check "without a checkpoint it begins anew" same whole run
rm -rf run a
start train "${net[@]}" --delay-ms 20 --run-dir run --save a --save-every 5 --max-restarts 1
kill_rank 0 20
restarts 1
check "a second death is one too many" kill_rank 1 30
over 10
cp err .output
check "and gives the code of the second" test $code = 137
says "which is named" 'rank 1 .*signal 9' cat err
check "no rank is left" no_rank 1
sha() { grep -o '"params_sha256": .*' "$1/run.json"; }
"$ECHELON" train "${net[@]}" --resume a --run-dir rest >/dev/null 2>&1
check "what was saved goes on to the same bits" test "$(sha whole)" = "$(sha rest)"

# ---- epochs of images, in an order that depends on the seed ----

net=(--model lenet --data synthetic --limit 160 --epochs 3 --batch-size 4 --devices 2 --momentum 0.9 --tune off)
check "epochs that are left alone" whole "${net[@]}"
rm -rf run a
start train "${net[@]}" --delay-ms 10 --run-dir run --save a --save-every 7 --max-restarts 1
check "a rank dies in the second epoch" kill_rank 1 32
over 60
cp err .output
check "and the run ends well" test $code = 0
check "with the same bits, and every step once" same whole run
check "nothing is left" nothing_left
finish
