#!/bin/bash
# Killed at any moment while it saves, a run leaves the old checkpoint or the new one, never half of one; and a disk
# that is full takes nothing away.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

train() { exec "$ECHELON" train --threads 1 --momentum 0.9 "$@"; }
tiny=(--dim 8 --depth 1 --batch-size 2 --steps 5000)
sha() { (train "$@") 2>"$work/.output" | sed -n 's/^parameters *sha256 //p'; }

# ---- 50 times ----

(train "${tiny[@]}" --steps 1 --save a >/dev/null) || skip "it cannot even save"
RANDOM=7
good=0 moved=0
for round in {1..50}; do
    before=$(cat a/LATEST)
    (train "${tiny[@]}" --resume a --save a --save-every 1) >/dev/null 2>said &
    pid=$!
    # Every other time surely among its saves, however slow the machine is.
    for ((i = 0; round % 2 && i < 1000; i++)); do
        [[ $(cat a/LATEST) != "$before" ]] && break
        sleep 0.005
    done
    sleep "0.$(printf %03d $((RANDOM % 60)))"
    kill -9 $pid 2>/dev/null
    { wait $pid; } 2>/dev/null
    code=$?
    # 137: killed; 1 would be a checkpoint that could not be read.
    ((code == 137 || code == 0)) && good=$((good + 1))
    [[ $(cat a/LATEST) != "$before" ]] && moved=$((moved + 1))
done
check "50 runs that were killed while saving could all go on ($good)" test "$good" = 50
check "and every other one got further ($moved)" test "$moved" -ge 25
whole=$(sha "${tiny[@]}")
check "in the end the bits are those of one run" test "$whole" = "$(sha "${tiny[@]}" --resume a)"
(train "${tiny[@]}" --steps 5001 --resume a --save a) >/dev/null 2>&1
check "a run that saves removes what killed ones left" \
    test "$(find a -mindepth 1 -maxdepth 1 | wc -l)" -le 3
check "two runs do not write to one place" bash -c '
    "$0" train --threads 1 --dim 8 --depth 1 --batch-size 2 --steps 100 --delay-ms 100 --save b --save-every 1 >/dev/null &
    pid=$!
    while [[ ! -e b/LATEST ]]; do sleep 0.01; done
    "$0" train --threads 1 --dim 8 --depth 1 --batch-size 2 --steps 100 --resume b --save b >/dev/null 2>two
    code=$?
    kill -9 $pid; wait $pid 2>/dev/null
    [[ $code == 1 ]] && grep -q "checkpoint directory b is in use by process [0-9]" two' "$ECHELON"

# ---- a full disk ----

mkdir small
if ! mount -t tmpfs -o size=1100k none small 2>/dev/null; then
    ok "a full disk # skip no right to mount one"
    finish
fi
trap 'umount "$work/small"; rm -rf "$work"' EXIT
net=(--dim 200 --depth 2 --batch-size 2) # 643 KB a checkpoint
full=$(sha "${net[@]}" --steps 8)
(train "${net[@]}" --steps 8 --save small/c --save-every 3) >out 2>said
check "a run whose checkpoint does not fit fails" test $? = 1
check "with one line" test "$(wc -l <said)" = 1
says "that says why, and what stays" \
    'checkpoint of step 6 is not saved, that of step 3 stays: .*No space left on device' cat said
check "nothing of the new one is left" test "$(ls -A small/c)" = "LATEST
step-000003"
check "and the old one goes on to the same bits" test "$full" = "$(sha "${net[@]}" --steps 8 --resume small/c)"
head -c 2M /dev/zero >small/fill 2>/dev/null
(train "${net[@]}" --steps 8 --save small/d) >out 2>said
says "the first one may fail too" 'checkpoint of step 8 is not saved: .*No space left on device' cat said
check "and leaves nothing" test -z "$(ls -A small/d)"
finish
