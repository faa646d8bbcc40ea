#!/bin/bash
# Gradients in bf16 and a broken step over MPI: the bits of shared memory.
. "$ECH_SRC/tests/support/mpi.sh"
cd "$work" || exit 1

train=("$ECHELON" train --dim 64 --depth 2 --batch-size 8 --steps 8 --tune off --threads 1 --clock real --json)
# get FILE EXPRESSION: of the summary s
get() { python3 -c \
    'import json, sys; s = json.load(open(sys.argv[1]))["summary"]; print(eval(sys.argv[2]))' \
    "$1" "$2"; }
same() {
    echo "$2 and $3" >.output
    if [[ -n $2 && $2 == "$3" ]]; then ok "$1"; else not_ok "$1"; fi
}

precision=(--grad-dtype bf16 --clip-norm 0.05 --loss-scale 1024 --accum 2)
"${train[@]}" --devices 2 "${precision[@]}" >shm.json 2>.output
mpi -np 2 "${train[@]}" --backend mpi "${precision[@]}" >mpi.json 2>.output
same "it is MPI" mpi "$(get mpi.json 's["communication"]["backend"]')"
same "gradients in bf16, clipped and scaled, have the same bits" "$(get shm.json 's["params_sha256"]')" \
    "$(get mpi.json 's["params_sha256"]')"
same "and half of the bytes travel" 1 "$(get mpi.json 's["comm_bytes_per_step"] // s["parameters"] // 2')"
finish
