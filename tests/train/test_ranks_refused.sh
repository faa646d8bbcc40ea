#!/bin/bash
# Ranks that cannot work, or not together: one sentence that says why, soon, and the code of the rank.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/ranks.sh"
mkdir "$work/here" && cd "$work/here" || exit 1
tiny=(--dim 8 --depth 1 --steps 2 --global-batch 6 --tune off)

# refused CODE PATTERN COMMAND...: the code, nothing on stdout, and beside the launcher's own lines one that matches
refused() {
    local wanted=$1 pattern=$2 got
    shift 2
    timeout 10 "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    grep -vE '^echelon (train|run): ([0-9]+ ranks? on |rank [0-9]+ \(pid)' "$work/err" >"$work/said"
    { cat "$work/err"; echo "exit $got, expected $wanted with /$pattern/"; } >"$work/.output"
    if [[ $got == "$wanted" && ! -s $work/out && $(wc -l <"$work/said") == 1 ]] &&
        grep -qE -- "$pattern" "$work/said"; then
        ok "$*"
    else
        not_ok "$*"
    fi
}
# alone PATTERN NAME=VALUE...: a single process that finds these in its environment
alone() { refused 1 "$1" env "${@:2}" "$ECHELON" train "${tiny[@]}"; }

# ---- who it is ----

for name in RANK WORLD_SIZE; do
    for value in x '' 1.5 0x1 -1 99999999999 '1 2'; do
        alone "^echelon train: $name is \"?$value" RANK=0 WORLD_SIZE=1 "$name=$value"
    done
done
for name in LOCAL_RANK LOCAL_WORLD_SIZE; do
    alone "$name is \"two\": it must be a whole number" RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 $name=two
    alone "$name is -3: it must be from" RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 $name=-3
done
alone 'RANK is 5 and WORLD_SIZE is 2' RANK=5 WORLD_SIZE=2
alone 'LOCAL_RANK is 5 and LOCAL_WORLD_SIZE is 2' RANK=0 WORLD_SIZE=9 LOCAL_RANK=5 LOCAL_WORLD_SIZE=2
alone 'RANK is 1 and WORLD_SIZE is 2, but nothing connects the ranks' RANK=1 WORLD_SIZE=2
alone 'TORCHELASTIC_RESTART_COUNT is -1' TORCHELASTIC_RESTART_COUNT=-1
for value in soon '' 0 -1 inf nan 1e400 '2 s' 1e10; do
    alone "ECHELON_TIMEOUT is \"$value\": it must be a number of seconds above 0 and at most 1e\+09" "ECHELON_TIMEOUT=$value"
done
refused 1 'ECHELON_TIMEOUT is "soon"' env ECHELON_TIMEOUT=soon "$ECHELON" train "${tiny[@]}" --devices 3
check "no rank was started for that" test "$(wc -l <"$work/err")" = 1

# ---- what connects them ----

# over_fd PATTERN FD: rank 0 of 2 whose shared memory is said to be that descriptor
over_fd() { alone "^echelon train: ECHELON_COMM_FD is \"?$2.*$1" RANK=0 WORLD_SIZE=2 "ECHELON_COMM_FD=$2"; }
over_fd 'it must be a whole number' four
over_fd 'it must be from 0' -1
over_fd 'it must be from 0' 99999999
over_fd 'Bad file descriptor' 512
over_fd 'is not the shared memory of ranks' 0
printf 'echelon ranks 1' >"$work/short"
{ printf 'echelon ranks 1\0\2\0\0\0'; head -c 1000000 /dev/zero; } >"$work/small"
head -c 9000000 /dev/zero >"$work/zero"
for file in "$work/short" "$work/zero" / /dev/zero /dev/null; do
    exec 9<"$file"
    over_fd 'is not the shared memory of ranks' 9
done
exec 9<> <(:)
over_fd 'is not the shared memory of ranks' 9
exec 9<>"$work/small"
over_fd 'was created by another version' 9
exec 9>&-

