#!/bin/bash
# echelon compare: arms of every kind, arms that fail, and that nothing is left behind. Times are never asserted: other tests run
# beside this one.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json TMPDIR=$work
cd "$work" || exit 1

small=(train --dim 32 --depth 2 --batch-size 8 --threads 1 --tune off)
compare() { "$ECHELON" compare --block-ms 10 "$@"; }

# peer NAME LINES...: a program that says it is ready, and does the lines for each "run MS"
peer() {
    local name=$1
    shift
    { echo 'import os, sys, time'
      echo 'print("ready Python", flush=True)'
      echo 'for line in sys.stdin:'
      printf '    %s\n' "$@"; } >"$name.py"
}
good=('end = time.perf_counter() + float(line.split()[1]) / 1e3' 'steps = 0'
    'while steps < 2 or time.perf_counter() < end:' '    time.sleep(0.002)' '    steps += 1' '    print(0.002)'
    'print("done", flush=True)')
peer good "${good[@]}"
python=$(python3 -c 'import sys; print(sys.executable)')

# left: processes of arms, and files of comparisons, that are still there
left() {
    local pid
    for pid in /proc/[0-9]*; do
        grep -qsz '^ECHELON_ARM=' "$pid/environ" && [[ $({ tr '\0' '\n' <"$pid/environ"; } 2>/dev/null) == *"TMPDIR=$work"* ]] &&
            grep -qs '^State:[[:space:]]*[^ZX]' "$pid/status" && echo "$pid $(tr '\0' ' ' <"$pid/cmdline")"
    done
    ls -d "$work"/echelon-* 2>/dev/null
}
none_left() {
    for _ in {1..40}; do [[ -z $(left) ]] && break; sleep 0.1; done
    left >"$work/.output"
    if [[ -s $work/.output ]]; then not_ok "$1: nothing is left behind"; else ok "$1: nothing is left behind"; fi
}
# fails WHAT PATTERN ARGS...: exit code 1, one line that says why, nothing left
fails() {
    local what=$1 pattern=$2 code
    shift 2
    timeout 60 "$ECHELON" compare --block-ms 10 --budget 3s "$@" >out 2>err
    code=$?
    grep -vE 'other programs|^start ' err >"$work/.output"
    if [[ $code == 1 && ! -s out ]] && [[ $(wc -l <"$work/.output") == 1 ]] && grep -qE -- "$pattern" "$work/.output"; then
        ok "$what"
    else
        echo "exit code $code" >>"$work/.output"
        not_ok "$what"
    fi
    none_left "$what"
}

# ---- arms of every kind ----

compare --budget 8s --json -- "${small[@]}" -- "${small[@]}" --devices 2 -- --name peer --threshold 1000 --peer "$python" good.py >out.json 2>err
check "a comparison ends with a record" "$python" - out.json <<'EOF'
import json, math, sys
c = json.load(open(sys.argv[1]))
names = [arm["name"] for arm in c["arms"]]
assert names[0] == "arm 1" and names[2] == "peer", names
assert c["arms"][2]["what"] == "Python" and c["arms"][0]["what"].startswith("Echelon "), c["arms"]
assert c["starts"] >= 1 and len(c["noise"]["log_ratios"]) == c["starts"], c
for arm in c["arms"]:
    assert len(arm["step_time_s"]["starts"]) == c["starts"] and arm["step_time_s"]["median"] > 0 and arm["memory_bytes"] > 1e6, arm
assert [arm["threshold"] for arm in c["arms"][1:]] == [1, 1000]
assert abs(c["arms"][2]["step_time_s"]["median"] / 0.002 - 1) < 1e-6
for arm in c["arms"][1:]:
    mean = sum(arm["log_ratios"]) / c["starts"]
    assert len(arm["log_ratios"]) == c["starts"] and abs(math.exp(mean) / arm["ratio"] - 1) < 1e-9, arm
    assert arm["verdict"] in ("above", "below", "equal", "undecided"), arm
EOF
none_left "a comparison"
sed 's/print(0.002)/print(0.001)/' good.py >fast.py
compare --budget 3s --json -- --peer "$python" good.py -- --peer "$python" fast.py >out.json 2>err
check "a ratio is the first arm's time by the other's" "$python" -c '
import json, sys
c = json.load(open(sys.argv[1]))
assert abs(c["arms"][1]["ratio"] - 2) < 1e-9 and abs(c["noise"]["ratio"] - 1) < 1e-9, c' out.json
says "the table begins with the verdict" '^(arm 2|Undecided: arm 2).*(as fast as arm 1)' compare --budget 3s -- "${small[@]}" -- "${small[@]}"
says "collectives are arms" '^the copy of arm 1 .*noise' compare --budget 3s \
    -- bench comm -n 2 --min 4K --max 4K -- bench comm -n 2 --min 64K --max 64K
says "programs that use the library are arms" '^the copy of arm 1 .*noise' compare --budget 3s \
    -- run -n 2 "$ECH_BUILD/tests/compare_prog_steps" -- run -n 1 "$ECH_BUILD/tests/compare_prog_steps" 64
if has_part "Open MPI" && command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    says "ranks of mpirun are arms" '^the copy of arm 1 .*noise' compare --budget 5s \
        -- "${small[@]}" -- --program mpirun -np 2 --oversubscribe "$ECHELON" "${small[@]}" --steps 100000000
    none_left "mpirun"
