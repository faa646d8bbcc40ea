#!/bin/bash
# echelon bench comm: every collective and type between real ranks is right, the output is what programs read, wrong calls get
# one line, and nothing is left behind.
. "$ECH_SRC/tests/support/check.sh"
export XDG_CACHE_HOME=$work/cache HOME=$work
few=(--min 4 --max 70000 --factor 133 --iters 2 --warmup 1)

# right N ARGS...: the results are all right and complete
right() {
    local n=$1
    shift
    timeout 60 "$ECHELON" bench comm -n "$n" "${few[@]}" "$@" --json >"$work/out.json" || return 1
    python3 - "$n" "$work/out.json" <<'END'
import json, sys
ranks, doc = int(sys.argv[1]), json.load(open(sys.argv[2]))
factors = {"allreduce": 2 * (ranks - 1) / ranks, "reduce_scatter": (ranks - 1) / ranks,
           "allgather": (ranks - 1) / ranks}
assert doc["ranks"] == ranks and doc["cores"] >= 1 and doc["transport"] in ("shm", "mpi"), doc
assert doc["results"], "no results"
for row in doc["results"]:
    assert row["ranks"] == ranks and row["wrong"] == 0 and row["time_s"] > 0, row
    assert row["dtype"] in ("f32", "bf16", "f16", "s32") and len(row["samples_s"]) == 2, row
    assert abs(row["algbw_gbs"] - row["bytes"] / row["time_s"] / 1e9) <= 1e-9 * (1 + row["algbw_gbs"]), row
    factor = factors.get(row["op"], 1)
    assert abs(row["busbw_gbs"] - factor * row["algbw_gbs"]) <= 1e-9 * (1 + row["algbw_gbs"]), row
END
}

ops() {
    python3 -c "
import json, sys
rows = json.load(open('$work/out.json'))['results']
sys.exit({row['op'] for row in rows} != set('$1'.split()) or len({row['bytes'] for row in rows}) < $2)"
}

for n in 2 3; do
    for dtype in f32 bf16 f16 s32; do
        check "$n ranks, every collective, $dtype" right $n --op all --dtype $dtype
    done
    check "they are all there, in several sizes" \
        ops "allreduce reduce_scatter allgather broadcast barrier sendrecv" 4
    for reduction in mean max; do
        for dtype in f32 bf16 f16; do
            check "$n ranks, $reduction, $dtype" right $n --reduction $reduction --dtype $dtype
            check "$n ranks, $reduction, $dtype, reduce_scatter" right $n --op reduce_scatter \
                --reduction $reduction --dtype $dtype
        done
    done
    check "$n ranks, max, s32" right $n --reduction max --dtype s32
    check "$n ranks, out of place" right $n --in-place off
done
check "more ranks than cores" right $(($(nproc) + 2)) --op all
check "only what is asked for" ops "allreduce reduce_scatter allgather broadcast barrier sendrecv" 4
check "one op" right 2 --op sendrecv
check "is that op" ops sendrecv 2

table() { "$ECHELON" bench comm -n 2 "${few[@]}" --op allreduce; }
check "a table is printed" eval 'table >"$work/table"'
says "its head says ranks, cores and transport" "^# 2 ranks on [0-9]+ cores?, transport shm" cat "$work/table"
says "its columns are those of nccl-tests" "size +count +type +redop +time +algbw +busbw +#wrong" cat "$work/table"
says "its rows hold them" "^ +532 +133 +f32 +sum +[0-9.]+ +[0-9.]+ +[0-9.]+ +0$" cat "$work/table"
says "its last line is the average" "^# average bus bandwidth: [0-9.e-]+ GB/s$" tail -n 1 "$work/table"
check "one rank alone" "$ECHELON" bench comm -n 1 "${few[@]}" --op all

# wrong CODE PATTERN ARGS...: one case
wrong() {
    local code=$1 pattern=$2 got
    shift 2
    timeout 20 "$ECHELON" bench comm "$@" >"$work/out" 2>"$work/.output" </dev/null
    got=$?
    if [[ $got == "$code" && ! -s $work/out && $(wc -l <"$work/.output") == 1 ]] &&
        grep -qE -- "$pattern" "$work/.output"; then
        ok "bench comm $*"
    else
        echo "exit $got, expected $code with /$pattern/" >>"$work/.output"
        not_ok "bench comm $*"
    fi
}
wrong 2 "--min 8192 is larger than --max 4096" --min 8K --max 4K
wrong 2 "-n 0: must be at least 1|--ranks 0: must be at least 1" -n 0
wrong 2 "must be at most 256" -n 257
wrong 2 "--op gather: .*allreduce" --op gather
wrong 2 "--dtype f64: .*f32" --dtype f64
wrong 2 "--max 4X: must be a size" --max 4X
wrong 2 "--min 0: must be at least 1" --min 0
wrong 2 "--factor 1: must be at least 2" --factor 1
wrong 2 "--iters 0: must be at least 1" --iters 0
wrong 2 "mean does not support --dtype s32" --dtype s32 --reduction mean
wrong 2 "needs at least 2 ranks, got 1" -n 1 --op sendrecv
wrong 2 "--backend mpi needs mpirun" -n 2 --backend mpi
wrong 1 "--max [0-9]+: allreduce on 2 ranks needs .* of memory; this machine has" -n 2 --max 8000G
wrong 1 "--max [0-9]+: allgather on 2 ranks needs .* of memory; this machine has" -n 2 --op allgather --max 8388607T
finish
