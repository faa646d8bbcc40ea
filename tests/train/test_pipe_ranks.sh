#!/bin/bash
# Layers of one model in several ranks, over shared memory and over MPI: the bits of one process, and ranks that die.
. "$ECH_SRC/tests/support/check.sh"
cd "$work" || exit 1
. "$ECH_SRC/tests/support/ranks.sh"

linear=(--dim 32 --depth 6 --batch-size 16 --threads 1 --steps 8 --warmup 2 --tune off)
images=(--model resnet8 --limit 48 --batch-size 16 --threads 1 --epochs 1 --warmup 1 --tune off)
# value KEY FILE: the last number or text of that name in a record
value() { sed -nE "s/.*\"$1\": \"?([^\",]*)\"?,?\$/\1/p" "$2" | tail -n 1; }
run() {
    local name=$1
    shift
    timeout 60 "$ECHELON" train --json --save-params "$name.safetensors" "$@" >"$name.json" 2>.output
}
same() {
    echo "$(value params_sha256 "$1.json") and $(value params_sha256 "$2.json")" >.output
    [[ -n $(value params_sha256 "$1.json") && $(value params_sha256 "$1.json") == "$(value params_sha256 "$2.json")" ]] &&
        [[ $(value final_loss "$1.json") == "$(value final_loss "$2.json")" ]] && cmp "$1.safetensors" "$2.safetensors"
}

check "one device" run one "${linear[@]}"
check "two ranks over shared memory" run mp2 "${linear[@]}" --parallel mp --devices 2 --backend shm
check "have its bits" same one mp2
check "five ranks" run mp5 "${linear[@]}" --parallel mp --devices 5 --backend shm --run-dir r --trace
check "have them too" same one mp5
check "and the record of all devices" python3 -c "
import json
s = json.load(open('r/run.json'))['summary']
t = json.load(open('r/trace.json'))
assert s['devices'] == 5 and s['world_size'] == 1 and len(s['utilisation']) == 5
assert s['peak_memory_bytes'] == s['planned_memory_bytes'] and all(b > 0 for b in s['peak_memory_bytes'])
assert all(p['time_s'] > 0 for p in s['placement']) and all(m['time_s'] > 0 for m in s['transfers']['moves'])
assert {e['pid'] for e in t if e['name'].startswith('linear ')} == set(range(5))"
check "images on one device" run image1 "${images[@]}"
check "and in three ranks" run image3 "${images[@]}" --parallel mp --devices 3 --backend shm
check "are the same" same image1 image3
check "evaluation too" test "$(value accuracy image1.json)" = "$(value accuracy image3.json)"
for order in gpipe 1f1b; do
    check "a pipeline in one process, $order" run "p-$order" "${linear[@]}" --parallel pipeline --devices 3 --micro-batches 8 --pipeline-schedule $order
    check "and in three ranks" run "r-$order" "${linear[@]}" --parallel pipeline --devices 3 --micro-batches 8 --pipeline-schedule $order --backend shm
    check "are the same" same "p-$order" "r-$order"
done
check "fewer micro-batches than devices" run few "${linear[@]}" --parallel pipeline --devices 5 --micro-batches 2 --backend shm
check "large messages" run large --dim 1024 --depth 3 --batch-size 64 --threads 1 --steps 3 --warmup 1 --tune off --parallel pipeline --devices 3 --micro-batches 8 --backend shm

if command -v mpirun >/dev/null && [[ -f $ECH_BUILD/echelon_mpi.so ]]; then
    export ECHELON_PLUGIN_DIR=$ECH_BUILD OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_base_warn_component_unused=0
    export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_backing_directory=$work
    export ASAN_OPTIONS=detect_leaks=0
    mpi() {
        local name=$1
        shift
        timeout -k 5 60 mpirun -np 3 "$ECHELON" train --json --save-params "$name.safetensors" "$@" >"$name.json" 2>.output
    }
    for backend in auto mpi; do
        check "three ranks of mpirun, $backend" mpi "m-$backend" "${linear[@]}" --parallel mp --backend $backend
        check "have the bits of one device" same one "m-$backend"
        check "as a pipeline" mpi "mp-$backend" "${linear[@]}" --parallel pipeline --micro-batches 8 --backend $backend
        check "those of one process" same p-1f1b "mp-$backend"
    done
else
    left_out "transport MPI" "no mpirun, or a build without Open MPI"
    ok "ranks of mpirun # skip no MPI"
fi

# ---- ranks that die ----

cd "$work" || exit 1
rm -rf r
start train --dim 32 --depth 6 --batch-size 16 --threads 1 --steps 1000000 --tune off --parallel pipeline --devices 3 \
    --micro-batches 4 --backend shm --run-dir r
check "a long pipeline of ranks runs" until_steps r/steps.jsonl 20
kill -9 "$(rank_pid 1)"
check "a killed rank ends it" over 20
echo "exit code $code" >.output
check "with the signal's code" test "$code" -eq 137
check "and is named" file_says err 'rank 1'
check "nobody is left" no_rank 10
rm -rf r
start train --dim 32 --depth 6 --batch-size 16 --threads 1 --steps 1000000 --tune off --devices 4 --mp 2 --clock real --run-dir r
check "two groups of devices run" until_steps r/steps.jsonl 20
kill -9 "$(rank_pid 1)"
check "a killed group ends them" over 20
echo "exit code $code" >.output
check "with its code too" test "$code" -eq 137
check "and leaves nobody" no_rank 10
rm -rf r
export ECHELON_TIMEOUT=2
start train --dim 32 --depth 6 --batch-size 16 --threads 1 --steps 1000000 --tune off --parallel mp --devices 2 --backend shm --run-dir r
check "two ranks of one model run" until_steps r/steps.jsonl 20
stopped=$(rank_pid 1)
kill -STOP "$stopped"
check "a stopped rank ends them after the time-out" over 30
check "which names it" file_says err 'rank 1'
check "and it is gone" no_rank 10
unset ECHELON_TIMEOUT

# ---- what is refused ----

wrong() {
    local expected=$1 pattern=$2
    shift 2
    timeout 20 "$ECHELON" train --dim 8 --depth 3 --steps 2 --warmup 0 --threads 1 --tune off "$@" >/dev/null 2>.output
    local got=$?
    if [[ $got == "$expected" ]] && grep -qE -- "$pattern" .output; then ok "refused: $*"; else not_ok "refused: $*"; fi
}
wrong 1 '4 model-parallel devices for a model of 3 layers' --parallel mp --devices 4 --backend shm
wrong 2 'the layers are in several processes' --parallel mp --devices 2 --backend shm --save c
wrong 1 'in the order of the devices' --parallel mp --devices 2 --backend shm --placement 0,1,0
finish
