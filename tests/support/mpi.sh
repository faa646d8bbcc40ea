# What a test script that needs mpirun begins with, instead of check.sh:  . "$ECH_SRC/tests/support/mpi.sh"
#
#   mpi ARGS...              mpirun with what a test needs; a minute at most
#   bits FILE                the digests of sums in an output of $program, to compare transports
#
# $program runs all collectives; see tests/comm/prog_collectives.c.
# shellcheck shell=bash disable=SC2154
# shellcheck source=tests/support/check.sh
. "$ECH_SRC/tests/support/check.sh"

# shellcheck disable=SC2034
program=$ECH_BUILD/tests/comm_prog_collectives
no_mpi() { left_out "transport MPI" "$1"; skip "$1"; }
command -v mpirun >/dev/null || no_mpi "no mpirun"
[[ -f $ECH_BUILD/echelon_mpi.so ]] || no_mpi "this build is without Open MPI"
covered "transport MPI"
# A name that no other test has, so that what is left of this one can be told.
ln -s "$program" "$work/ranks"
program=$work/ranks

export ECHELON_PLUGIN_DIR=$ECH_BUILD TMPDIR=$work
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_base_warn_component_unused=0
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_backing_directory=$work
# What an MPI keeps until the end is no leak of ours.
export ASAN_OPTIONS=detect_leaks=0

mpi() { timeout -k 5 60 mpirun "$@"; }
bits() { grep '^bits of' "$1" | sort; }
