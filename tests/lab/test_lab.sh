#!/bin/bash
# The lab with studies of its own (tests/lab/studies): what is run, reused, repeated and told; what
# fails and what is refused.
. "$ECH_SRC/tests/support/check.sh"
. "$ECH_SRC/tests/support/labs.sh"

# ---- lists ----

says "a study is added by adding a file" '^probe +B +2 s +4 s +A probe$' "$program" lab list
refuse "and only the program that has it shows it" bash -c "'$ECHELON' lab list | grep -q probe"
says "a study's sizes are listed" '^ +dim +32 +64 +1 \.\. 65536 +width of a layer$' "$program" lab list probe
says "also as JSON" '"quick": 32' "$program" lab list probe --json

# ---- runs ----

check "two studies are run" "$program" lab run troubled probe --quick --out "$lab"
check "every run of the first" is "first done again done onward done machine done second done" runs "$lab" probe
check "a failing run is a row, and the rest goes on" is "large failed onward skipped absurd skipped good reused" \
    runs "$lab" troubled
says "the row says why" '"reason": "a batch of 8 needs [0-9]+ bytes .* limit is 1024 bytes' cat \
    "$lab/studies/troubled.json"
says "and what could not be built on it" 'it needs run large, which failed' cat "$lab/studies/troubled.json"
check "lab.json has them in order" is "probe troubled" told "$lab"
check "there is a page" test -s "$lab/report.html"
! has_part cairo || ! has_part pango || check "there is a PDF" test -s "$lab/report.pdf"
check "kernel timings are the lab's own" test -s "$lab/tuning.json"
check "the user's are left alone" test ! -e "$work/cache"
check "a command that prints has a complete record" python3 -c \
    'import glob, json, sys; [f] = glob.glob(sys.argv[1] + "/runs/info-*/result.json"); json.load(open(f))' "$lab"
check "a repetition is a run of its own, with the same result" python3 - "$lab" <<'END'
import json, sys
runs = {r["id"]: r for r in json.load(open(sys.argv[1] + "/studies/probe.json"))["runs"]}
assert runs["first"]["record"] != runs["again"]["record"]
losses = {json.load(open(f"{sys.argv[1]}/{runs[i]['record']}/run.json"))["summary"]["final_loss"] for i in ("first", "again")}
assert len(losses) == 1, losses
assert runs["first"]["command"].startswith("echelon train "), runs["first"]["command"]
assert "--seed 0 --threads 1" in runs["first"]["command"] and "@" not in runs["onward"]["command"]
END
check "the machine and its noise are told: five equal runs first, one before the second study" python3 - "$lab" <<'END'
import json, sys
lab = json.load(open(sys.argv[1] + "/lab.json"))
assert lab["profile"] == "quick" and lab["seeds"] == [0] and "lab run troubled probe" in lab["command"], lab
assert {"processor", "cores", "memory"} <= {m["name"] for m in lab["machine"]}
noise = {n["name"]: n["value"] for n in lab["noise"]}
assert noise["equal runs"] == 6 and 0 < noise["equal runs differ by"] < 1 and 2e-4 < noise["idle loop"] < 5e-3, noise
END

# ---- again ----

stamp() { stat -c %y "$lab"/runs/*/done.json | sha256sum; }
before=$(stamp)
says "finished runs are reused" '^probe +0 +5 +0 +0 ' "$program" lab run probe --quick --format html --out "$lab"
check "none was touched" is "$before" stamp
check "studies that were told before stay in the report" is "probe troubled" told "$lab"
rm "$(grep -l -- '--lr 0.5' "$lab"/runs/*/done.json)"
says "a run that was interrupted is run again" '^probe +1 +4 +0 +0 ' "$program" lab run probe \
    --quick --format html --out "$lab"
says "one that failed too" '^troubled +0 +1 +1 +2 ' "$program" lab run troubled --quick --format html --out "$lab"
says "--force repeats all, and equal words once" '^troubled +1 +0 +1 +2 ' "$program" lab run \
    troubled --quick --format html --out "$lab" --force
