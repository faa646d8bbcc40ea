#!/bin/bash
# ECHELON_ISA and --isa: every level of vector instructions that this processor has trains every model to the same losses, as far
# as rounding goes; the others are refused.
. "$ECH_SRC/tests/support/check.sh"
[[ -x $ECHELON ]] || skip "no program"
unset ECHELON_ISA OPENBLAS_CORETYPE
export ECHELON_TUNING=$work/tuning.json ECHELON_COSTS=$work/costs.json
cd "$work" || exit 1

levels=(generic avx2 avx512 avx512_vnni avx512_bf16)
"$ECHELON" info --json >own.json
own=$(python3 -c 'import json; print(json.load(open("own.json"))["machine"]["isa_of_processor"])')
says "without a level it is the processor's own" "^isa +$own\$" "$ECHELON" info
has=() lacks=()
for level in "${levels[@]}"; do
    if [[ ${#lacks[@]} == 0 && " ${has[*]} " != *" $own "* ]]; then has+=("$level"); else lacks+=("$level"); fi
done

# exits_2 WHAT COMMAND...: wrong usage.
exits_2() {
    local what=$1
    shift
    "$@" >.output 2>&1
    if [[ $? == 2 ]]; then ok "$what"; else not_ok "$what"; fi
}

# ---- what is refused ----

names='generic\|avx2\|avx512\|avx512_vnni\|avx512_bf16'
for command in info train plan 'bench step' 'bench comm' quantize 'run -n 1 -- true' 'lab run strong-scaling'; do
    read -ra words <<<"$command"
    says "an unknown level is named ($command)" "ECHELON_ISA 'sse9': must be one of $names; this processor has $own" \
        env ECHELON_ISA=sse9 "$ECHELON" "${words[@]}"
done
exits_2 "it is wrong usage" env ECHELON_ISA=sse9 "$ECHELON" info
says "so it is as an option" "info: --isa 'sse9': must be one of $names" "$ECHELON" info --isa sse9
exits_2 "with the same code" "$ECHELON" train --isa sse9
for level in "${lacks[@]}"; do
    says "$level is more than there is" "$level: this processor has no more than $own\$" "$ECHELON" info --isa "$level"
    exits_2 "which is wrong usage" env ECHELON_ISA="$level" "$ECHELON" train --steps 1
done

# ---- each level ----

declare -A core=([generic]='Nehalem' [avx2]='Haswell|Zen' [avx512]='SkylakeX' [avx512_vnni]='SkylakeX' [avx512_bf16]='[A-Za-z]+')
declare -A onednn=([generic]='sse4.1' [avx2]='avx2' [avx512]='avx512' [avx512_vnni]='avx512\+vnni' [avx512_bf16]='avx512\+bf16')
train=("$ECHELON" train --threads 1 --tune off --steps 3 --warmup 1 --seed 3)

[[ $own == generic ]] ||
    says "where OpenBLAS was told to take more it is left out" 'OpenBLAS [^ ]+ Haswell unused$' \
        env OPENBLAS_CORETYPE=Haswell "$ECHELON" info --isa generic

# trains LEVEL NAME OPTION...: records in LEVEL-NAME.
trains() {
    local level=$1 name=$2
    shift 2
    check "$name is trained with $level" "${train[@]}" --isa "$level" --run-dir "$level-$name" "$@"
}

for level in "${has[@]}"; do
    says "info shows $level" "^isa +$level, set by ECHELON_ISA; the processor supports $own\$" env ECHELON_ISA="$level" "$ECHELON" info
    says "oneDNN and OpenBLAS keep to $level" "^libraries +(oneDNN [0-9.]+ ${onednn[$level]}|no oneDNN); OpenBLAS [^ ]+ (${core[$level]})\$" \
        "$ECHELON" info --isa "$level"
    says "a program of one's own keeps to $level too" "^$level\$" "$ECHELON" run --isa "$level" -n 1 -- sh -c "echo \$ECHELON_ISA"
    trains "$level" linear --dim 96 --depth 3 --batch-size 33
    trains "$level" lenet --model lenet --batch-size 9
    trains "$level" resnet8 --model resnet8 --batch-size 5
    trains "$level" resnet18 --model resnet18 --batch-size 2 --steps 2
    trains "$level" bf16 --model resnet8 --batch-size 5 --amp bf16
    covered "vector width $level"
done
for level in "${lacks[@]}"; do left_out "vector width $level" "this processor has none"; done

cat >compare.py <<'END'
import json, sys
levels = sys.argv[1:]
def losses(run):
    return [json.loads(line)["loss"] for line in open(run + "/steps.jsonl")]
for name, tolerance in (("linear", 1e-5), ("lenet", 1e-4), ("resnet8", 1e-3), ("resnet18", 1e-2), ("bf16", 5e-2)):
    first = losses("generic-" + name)
    assert len(first) >= 2 and all(0 < x < 100 for x in first), (name, first)
    for level in levels:
        other = losses(level + "-" + name)
        assert len(other) == len(first)
        for a, b in zip(first, other):
            assert abs(a - b) <= tolerance * abs(a), (name, level, first, other)
    for level in levels:
        assert json.load(open(level + "-" + name + "/run.json"))["machine"]["isa"] == level
END
check "losses are the same at every level, as far as rounding goes" python3 compare.py "${has[@]}"

# ---- timings of one level are not those of another ----

for level in "${has[@]}"; do
    "$ECHELON" train --isa "$level" --dim 32 --depth 1 --batch-size 8 --threads 1 --steps 1 >.output 2>&1
done
check "kernels are timed apart for each level" python3 -c '
import json, sys
machines = json.load(open("tuning.json"))["machines"]
assert len(machines) == len(sys.argv) - 1, machines.keys()
for level in sys.argv[1:]:
    assert sum(f"; isa {level};" in name for name in machines) == 1, machines.keys()' "${has[@]}"
finish
