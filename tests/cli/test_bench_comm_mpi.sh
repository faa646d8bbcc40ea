#!/bin/bash
# echelon bench comm under mpirun: over shared memory and over messages, with mpirun's ranks.
. "$ECH_SRC/tests/support/mpi.sh"

# measured NAME RANKS BACKEND: every collective in a few sizes; keeps the table under that name.
measured() {
    mpi -np "$2" "$ECHELON" bench comm --op all --min 4 --max 70000 --factor 133 --iters 2 --backend "$3" >"$work/$1"
}
has() { grep -qE -- "$2" "$work/$1" || { cat "$work/$1"; false; }; }

for ranks in 2 3; do
    check "$ranks ranks over shared memory" measured shm $ranks auto
    check "are there" has shm "^# $ranks ranks on [0-9]+ cores?, transport shm"
    check "$ranks ranks over messages" measured mpi $ranks mpi
    check "are there too, on one machine" has mpi "^# $ranks ranks on [0-9]+ cores?, transport mpi"
    check "down to the last collective" has mpi "^# sendrecv"
done
check "the number of ranks may be said" mpi -np 2 "$ECHELON" bench comm -n 2 --max 4K
says "another one is refused" "-n 3: the launcher already started 2 ranks" mpi -np 2 "$ECHELON" bench comm -n 3
says "ranks that want different things are refused" "op: allgather" \
    mpi -np 1 "$ECHELON" bench comm --op broadcast : -np 1 "$ECHELON" bench comm --op allgather
finish