says "--set changes a size" '^probe +4 +1 +0 +0 ' "$program" lab run probe --quick --format html \
    --out "$lab" --set probe.dim=48
says "and its command says so" 'lab run probe --quick --out [^ ]* --set probe.dim=48"' cat "$lab/studies/probe.json"
says "the study is at its new size" '"dim": 48' bash -c "cat '$lab'/runs/*/run.json"

# ---- wrong calls ----

# wrong CODE PATTERN ARGS...: one line on stderr, nothing on stdout, at once
wrong() {
    local want=$1 pattern=$2 got
    shift 2
    timeout 2 "$program" lab "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    cp "$work/err" "$work/.output"
    if [[ $got == "$want" && ! -s $work/out && $(wc -l <"$work/err") == 1 ]] && grep -qE -- "$pattern" "$work/err"; then
        ok "lab $*"
    else
        echo "exit $got, expected $want with /$pattern/" >>"$work/.output"
        not_ok "lab $*"
    fi
}
cd "$work" || exit 1
touch "$work/file"
wrong 2 "needs list, run STUDY or all"
wrong 2 "prob: no such study; did you mean probe\?" run prob
wrong 2 "frobnicate-all: no such study; see echelon lab list" run frobnicate-all
wrong 2 "prob: no such study; did you mean probe\?" list prob
wrong 2 "STUDY is missing" run
wrong 2 "--set dum=4: no such size; did you mean dim\?" run probe --set dum=4
wrong 2 "--set frob.dim=4: frob: no such study" run probe --set frob.dim=4
wrong 2 "--set troubled.dim=4: troubled is not among the studies" run probe --set troubled.dim=4
wrong 2 "--set troubled.dim=4: troubled has no size dim" run troubled --set troubled.dim=4
wrong 2 "--set dim: must be NAME=VALUE" run probe --set dim
wrong 2 "--set dim=-4: dim of probe must be a whole number from 1 to 65536" run probe --set dim=-4
wrong 2 "--set probe.dim=65537: dim of probe must be a whole number from 1 to 65536" run probe --set probe.dim=65537
wrong 2 "--devices '1,x': must be numbers" run probe --devices 1,x
wrong 2 "--devices: begins with 2" run probe --devices 2,4
wrong 2 "--devices: 2 behind 4; numbers must ascend, up to 256" run probe --devices 1,4,2
wrong 2 "--devices: 257 behind 1" run probe --devices 1,257
wrong 2 "--devices '1,': must be numbers" run probe --devices 1,
wrong 2 "--run-limit 0: must be at least" run probe --run-limit 0
wrong 2 "--seed -1: must be at least 0" run probe --seed=-1
wrong 2 "--format odt: must be one of" run probe --format odt
wrong 1 "--data-dir empty: the six files of CIFAR-10 are not there" run probe --data-dir empty
wrong 1 "directory of the lab .*file.*" run probe --out "$work/file"
wrong 1 "directory of the lab /proc/lab cannot be written" run probe --out /proc/lab
wrong 2 "--out: must be a path" run probe --out ""
# ---- divergence ----

check "a training that diverges is a result" code 0 "$program" lab run wild --quick --out "$lab"
check "and no failed run" is "tame done wild done" runs "$lab" wild
says "its run says at which step" '"reason": "it diverged at step [0-9]+"' cat "$lab/studies/wild.json"
says "figures of its loss say so" '"note": "wild: it diverged at step [0-9]+"' cat "$lab/studies/wild.json"
says "and sentences" 'wild: it diverged at step [0-9]+' grep '"text"' "$lab/studies/wild.json"
says "and the report" 'wild</code> ended, but it diverged at step' cat "$lab/report.html"
check "its times are as good as any" python3 - "$lab/studies/wild.json" <<'END'
import json, sys
rows = json.load(open(sys.argv[1]))["tables"][0]["rows"]
def value(cell): return cell["value"] if isinstance(cell, dict) else cell
assert all(value(row[3]) > 0 for row in rows), rows
assert value(rows[0][1]) > 0 and value(rows[0][2]) > 0, rows
assert value(rows[1][1]) is None and value(rows[1][2]) is None, rows
END

finish
