#!/bin/bash
# echelon run as a user meets it: what is printed, exit codes, signals, and that nothing is left behind.
. "$ECH_SRC/tests/support/check.sh"
cd "$work" || exit 1
unset OMP_NUM_THREADS

# Processes of this test carry this in their environment, so that they can be counted.
export ECH_LAUNCH_TEST=$work
count() { # ranks that are alive, zombies included
    local n=0 env
    for env in /proc/[0-9]*/environ; do
        tr '\0' '\n' <"$env" 2>/dev/null | grep -qx "ECH_LAUNCH_TEST=$work" || continue
        tr '\0' '\n' <"$env" 2>/dev/null | grep -q "^RANK=" && n=$((n + 1))
    done
    echo $n
}
gone() { # gone SECONDS: no rank is alive by then
    local i
    for ((i = 0; i < $1 * 20; i++)); do
        [[ $(count) == 0 ]] && return 0
        sleep 0.05
    done
    return 1
}
# until_lines FILE N: waits until a file has that many lines
until_lines() {
    local i
    for ((i = 0; i < 400; i++)); do
        [[ -e $1 && $(wc -l <"$1") -ge $2 ]] && return 0
        sleep 0.05
    done
    return 1
}
# fails CODE PATTERN ARGS...: exit code, and a line on stderr
fails() {
    local code=$1 pattern=$2 got
    shift 2
    timeout 30 "$ECHELON" run "$@" >out 2>err </dev/null
    got=$?
    { cat err; echo "exit $got, expected $code with /$pattern/"; } >.output
    if [[ $got == "$code" ]] && grep -qE -- "$pattern" err; then ok "run $*"; else not_ok "run $*"; fi
}

# ---- output ----

says "help has examples" 'echelon run -n 2 -- ' "$ECHELON" run --help
fails 0 '^echelon run: 3 ranks on .*rank 0 on (core|hardware thread)s? [0-9,-]+, rank 1 on .*thread' -n 3 -- true
fails 0 '^echelon run: 20 ranks on [^:]*; [0-9]+ threads? each$' -n 20 -- true
fails 0 '^first$' -n 2 -- sh -c '[ $RANK = 0 ] && echo first >&2 || echo second >&2'
check "lines of other ranks begin with their number" grep -qx '\[rank 1\] second' err
fails 0 '' -n 2 -- sh -c 'echo out $RANK'
check "standard output is let through as it is" test "$(sort out)" = "out 0
out 1"
echo input | "$ECHELON" run -n 2 -- cat >out 2>err
check "rank 0 has the standard input" test "$(cat out)" = input
fails 0 '^half$' -n 2 -- sh -c \
    '[ $RANK = 1 ] && { sleep 0.5; echo whole >&2; exit; }; printf half >&2; sleep 1; echo " end" >&2'
check "a line of rank 0 that is open is not written into" grep -qx '\[rank 1\] whole' err
check "an argument list is handed on as it is" bash -c \
    '[[ $("$0" run -n 1 -- printf "<%s>" -n "a b" "" --help 2>/dev/null) == "<-n><a b><><--help>" ]]' "$ECHELON"

# ---- failures ----

fails 3 'rank 1 \(pid [0-9]+\) exited with code 3$' -n 2 -- sh -c '[ $RANK = 0 ] && exec sleep 60; echo why >&2; exit 3'
check "its last lines stand before that, and once" test "$(grep -c why err)" = 1
fails 137 'rank 0 \(pid [0-9]+\) was killed by signal 9 \(Killed\)$' -n 2 -- sh -c \
    '[ $RANK = 1 ] && exec sleep 60; kill -9 $$'
fails 139 'rank 1 \(pid [0-9]+\) was killed by signal 11' -n 2 -- sh -c '[ $RANK = 0 ] && exec sleep 60; kill -SEGV $$'
fails 4 'restarting all ranks \(2 of 2\)' -n 2 --max-restarts 2 -- sh -c \
    'echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; exec 1>&-; [ $RANK = 0 ] && exec sleep 60; sleep 0.2; exit 4'
