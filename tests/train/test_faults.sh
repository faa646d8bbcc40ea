#!/bin/bash
# Ranks that are killed or stopped in the middle of training, and launchers that are told to stop: who it was is named,
# the job is over soon, and nothing of it is left.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/ranks.sh"
cd "$work" || exit 1
RANDOM=11

# steady RANKS ARGS...: a job whose steps are mostly the all-reduce, in the middle of its steps
steady() {
    local ranks=$1
    shift
    rm -rf run
    start train --dim 256 --depth 4 --devices "$ranks" --global-batch "$ranks" --steps 1000000 --warmup 1 \
        --tune off --run-dir run "$@"
    until_steps run/steps.jsonl 3
}

# ---- SIGKILL ----

# What the ranks hold while they run has no name that could stay.
nameless() {
    local r pid
    for r in 0 1 2; do
        pid=$(rank_pid $r)
        [[ -n $pid ]] && grep -q 'memfd:echelon' "/proc/$pid/maps" || return 1
        grep -E '/dev/shm|/SYSV' "/proc/$pid/maps" && return 1
        find "/proc/$pid/fd" -lname 'socket:*' -o -lname '/dev/shm/*' -o -lname "$TMPDIR/*" | grep . && return 1
    done
    return 0
}
steady 3
check "three ranks hold shared memory without a name, and no socket" nameless
{ kill -9 $launcher; over 5; } 2>/dev/null
check "no rank is alive 1 s after the launcher was killed" no_rank 1

named=0 ended=0 right=0 clean=0 slowest=0
for round in {0..19}; do
    ranks=$((2 + round % 2))
    victim=$((round / 2 % ranks))
    steady $ranks || break
    pid=$(rank_pid $victim)
    # Now and then the others surely wait for it in an all-reduce, because it was stopped before.
    ((round % 3 == 0)) && kill -STOP "$pid"
    for ((i = RANDOM % 6; i > 0; i--)); do nap; done
    kill -9 "$pid"
    until_true 1 file_says err "rank $victim \\(pid $pid\\) was killed by signal 9" && named=$((named + 1))
    ((took > slowest)) && slowest=$took
    over 5 && ended=$((ended + 1))
    ((code == 137)) && right=$((right + 1))
    no_rank 1 && nothing_left && [[ $(ls -A run) == "run.json"$'\n'"steps.jsonl" ]] && clean=$((clean + 1))
done
cp err .output
check "20 times a rank was killed in the steps of 2 or 3 ranks, and named within 1 s ($named, in up to $slowest ms)" \
    test $named = 20
cp err .output
check "the job was over within 5 s ($ended)" test $ended = 20
check "with the code of the signal ($right)" test $right = 20
check "without a process, a file or memory left ($clean)" test $clean = 20
check "nothing but the killed rank is said" test "$(grep -vc 'was killed by signal 9\|ranks on' err)" = 0

# ---- SIGSTOP ----

for ranks in 2 3; do
    export ECHELON_TIMEOUT=2
    steady $ranks
    pid=$(rank_pid 1)
    kill -STOP "$pid"
    over 10
    check "a stopped rank ends $ranks ranks" test $? = 0
    cp err .output
    check "with a failure" test $code = 1
    says "after the time-out, which names rank, operation and number" \
        'rank [02] waited 2\.[0-9] s for rank 1 in [a-z]+ #[0-9]+ of [0-9]+ (f32|u8)' cat err
    check "and the stopped one is gone too" no_rank 1
    unset ECHELON_TIMEOUT
done

# ---- suspended as a whole ----

# Rank 0 waits for rank 1, which was stopped a little earlier, and is itself stopped for longer than the time-out.
export ECHELON_TIMEOUT=2
steady 2
ranks=("$(rank_pid 0)" "$(rank_pid 1)")
kill -STOP "${ranks[1]}"
sleep 0.2
kill -STOP "${ranks[0]}" $launcher
sleep 3
steps=$(wc -l <run/steps.jsonl)
kill -CONT $launcher "${ranks[@]}"
check "a job that was suspended for longer than the time-out goes on" until_steps run/steps.jsonl $((steps + 5))
kill -TERM $launcher
over 5
cp err .output
check "without a word about it" test "$(grep -c waited err)" = 0
unset ECHELON_TIMEOUT

# ---- orders to the launcher ----

for signal in INT TERM; do
    steady 2 --max-restarts 3
    kill -$signal $launcher
    over 5
    check "SIG$signal ends all within 5 s" test $? = 0
    cp err .output
    check "with 128 and the signal" test $code = $((128 + $(kill -l $signal)))
    check "no rank is left" no_rank 1
done
steady 2
kill -STOP "$(rank_pid 1)"
kill -INT $launcher
over 5
check "SIGINT ends a stopped rank too" test $? = 0
check "nothing is left" nothing_left
finish
