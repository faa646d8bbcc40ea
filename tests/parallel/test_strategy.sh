#!/bin/bash
# The table of strategies and options: docs/architecture.md shows what the program says, and the program does what it says. An
# option that a strategy does not support is refused with exit code 2 and a reason; with any other a run succeeds.
. "$ECH_SRC/tests/support/check.sh"
cd "$work" || exit 1

"$ECHELON" info --strategies >said
sed -n '/^<!-- echelon info --strategies -->$/,/^<!-- end -->$/p' "$ECH_SRC/docs/architecture.md" | sed '1d;$d' >shown
check "docs/architecture.md shows the table" diff -u shown said

declare -A words=(
    [--accum]="--accum 2" [--amp]="--amp bf16" [--loss-scale]="--loss-scale 8" [--clip-norm]="--clip-norm 1"
    ["--grad-dtype bf16"]="--grad-dtype bf16" [--sync-bn]="--sync-bn" [--reproducible]="--reproducible --slots 2"
    [--backend]="--backend shm" [--straggle]="--straggle 1:1" [--max-restarts]="--max-restarts 1"
    ["--clock virtual"]="--clock virtual" ["--save or --resume"]="--save saved" [--mp]="--devices 4 --mp 2"
    [--placement]="--placement half" [--micro-batches]="--micro-batches 2" [--pipeline-schedule]="--pipeline-schedule gpipe"
    [--advise]="--advise --measure-seconds 0.01")

# try STRATEGY OPTION ANSWER
try() {
    local option=${words[$2]-} strategy=${1% in ranks} code want=0
    local command=(train --steps 2 --devices 2)
    [[ $2 == --advise ]] && command=(plan --devices "1,2" --costs-file costs.json)
    [[ $1 == *"in ranks" && $2 != --backend ]] && option+=" --backend shm"
    [[ $3 == no ]] && want=2
    rm -rf saved
    # shellcheck disable=SC2086 # words of a command line
    "$ECHELON" "${command[@]}" --dim 8 --depth 4 --batch-size 8 --threads 1 --tune off --parallel "$strategy" $option >.output 2>&1
    code=$?
    if [[ -n $option && $code == "$want" ]] && { ((want == 0)) || grep -q "is not supported with .*: " .output; }; then
        ok "$1: $2, $3"
    else
        echo "exit code $code" >>.output
        not_ok "$1: $2, $3"
    fi
}

cells=0
while IFS=$'\t' read -r strategy option answer; do
    # Such a group has no --mp, and echelon plan no --backend.
    [[ ($option == --mp || $option == --advise) && $strategy == *"in ranks" ]] && continue
    try "$strategy" "$option" "$answer"
    cells=$((cells + 1))
done < <(awk -F ' *[|] *' '/^\| option/ {n = NF - 1; for (i = 3; i <= n; i++) name[i] = $i}
    /^\| `/ {gsub("`", "", $2); for (i = 3; i <= n; i++) print name[i] "\t" $2 "\t" $i}' said)
echo "$cells cells" >.output
check "the table has cells" test "$cells" -ge 60
finish
