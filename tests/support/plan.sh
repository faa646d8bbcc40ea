# What scripts that read documents of echelon plan begin with, after check.sh:  . "$ECH_SRC/tests/support/plan.sh"
#
#   holds WHAT EXPRESSION NAMES...    of the documents d[NAME] in NAME.json, and their rows r[NAME], by devices
holds() {
    local what=$1 expression=$2
    shift 2
    check "$what" python3 -c '
import json, sys
d = {n: json.load(open(n + ".json")) for n in sys.argv[2:]}
r = {n: {x["devices"]: x for x in d[n].get("rows", []) if "devices" in x} for n in d}
if not eval(sys.argv[1]):
    sys.exit("not so: " + sys.argv[1] + "\n" + json.dumps(d)[:2500])' "$expression" "$@"
}
