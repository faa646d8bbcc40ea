# For tests of studies, after check.sh: what `echelon lab` has left in out/.
#
# holds "what" STUDY EXPRESSION    one case: Python, of the study d, its runs r by id and record(id)
# of each, its answers' figures f by
#                                    name, and text, all that it answers
#   complete STUDY                   cases that are the same for every study
#   survive STUDY... NAME=VALUE...   each run of these studies, which were run with these sizes, fails once, alone
# shellcheck shell=bash
holds() {
    check "$1" python3 -c '
import json, os, sys
d = json.load(open("out/studies/%s.json" % sys.argv[1]))
r = {x["id"]: x for x in d["runs"]}
f = {x["name"]: x["value"] for a in d["answers"] for x in a["figures"]}
text = " ".join(a["text"] for a in d["answers"])
def record(id):
    for name in "run.json", "result.json":
        path = os.path.join("out", r[id]["record"], name)
        if os.path.exists(path):
            return json.load(open(path))
if not eval(sys.argv[2]):
    sys.exit("not so: %s\n%s\n%s" % (sys.argv[2], f, text))' "$2" "$3"
}
complete() {
    holds "$1 has all of its runs" "$1" 'r and all(x["status"] in ("done", "reused") for x in r.values())'
    holds "and complete answers" "$1" \
        'd["answers"] and d["tables"] and d["plots"] and "No result" not in text and "Nothing can be said" not in text'
    check "whose figures can be computed again" python3 "$ECH_SRC/tests/lab/recompute.py" out
}
survive() { check "whichever single run fails, the rest stands" \
    "$ECH_BUILD/tests/lab_prog_faults" "$ECHELON" out "$@"; }
