#!/bin/bash
# Reports of steps among 64 ranks of mpirun on two pretended nodes.
. "$ECH_SRC/tests/support/mpi.sh"
export ECHELON_NODES=2
says "reports of 64 ranks go up and down a tree" '^reports of 64 ranks by at most 12 messages each$' \
    mpi -np 64 --bind-to none "$program" reports=1 nodes=2
finish
