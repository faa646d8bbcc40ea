#!/bin/bash
# Prices beside SimGrid, in small: eight devices as one node, as full nodes and as nodes of which the last is not full.
. "$ECH_SRC/tests/support/check.sh"

for tool in smpicc smpirun; do
    command -v $tool >/dev/null && continue
    left_out "SimGrid" "no $tool; tools/setup simgrid installs it"
    skip "no $tool"
done
covered "SimGrid"
small() { "$ECH_SRC/tools/simgrid/compare" "$ECH_BUILD" --bytes 4096 --bytes 1048576 "$@"; }

for shape in 8:0 8:4 8:3; do
    check "$shape: prices are within 10 % of SimGrid's times" small --shape $shape
done
says "all algorithms were compared" '^10 cases: median difference [0-9.]+ %, worst [0-9.]+ %$' small --shape 8:4
refuse "a difference above the tolerance is a failure" small --shape 8:0 --tolerance 0
refuse "links that are not understood are refused" small --shape 8:0 --inside fast
finish
