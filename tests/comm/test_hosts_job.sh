#!/bin/bash
# A job on several hosts: trainings, the benchmark, and how it ends when a rank goes.
. "$ECH_SRC/tests/support/hosts.sh"

# A training is the same on one host and on two.
train=("$ECHELON" train --model linear --dim 64 --depth 2 --global-batch 24 --steps 4 --tune off)
result() { grep -E '^(loss|parameters) ' "$work/$1" | grep sha256 -B1 || { cat "$work/$1"; false; }; }
trains_alike() { [[ $(result host) == "$(result "$1")" ]] || { cat "$work/host" "$work/$1"; false; }; }
"${train[@]}" --devices 4 >"$work/host" 2>&1
start h1:2,h2:2 "${train[@]}" >"$work/nodes" 2>&1
start h1:2,h2:2 "${train[@]}" --backend mpi >"$work/flat" 2>&1
check "a training on one host ends with parameters" result host
check "on two hosts with the same" trains_alike nodes
check "and over messages" trains_alike flat
says "the benchmark finds nothing wrong between hosts" ' 262144 .* 0$' \
    start h1:1,h2:1 "$ECHELON" bench comm --min 256K --max 256K

# ends "CODES" SECONDS HOSTS ARGS...: with one of these codes, and no later.
ends() {
    local start=$SECONDS code
    hosts "${@:3}" >"$work/end" 2>&1
    code=$?
    [[ " $1 " == *" $code "* ]] && ((SECONDS - start <= $2)) || {
        echo "code $code after $((SECONDS - start)) s"
        cat "$work/end"
        false
    }
}
check "a rank killed on another host ends the job" ends "1 137" 10 h1:2,h2:2 die=3
check "a rank killed on this host too" ends "1 137" 10 h1:2,h2:2 die=0
check "a rank that fails on another host too" ends "1 3" 10 h1:2,h2:2 quit=2
export ECHELON_TIMEOUT=2
check "a stopped rank on another host too" ends 1 15 h1:2,h2:1 stop=2
check "and is named with the operation" has end 'waited 2.* s for rank 2 in (allreduce|barrier) #[0-9]+'
sleep 1
left() { pgrep -x 'orted|mpirun|ranks'; }
refuse "no process is left" left
finish
