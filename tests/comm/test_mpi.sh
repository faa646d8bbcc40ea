#!/bin/bash
# Ranks that mpirun starts on this machine: every collective over shared memory and over messages,
# and how it ends when a rank goes.
. "$ECH_SRC/tests/support/mpi.sh"

# run NAME RANKS BACKEND: all collectives; keeps the output under that name.
run() { mpi -np "$2" --bind-to none "$program" backend="$3" "${@:4}" >"$work/$1" 2>&1 || { cat "$work/$1"; false; }; }
has() { grep -qE -- "$2" "$work/$1" || { cat "$work/$1"; false; }; }

for ranks in 2 3 4; do
    check "$ranks ranks over shared memory" run "shm$ranks" $ranks auto nodes=1
    check "$ranks ranks over messages" run "mpi$ranks" $ranks mpi nodes=$ranks
    bits "$work/shm$ranks" >"$work/shm_bits"
    bits "$work/mpi$ranks" >"$work/mpi_bits"
    check "sums of $ranks ranks have the same bits over both" \
        sh -c 'test -s "$0" && cmp "$0" "$1"' "$work/shm_bits" "$work/mpi_bits"
done
check "auto on one node is shared memory" has shm2 '^2 ranks on 1 nodes over shm$'
check "mpi is messages" has mpi2 '^2 ranks on 2 nodes over mpi$'
memories() { sed -nE 's/^rank .*memory ([1-9][0-9]*)$/\1/p' "$work/$1" | sort -u | wc -l; }
says "ranks of a node share one memory" '^1$' memories shm3
says "and none over messages" '^3$' memories mpi3
check "shm asked for by name" run named 2 shm nodes=1 quick=1
check "one rank" run one 1 auto nodes=1 quick=1

# What mpirun left unbound is shared out, and a bad binding is named.
cores=$(nproc)
if ((cores >= 2)); then
    check "each rank takes its share of the cores" has shm2 "^rank 1, .* may use $((cores / 2)) cores"
    first=$(taskset -cp $$ | sed -E 's/.*: ([0-9]+).*/\1/')
    says "ranks on one core are told so" "^log: ranks 0, 1 are bound to core $first of .*--bind-to" \
        mpi -np 2 --bind-to none taskset -c "$first" "$program"
else
    ok "cores of ranks # skip one core only"
fi

# The job ends when a rank goes, however it goes.
# ends "CODES" SECONDS ARGS...: with one of these codes, and no later.
ends() {
    local start=$SECONDS code
    mpi -np 3 --bind-to none "$program" "${@:3}" >"$work/end" 2>&1
    code=$?
    [[ " $1 " == *" $code "* ]] && ((SECONDS - start <= $2)) \
        || { echo "code $code, $((SECONDS - start)) s"; cat "$work/end"; false; }
}
check "a killed rank ends the job" ends 137 10 die=1
# Those who notice that it left may be faster with their own code.
check "a rank that fails ends the job" ends "1 3" 10 quit=1
check "and over messages, with its code" ends 3 10 backend=mpi quit=2
export ECHELON_TIMEOUT=2
check "a stopped rank ends the job" ends 1 15 stop=1
check "and is named with the operation" has end 'waited 2.* s for rank 1 in (allreduce|barrier)'
check "a stopped rank over messages" ends 1 15 backend=mpi stop=1
check "is named too" has end 'waited 2.* s for rank 1 in (allreduce|barrier) #[0-9]+'
# One that does not come to MPI_Init at all, where MPI itself would wait for ever.
absent() {
    local start=$SECONDS code
    mpi -np 2 --bind-to none bash -c \
        '[[ $OMPI_COMM_WORLD_RANK == 1 ]] && kill -STOP $$; exec "$0" quick=1' "$program" \
        >"$work/end" 2>&1
    code=$?
    ((code == 1 && SECONDS - start <= 20)) || { echo "code $code, $((SECONDS - start)) s"; cat "$work/end"; false; }
}
check "a rank that is stopped before MPI_Init ends the job" absent
check "and the other one says where it waited" has end 'rank 0 waited 2 s in MPI_Init for the other ranks'
unset ECHELON_TIMEOUT
refuse "no process is left" pgrep -f "^$program"

# An MPI that was not started by its own mpirun thinks that it is alone.
says "ranks that MPI does not see are named" 'mpiexec started 4 ranks, but Open MPI .* sees 1: ' \
    env PMI_RANK=0 PMI_SIZE=4 timeout 60 "$program"

mkdir -p "$work/root/bin" "$work/root/lib/echelon"
cp "$program" "$work/root/bin/program"
cp "$ECH_BUILD/echelon_mpi.so" "$work/root/lib/echelon/"
check "an installed plugin is found beside the program" \
    env -u ECHELON_PLUGIN_DIR timeout 60 mpirun -np 2 "$work/root/bin/program" quick=1
cp "$program" "$work/program"
export ECHELON_PLUGIN_DIR=$work/nowhere
says "a missing plugin is named with what to install" \
    'echelon_mpi\.so was not found: install Open MPI .*libopenmpi-dev' mpi -np 2 "$work/program"
export ECHELON_PLUGIN_DIR=$work
echo nothing >"$work/echelon_mpi.so"
says "so is a broken one" 'echelon_mpi\.so cannot be loaded' mpi -np 2 "$work/program"
finish
