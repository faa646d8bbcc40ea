#!/bin/bash
# All-reduce algorithms between nodes, which are pretended on this machine: right sums, the order of sums that is promised, and
# how a job ends when a rank goes.
. "$ECH_SRC/tests/support/mpi.sh"

# run NAME RANKS NODES ALGORITHM ARGS...: all collectives; keeps the output under that name.
run() {
    ECHELON_NODES=$3 mpi -np "$2" --bind-to none "$program" algorithm="$4" quick=1 nodes="$3" "${@:5}" \
        >"$work/$1" 2>&1 || { cat "$work/$1"; false; }
}
has() { grep -qE -- "$2" "$work/$1" || { cat "$work/$1"; false; }; }
# Sums of f32 and f64: 16 bits are rounded on the way.
same_bits() { cmp <(bits "$work/$1" | grep -E 'sum of f(32|64)') <(bits "$work/$2" | grep -E 'sum of f(32|64)'); }

for case in "4 2" "5 3"; do
    read -r ranks nodes <<<"$case"
    ECHELON_NODES=1 mpi -np "$ranks" --bind-to none "$program" quick=1 nodes=1 >"$work/one" 2>&1
    for algorithm in direct ring tree halving-doubling hierarchical; do
        check "$ranks ranks on $nodes nodes: $algorithm" run "$algorithm" "$ranks" "$nodes" "$algorithm"
        check "$algorithm is what runs" has "$algorithm" "^algorithm $algorithm, "
        if grep -q 'in the fixed tree$' "$work/$algorithm"; then
            check "$algorithm has the bits of one node" same_bits "$algorithm" one
        else
            refuse "$algorithm adds in another order" same_bits "$algorithm" one
        fi
    done
    check "tree keeps the fixed tree" has tree 'in the fixed tree$'
    check "halving-doubling keeps the fixed tree" has halving-doubling 'in the fixed tree$'
    check "ring does not" has ring 'in another order$'
done
check "ring again" run again "$ranks" "$nodes" ring
check "has the same bits as before" cmp <(bits "$work/ring") <(bits "$work/again")
check "messages only: ring" run flat 3 3 ring backend=mpi
says "one node says what runs" '^algorithm direct through shared memory \(ring would run between nodes; all ranks are on one\)' \
    mpi -np 2 --bind-to none "$program" algorithm=ring quick=1
says "nonsense in ECHELON_NODES is refused" 'ECHELON_NODES is "3": it must be from 1 to the 2 ranks' \
    env ECHELON_NODES=3 timeout 60 mpirun -np 2 --bind-to none "$program"

# The rank that is missing is named by ranks that wait for another one, which waits for it.
export ECHELON_TIMEOUT=1
for algorithm in ring tree halving-doubling hierarchical; do
    ends() {
        local start=$SECONDS code
        ECHELON_NODES=4 mpi -np 4 --bind-to none "$program" algorithm=$algorithm "$2" >"$work/end" 2>&1
        code=$?
        [[ " $1 " == *" $code "* ]] && ((SECONDS - start <= 15)) || { echo "code $code"; cat "$work/end"; false; }
    }
    check "$algorithm: a stopped rank ends the job" ends 1 stop=2
    check "$algorithm: it is named" has end 'waited 1 s for rank 2 in (allreduce|barrier) #[0-9]+'
    refuse "$algorithm: no other one is named" grep -E 'waited 1 s for rank [013 ]' "$work/end"
done
check "a killed rank ends the job" ends 137 die=1
unset ECHELON_TIMEOUT

# The program: what is measured, and what --reproducible takes.
bench() { ECHELON_NODES=2 mpi -np 4 "$ECHELON" bench comm --min 2M --max 2M --iters 2 "$@"; }
for algorithm in ring tree halving-doubling hierarchical; do
    says "bench comm measures $algorithm" "^# allreduce: $algorithm\$" bench --algorithm $algorithm
done
says "in JSON too" '"algorithm": "ring"' bench --algorithm ring --in-place off --json
says "best is direct" '^# allreduce: direct \(best is a choice by price, not run here\)' bench
train() { ECHELON_NODES=$1 mpi -np 4 "$ECHELON" train --dim 64 --depth 2 --global-batch 24 --steps 3 --tune off "${@:2}"; }
parameters() { train "$@" 2>&1 | grep -E '^parameters '; }
says "train uses it" '^all-reduce on 2 nodes: ring$' train 2 --algorithm ring
says "and says so on one node" '^all-reduce on 1 node: direct through shared memory \(ring' train 1 --algorithm ring --clock real
train 4 --straggle 3:30 --run-dir "$work/late" >/dev/null 2>&1
check "a rank of another node that is late is waited for" python3 -c '
import json, sys
ranks = json.load(open(sys.argv[1]))["summary"]["communication"]["ranks"]
assert all((r["wait_s"] > 0.02) == (i != 3) and r["comm_exposed_s"] < 0.02 for i, r in enumerate(ranks)), ranks' "$work/late/run.json"
[[ $(parameters 2 --algorithm tree) == "$(parameters 1)" ]] && same=true || same=false
check "a tree between nodes trains to the bits of one node" $same
says "--reproducible refuses another order" \
    '--algorithm ring: on these 2 nodes it adds in another order than the fixed tree of --reproducible' \
    train 2 --algorithm ring --reproducible --slots 4
says "and takes halving-doubling" '^all-reduce on 2 nodes: halving-doubling$' \
    train 2 --algorithm halving-doubling --reproducible --slots 4
finish