fi
says "arms can be started for every block" '^each arm was restarted for every block' compare --budget 6s --apart \
    -- "${small[@]}" -- "${small[@]}" --devices 2
none_left "started for every block"
says "an emulated arm is marked" 'emulated' compare --budget 3s -- "${small[@]}" -- "${small[@]}" --devices 2 --clock virtual
compare --budget 3s --json -- "${small[@]}" -- "${small[@]}" >a.json 2>/dev/null
compare --budget 3s --json -- "${small[@]}" -- "${small[@]}" >b.json 2>/dev/null
says "copies of several comparisons are judged together" ' in 2 comparisons of an arm with itself \([0-9]+ starts\): ratio [0-9.]+ \(99 % interval' \
    "$ECHELON" compare --pool a.json --pool b.json
says "a pool of something else" 'out.txt' "$ECHELON" compare --pool out.txt

# ---- arms that fail ----

fails "an arm that is called wrongly" 'arm 2 .*failed with exit code 2: --dmi: unknown option' -- "${small[@]}" -- train --dmi 3
fails "a program that is not there" 'nowhere/to/be cannot be started: No such file' -- "${small[@]}" -- --peer nowhere/to/be
peer dies 'sys.exit("it has had enough")'
fails "an arm that dies" 'arm 2 .*failed with exit code 1: it has had enough' -- "${small[@]}" -- --peer "$python" dies.py
peer killed 'os.kill(os.getpid(), 9)'
fails "an arm that is killed" 'dead was killed by signal 9: out of memory\?' -- "${small[@]}" -- --name dead --peer "$python" killed.py
peer large 'x = bytearray(1 << 40)'
fails "an arm that runs out of memory" 'exit code 1: MemoryError' -- "${small[@]}" -- --peer sh -c "ulimit -v 4000000; exec $python large.py"
peer hangs 'time.sleep(1000)'
fails "an arm that hangs" 'sent nothing for 2 s \(expected a step' --arm-timeout 2 -- "${small[@]}" -- --peer "$python" hangs.py
peer rubbish 'print("fast!", flush=True)'
fails "an arm that talks rubbish" "sent 'fast!' where a step's time" -- "${small[@]}" -- --peer "$python" rubbish.py
peer negative 'print("-1\ndone", flush=True)'
fails "a time that is none" "sent '-1' where a step's time" -- "${small[@]}" -- --peer "$python" negative.py
peer single 'print("0.1\ndone", flush=True)'
fails "a block of one step" 'did 1 steps in a block; at least 2' -- "${small[@]}" -- --peer "$python" single.py
peer endless 'print("x" * 100000, flush=True)'
fails "a line without an end" 'sent a line of more than 4096 bytes' -- "${small[@]}" -- --peer "$python" endless.py
peer quits "${good[@]}" 'sys.exit(0)'
fails "an arm that ends by itself" 'ended by itself' -- "${small[@]}" -- --peer "$python" quits.py
fails "an arm that never takes part" 'arm 2 .*ended by itself|sent nothing' --arm-timeout 2 -- "${small[@]}" -- run -n 1 sleep 100
printf 'import subprocess\nsubprocess.Popen(["sleep", "1000"], start_new_session=True)\n' >family.py
cat dies.py >>family.py
fails "an arm that leaves a child behind" 'it has had enough' -- "${small[@]}" -- --peer "$python" family.py

# ---- stopped ----

for signal in INT TERM KILL; do
    rm -f err
    "$ECHELON" compare --block-ms 10 --budget 60s --half-width 0.1 -- "${small[@]}" -- "${small[@]}" --devices 2 -- \
        --peer "$python" good.py >out 2>err &
    pid=$!
    for _ in {1..200}; do grep -qs 'start 3' err && break; sleep 0.1; done
    kill -$signal $pid
    wait $pid 2>/dev/null
    code=$?
    cat out err >.output
    want=$((128 + $(kill -l $signal)))
    if [[ $code == "$want" ]] && { [[ $signal == KILL ]] || grep -qE "^stopped by signal" out; }; then
        ok "SIG$signal ends it with what is known"
    else
        echo "exit code $code" >>.output
        not_ok "SIG$signal ends it with what is known"
    fi
    [[ $signal == KILL ]] && rm -rf "$work"/echelon-*  # nobody is left to remove it
    none_left "SIG$signal"
done

# ---- wrong usage ----

usage() {
    local what=$1 pattern=$2
    shift 2
    "$ECHELON" compare "$@" >out 2>.output
    if [[ $? == 2 && ! -s out && $(wc -l <.output) == 1 ]] && grep -qE -- "$pattern" .output; then ok "$what"; else not_ok "$what"; fi
}
usage "no arms" '0 arms: a comparison needs at least 2'
usage "one arm" '1 arm: a comparison needs at least 2' -- "${small[@]}"
usage "a command that has no steps" "arm 2: 'plan' cannot be compared" -- "${small[@]}" -- plan
usage "an empty arm" 'arm 1 is empty' -- -- "${small[@]}"
usage "nine arms" 'more than 8 arms' -- train -- train -- train -- train -- train -- train -- train -- train -- train
usage "a budget that is none" '--budget 0s: must be a time from 1s to 24h' --budget 0s -- train -- train
usage "a threshold that is none" 'arm 2: --threshold x: must be from' -- train -- --threshold x train
usage "a program for a peer" '--program is for arms of echelon' -- train -- --program x --peer y
finish