# launched CODE PATTERN SCRIPT: two ranks, each of which does something to itself before it trains
launched() {
    refused "$1" "$2" "$ECHELON" run -n 2 -- bash -c "$3"' exec "$0" "$@"' "$ECHELON" train "${tiny[@]}" "${@:4}"
}
launched 1 'the shared memory is for 2 ranks, not for 3' 'export WORLD_SIZE=3 LOCAL_WORLD_SIZE=3; [ $RANK = 1 ] && exec sleep 9;'
launched 1 'was created by another version' '[ $RANK = 1 ] && exec sleep 9; truncate -s 70000 /proc/self/fd/$ECHELON_COMM_FD;'
launched 1 'rank 0 of 2 is already connected' 'export RANK=0 LOCAL_RANK=0;'
launched 1 'rank 0 waited 1\.[0-9] s for rank 1 in [a-z]+ #0' 'export ECHELON_TIMEOUT=1; [ $RANK = 1 ] && exec true;'
launched 1 'ECHELON_TIMEOUT is "x"' '[ $RANK = 1 ] && exec sleep 9; export ECHELON_TIMEOUT=x;'
launched 1 'rank 0 has "[^"]*8[^"]*", rank 1 has "[^"]*16' 'set -- "$@" --dim $((RANK ? 16 : 8));'
launched 1 'rank 0 has "[^"]*", rank 1 has "' 'set -- "$@" --accum $((RANK + 1));'
launched 2 '--devices 3: 2 ranks are already started' '' --devices 3

# ---- one that fails, and all that fail ----

mkdir "$work/file.d" && : >"$work/file"
refused 1 '/nonexistent: cannot be opened' "$ECHELON" train "${tiny[@]}" --devices 3 --init /nonexistent
refused 1 'checkpoint directory .*/file/x cannot be written' "$ECHELON" train "${tiny[@]}" --devices 2 --save "$work/file/x"
refused 1 'run directory .*/file cannot' "$ECHELON" train "${tiny[@]}" --devices 3 --run-dir "$work/file"
refused 1 '/nonexistent' "$ECHELON" train "${tiny[@]}" --devices 2 --resume /nonexistent
# Nothing that fails before the first step is tried again.
for wrong in "--init /nonexistent" "--data /nonexistent.safetensors"; do
    # shellcheck disable=SC2086
    timeout 20 "$ECHELON" train "${tiny[@]}" --devices 2 --save "$work/saved" --max-restarts 3 $wrong >"$work/out" 2>"$work/err"
    check "$wrong with --max-restarts fails" test $? = 1
    cp "$work/err" "$work/.output"
    check "once" test "$(grep -c nonexistent "$work/err")" = 1
    says "because it would fail again" 'no restart: the ranks failed before their first step' cat "$work/err"
    refuse "and is not started again" grep 'restarting all ranks' "$work/err"
    rm -rf "$work/saved"
done
# Checkpoints of stages that are ranks are refused before there are ranks.
for option in --save --resume; do
    "$ECHELON" train --dim 8 --depth 3 --steps 2 --parallel mp --devices 2 --backend shm $option "$work/saved" \
        >"$work/out" 2>"$work/err"
    check "$option of stages that are ranks is refused" test $? = 2
    cp "$work/err" "$work/.output"
    check "in one line, before a rank is started" test "$(wc -l <"$work/err")" = 1
    says "that says why" 'the layers are in several processes' cat "$work/err"
done

# ---- results that nobody gets ----

for devices in 1 2; do
    "$ECHELON" train "${tiny[@]}" --devices $devices 2>"$work/err" >&-
    check "a closed standard output with $devices devices is a failure" test $? = 1
    cp "$work/err" "$work/.output"
    check "that is told once" test "$(grep -c 'cannot write standard output' "$work/err")" = 1
    "$ECHELON" train "${tiny[@]}" --devices $devices >/dev/full 2>"$work/err"
    check "a full one too" test $? = 1
done
check "a foreign tuning file stops no rank" "$ECHELON" train --dim 8 --devices 2 --steps 6 --tuning-file "$work/short"
check "no rank is left" no_rank 1
check "nothing is left" test -z "$(ls -A)$(ls -A "$TMPDIR")"

# ---- memory ----

refused 1 'a batch of 3 needs 1[0-9]{6} bytes .*the device.s limit is 1000000 bytes' \
    "$ECHELON" train --devices 2 --global-batch 6 --dim 256 --depth 3 --tune off --device-memory 1000000
pages=$(getconf _PHYS_PAGES) size=$(getconf PAGESIZE)
for ranks in 2 3; do
    refused 1 "needs [0-9]+ bytes .*gradients.*limit is $((pages * size / ranks)) bytes.*not even a batch of 1 fits" \
        "$ECHELON" train --devices $ranks --dim 1000000 --depth 4 --tune off
done
refused 1 'needs [0-9]+ bytes \(.*\) on each of 2 ranks, and [0-9]+ bytes \(.*\) are available' \
    "$ECHELON" train --devices 2 --dim 1000000 --depth 1 --tune off --device-memory 100TB
finish
