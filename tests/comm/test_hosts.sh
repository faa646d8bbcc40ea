#!/bin/bash
# Every collective between ranks of several hosts.
. "$ECH_SRC/tests/support/hosts.sh"

memories() { sed -nE "s/^rank .* on $2, .*memory ([1-9][0-9]*)\$/\\1/p" "$work/$1" | sort \
    | uniq -c | sed -E 's/^ *([0-9]+) .*/\1/' | paste -sd' '; }
same_bits() {
    bits "$work/$1" | grep -E "$3" >"$work/a"
    bits "$work/$2" | grep -E "$3" >"$work/b"
    test -s "$work/a" && cmp "$work/a" "$work/b"
}
sent() { on h2 ip -s link show dev eth0 | awk '/TX:/ { getline; print $1 }'; }

before=$(sent)
check "two hosts with two ranks each" run two h1:2,h2:2 nodes=2
check "they are two nodes" has two '^4 ranks on 2 nodes over mpi$'
says "ranks of the first share one memory" '^2$' memories two h1
says "ranks of the second share another" '^2$' memories two h2
says "the hosts share none" '^2$' sh -c \
    'sed -nE "s/^rank .*memory ([1-9][0-9]*)\$/\1/p" "$0" | sort -u | wc -l' "$work/two"
check "what they exchange goes over the network" test $(($(sent) - before)) -gt 4000000
check "four ranks on one host" run one h1:4 quick=1 nodes=1
check "sums over two hosts have the bits of sums on one" same_bits two one 'sum of f(32|64)'
check "so have blocking ones of 16 bits" same_bits two one ' a sum of bf16'

check "three hosts with one rank each" run three h1:1,h2:1,h3:1 nodes=3
check "three ranks on one host" run single h1:3 quick=1 nodes=1
check "have the same bits" same_bits three single 'sum'
check "two ranks and one" run uneven h1:2,h2:1 quick=1 nodes=2
check "one rank and two" run other h1:1,h2:2 quick=1 nodes=2
check "blocking sums have the same bits wherever the ranks are" same_bits uneven single ' a sum of'
check "messages only" run messages h1:2,h2:2 backend=mpi quick=1 nodes=4
check "have the same bits" same_bits messages one 'sum'
map=node
check "ranks that are numbered across the hosts" run across h1:2,h2:2 quick=1 nodes=2
check "rank 2 is the first host's second" has across '^rank 2, 1 of 2 on h1,'
check "blocking sums are in the order of the ranks all the same" same_bits across one ' a sum of'
map=slot
for algorithm in ring tree halving-doubling hierarchical; do
    check "$algorithm between hosts" run $algorithm h1:2,h2:2 quick=1 nodes=2 algorithm=$algorithm
    check "is what runs" has $algorithm "^algorithm $algorithm, "
done
check "a tree has the bits of one host" same_bits tree one 'sum of f(32|64)'
check "so has halving-doubling" same_bits halving-doubling one 'sum of f(32|64)'
says "shared memory alone is refused between hosts" 'backend shm: the 2 ranks are on 2 nodes' \
    hosts h1:1,h2:1 backend=shm
finish
