#!/bin/bash
# The studies of layers on several devices at tiny sizes: every run works, every answer is complete,
# and placement, moves and bytes are what they must be.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/studies.sh"
export ECHELON_TUNING=$work/tuning.json ECHELON_COSTS=$work/costs.json
cd "$work" || exit 1

studies=(mp-placement mp-depth mp-devices mp-transfers)
sizes=(dim=32 steps=8 batch=8)
check "tiny studies" "$ECHELON" lab run "${studies[@]}" --quick --out out "${sizes[@]/#/--set=}"
for id in "${studies[@]}"; do
    complete "$id"
done

holds "half of the layers are on each device" mp-placement \
    'f["on0"] == f["on1"] == 3 and f["forward"] == f["backward"] == 1 and f["bytes"] == 8 * 32 * 4'
holds "a layer's device follows the rule" mp-devices \
    '"Every layer of every run" in text and f["least"] == 4 and f["most"] == 5'
holds "data moves once less than there are devices" mp-transfers \
    'f["asked"] == 20 and f["moves2"] == f["back2"] == 1 and f["moves5"] == f["back5"] == 4 and "once less than there are devices" in text'
holds "in proportion to the cuts" mp-transfers 'abs(f["each"] - 2 * 8 * 32 * 4) < 1e-6 and abs(f["from"] - 1) < 1e-6'
holds "runs of the same words are one" mp-transfers \
    'r["mp5"]["record"] == {x["id"]: x for x in json.load(open("out/studies/mp-devices.json"))["runs"]}["mp5"]["record"]'
survive "${studies[@]}" "${sizes[@]}"
finish
