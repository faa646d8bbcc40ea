#!/bin/bash
# Limits on memory that this process gets from outside: a run ends well or is refused with one line
# that names the limit, soon. Libraries would crash or try for ever.
. "$ECH_SRC/tests/support/check.sh"
[[ -x $ECHELON ]] || skip "no program"
cd "$work" || exit 1
export ECHELON_TUNING=$work/tuning.json
unset OMP_NUM_THREADS OPENBLAS_NUM_THREADS ECHELON_COMM_FD RANK WORLD_SIZE
(ulimit -v 4000000 && "$ECHELON" --version) >/dev/null 2>&1 || skip "a program with a sanitizer cannot be limited"

# within MB ARGS...: exit code 0, or 1 with one line (beside the launcher's) that names the limit
within() {
    local megabytes=$1 code
    shift
    (
        ulimit -v $((megabytes * 1024))
        timeout -k 1 30 "$ECHELON" train --steps 2 --warmup 0 "$@" >out 2>err </dev/null
    )
    code=$?
    { echo "exit $code"; cat err; } >.output
    grep -vE '^echelon train: ([0-9]+ ranks? on |rank [0-9]+ \(pid)' err | sed 's/^\[rank [0-9]*\] //' | sort -u >said
    [[ $code == 0 && ! -s said ]] && { good=$((good + 1)); return; }
    # Ranks may be refused different figures.
    [[ $code == 1 ]] && { [[ $(grep -c '' said) == 1 ]] || [[ $* == *--devices* ]]; } &&
        ! grep -v 'ulimit -v leaves\|bytes of shared memory' said | grep -q . && refused=$((refused + 1))
}
# From too little for the libraries' own needs to plenty: these are where it would crash or hang otherwise.
sizes=(110 140 170 200 230 260 800)
for args in "--dim 256 --depth 4 --threads 2 --tune off" "--model lenet --threads 2 --tune off" \
    "--model lenet --threads 2" "--model lenet --devices 2 --tune off" \
    "--model resnet18 --batch-size 512 --threads 2 --tune off"; do
    good=0 refused=0 wrong=
    for megabytes in "${sizes[@]}"; do
        # shellcheck disable=SC2086
        within "$megabytes" $args || { wrong+=" $megabytes"; cp .output wrong; }
    done
    [[ -n $wrong ]] && cp wrong .output
    check "$args: $good good, $refused refused, wrong at:$wrong" test -z "$wrong"
    check "the smallest is refused" test $refused -gt 0
    [[ $args == *resnet18* ]] || check "the largest is enough" test $good -gt 0
done

# The data set counts too.
(
    ulimit -v $((300 * 1024))
    timeout 30 "$ECHELON" train --model lenet --data cifar10 --data-dir . --steps 1 --warmup 0 >out 2>err
)
check "a data set that does not fit is refused" test $? = 1
says "and named" "CIFAR-10's training set needs 153650000 bytes .*ulimit -v leaves" cat err

# A control group, where one can be made: timing kernels stays within it, and nobody is killed.
group=/sys/fs/cgroup/memory/echelon-test-$$
if [[ -w /sys/fs/cgroup/memory ]] && mkdir "$group" 2>/dev/null; then
    echo $((250 << 20)) >"$group/memory.limit_in_bytes"
    (
        echo $BASHPID >"$group/cgroup.procs" && exec timeout -k 1 60 "$ECHELON" train --model lenet --batch-size 4096 \
            --threads 2 --steps 1 --warmup 0 >out 2>err
    )
    code=$?
    { echo "exit $code"; cat err; } >.output
    check "a run that does not fit a control group is refused before it is killed" test $code = 1
    says "with what is available" 'needs [0-9]+ bytes .* bytes .* are available' cat err
    for _ in {1..50}; do rmdir "$group" 2>/dev/null && break; sleep 0.1; done
else
    ok "a control group # skip none can be made here"
fi
finish
