#!/bin/bash
# echelon plan export, --costs-file and --device-speed: measured costs go to other machines and to faster devices.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/plan.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

linear=(--dim 64 --depth 2 --tune off --batch-size 8 --devices "1,2,16")
links=(--link "1GB/s,1us")
json() {
    local name=$1
    shift
    "$ECHELON" plan --json --measure-seconds 0.05 "$@" >"$name.json" 2>.output
}
# refused WHAT PATTERN COMMAND...: one line that matches, and a failure
refused() {
    local what=$1 pattern=$2
    shift 2
    if "$@" >.out 2>.output; then
        not_ok "$what"
    elif [[ $(wc -l <.output) == 1 ]] && grep -qE -- "$pattern" .output; then
        ok "$what"
    else
        not_ok "$what"
    fi
}

refused "nothing to export" 'no costs of this machine are in .*costs.json: echelon plan measures them' "$ECHELON" plan export node.json
check "costs are measured" json own "${linear[@]}" "${links[@]}"
check "and exported" "$ECHELON" plan export node.json
holds "which names the machine" 'list(d["node"]["machines"]) == [d["node"]["exported"]]' node
refused "but not into their own store" 'costs.json is the store itself' "$ECHELON" plan export costs.json
refused "nor where nothing can be written" '/nowhere/node.json' "$ECHELON" plan export /nowhere/node.json

# Another machine has another name, and costs and kernel times of its own.
sed -E 's/"exported":"[^"]*"/"exported":"elsewhere"/; s/("machines":\{)"[^"]*"/\1"elsewhere"/' node.json >far.json
sum=$(sha256sum far.json)
export ECHELON_TUNING=$work/other/tuning.json
check "they price a step on another machine" json there "${linear[@]}" "${links[@]}" --costs-file far.json
check "nothing is measured" test ! -s .output -a ! -e other
check "and the file stays as it is" test "$sum" = "$(sha256sum far.json)"
holds "prices are the same" 'd["there"]["rows"] == d["own"]["rows"]' there own
holds "and say where costs come from" 'd["there"]["costs"]["other_machine"] == "elsewhere" and d["own"]["costs"]["other_machine"] is None' there own
says "the table says it too" 'on another machine \(elsewhere\)' "$ECHELON" plan "${linear[@]}" "${links[@]}" --costs-file far.json
check "other batches are extrapolated" json wide --dim 64 --depth 2 --tune off --batch-size 64 --devices 1 "${links[@]}" --costs-file far.json
holds "and say so" 'r["wide"][1]["extrapolated"] == 8' wide
refused "another model is not known" "are not known on elsewhere" "$ECHELON" plan --dim 65 "${links[@]}" --costs-file far.json
refused "and cannot be measured there" '--measure: far.json has the costs of another machine \(elsewhere\)' "$ECHELON" plan "${linear[@]}" "${links[@]}" --costs-file far.json --measure

check "faster devices" json fast "${linear[@]}" "${links[@]}" --costs-file far.json --device-speed 4
holds "compute in a quarter of the time" 'all(abs(r["fast"][n]["compute_s"] * 4 / r["own"][n]["compute_s"] - 1) < 1e-9 for n in (1, 2, 16))' fast own
holds "over the same links" 'r["fast"][16]["comm_s"] == r["own"][16]["comm_s"] and d["fast"]["costs"]["device_speed"] == 4' fast own
holds "and none of it was measured" 'all(x["clock"] == "predicted" for x in d["fast"]["rows"]) and r["own"][1]["clock"] == "measured"' fast own
check "the store keeps what was measured" json again "${linear[@]}" "${links[@]}" --costs-file far.json
holds "as before" 'd["again"]["rows"] == d["own"]["rows"]' again own
refused "not without links" '--device-speed 4 requires --link or --cluster' "$ECHELON" plan "${linear[@]}" --device-speed 4
refused "not with a description" '--device-speed does not apply' "$ECHELON" plan --device-spec "$ECH_SRC/examples/devices/a40.json" --device-speed 4
refused "not by nothing" '--device-speed' "$ECHELON" plan "${linear[@]}" "${links[@]}" --device-speed 0

head -c 200 far.json >torn.json
says "a torn file is reported" 'torn.json' "$ECHELON" plan "${linear[@]}" "${links[@]}" --costs-file torn.json --measure-seconds 0.05
finish