check "each start has its number" test "$(sort -u out)" = "0 of 2
1 of 2
2 of 2"
fails 2 'rank . .pid [0-9]+. exited with code 2$' -n 2 --max-restarts 3 -- sh -c 'exit 2'
refuse "a program that was called wrongly is not started again" grep restarting err
fails 127 'exited with code 127' -n 2 --max-restarts 3 -- sh -c 'no-such-program'
refuse "nor one that is not there" grep restarting err
fails 0 'restarting all ranks \(1 of 1\)' -n 2 --max-restarts 1 -- sh -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ]'
check "no rank is left" gone 1

# ---- signals ----

# start SCRIPT ARGS...: a launcher in the background, with default signals, and its ranks ready: each prints a line
start() {
    rm -f ready
    env --default-signal "$ECHELON" run -n 2 "${@:2}" -- sh -c "$1" >ready 2>err &
    launcher=$!
    until_lines ready 2
}
patient='echo ready; sleep 60 & wait'
for signal in INT TERM HUP; do
    start 'trap "echo $RANK got '$signal'; kill \$!; exit 0" '$signal"; $patient" --max-restarts 5
    kill -$signal $launcher
    wait $launcher
    code=$?
    cp err .output
    check "SIG$signal gives 128 + signal" test $code = $((128 + $(kill -l $signal)))
    check "and both ranks get it" test "$(grep -c "got $signal" ready)" = 2
    check "and nothing is started again" test "$(grep -c restarting err)" = 0
done
SECONDS=0
start 'trap "" TERM INT; echo ready; while :; do sleep 0.1; done'
kill -INT $launcher
wait $launcher
check "ranks that ignore signals are killed" test $? = 130
check "within 5 s" test $SECONDS -le 6
says "and named" 'ranks 0, 1 did not stop within 3 s and are killed' cat err

for victim in 0 1; do
    start 'echo $RANK $$; trap "" TERM; while :; do sleep 0.1; done'
    pid=$(sed -n "s/^$victim //p" ready)
    SECONDS=0
    kill -9 "$pid"
    wait $launcher
    check "rank $victim killed: its code" test $? = 137
    check "the other one, which ignores SIGTERM, is gone within 5 s" test $SECONDS -le 5
    says "and it is named" "rank $victim \(pid $pid\) was killed by signal 9" cat err
done

start 'echo $RANK $$; exec sleep 60'
kill -STOP "$(sed -n 's/^1 //p' ready)"
kill -9 "$(sed -n 's/^0 //p' ready)"
SECONDS=0
wait $launcher
check "a stopped rank is ended too" test $SECONDS -le 5

start 'echo ready; exec sleep 60'
kill -STOP "$(pgrep -P $launcher | head -n 1)"
kill -9 $launcher
wait $launcher 2>/dev/null
check "no rank is alive 1 s after the launcher was killed, not even a stopped one" gone 1

# ---- what ranks have started ----

# busy: processes of this test, ranks or not, that sleep; nobody else sleeps for so long
export long=1234.$$
busy() { pgrep -fc "^sleep $long\$" || true; }
# are_busy N: so many, after a while
are_busy() {
    local i
    for ((i = 0; i < 100; i++)); do
        [[ $(busy) == "$1" ]] && return 0
        sleep 0.05
    done
    pkill -9 -f "^sleep $long\$"
    return 1
}
for signal in TERM INT HUP KILL; do
    start 'sleep $long & setsid sleep $long & (env -u RANK sleep $long &); echo ready; wait'
    check "six grandchildren run" are_busy 6
    kill -$signal $launcher
    wait $launcher 2>/dev/null
    check "SIG$signal to the launcher ends them too" are_busy 0
done
fails 3 'rank 1 ' -n 2 -- sh -c 'sleep $long & [ $RANK = 1 ] && exit 3; wait'
says "a rank that fails leaves nobody" '^0$' busy
fails 0 '' -n 2 -- sh -c 'sleep $long &'
says "nor one that ends well" '^0$' busy
fails 0 'processes that ranks had started did not stop within 3 s and are killed' -n 2 -- \
    sh -c 'sh -c "trap : TERM; echo; while :; do sleep 0.1; done" >&2 & sleep 0.5'
check "nothing of all this is left" gone 1
finish
