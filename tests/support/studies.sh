# shellcheck shell=bash
# What a lab in ./out told of a study. Sourced by tests of studies, behind check.sh.

# holds WHAT STUDY EXPRESSION: of the study d, its runs r by id, its answers' figures f by name, its answers' text, and the
# records of its runs by id
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
