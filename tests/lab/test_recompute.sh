#!/bin/bash
# Figures of answers, computed a second time from the records by another program. What was changed is found.
. "$ECH_SRC/tests/support/check.sh"

python=$(command -v python3) || skip "python3 is not installed"
again() { "$python" "$ECH_SRC/tests/lab/recompute.py" "$1"; }
# fresh NAME: a lab directory of that name
fresh() { mkdir "$work/$1" && "$ECH_BUILD/tests/lab_prog_tell" "$work/$1"; }

check "a small lab is told" fresh whole
says "every figure is what its source gives" '^5 figures, 0 differ; 2 answers, 0 malformed$' again "$work/whole"
check "and that is success" again "$work/whole"

fresh value
sed -i '/"name": "speedup2"/,/}/s/"value": 1\.[0-9]*/"value": 1.5/' "$work/value/studies/told.json"
says "a changed figure is found" 'speedup2 is 1.5, and' again "$work/value"
refuse "and that is failure" again "$work/value"

fresh record
sed -i '5,$s/"time_s":0.0/"time_s":0.1/' "$work/record/runs/two/steps.jsonl"
says "a changed record is found" '^5 figures, 3 differ' again "$work/record"

fresh text
sed -i 's/ab1cd/ab2cd/' "$work/text/runs/one/run.json"
says "a changed text of a record is found" "hash is 'ab1cd', and" again "$work/text"

fresh digit
sed -i 's/That is clearly/That is 2 times clearly/' "$work/digit/studies/told.json"
says "a digit that is no figure is found" 'has a digit that is no figure' again "$work/digit"
refuse "and that is failure too" again "$work/digit"

fresh long
sed -i "s/That is clearly/$(printf 'That is clearly %.0s' {1..100})/" "$work/long/studies/told.json"
says "an answer that is too long is found" 'at most 1500' again "$work/long"

fresh none
sed -i '/"answers": \[/,$d' "$work/none/studies/told.json"
echo '"answers": []}' >>"$work/none/studies/told.json"
refuse "a lab without any figure is no success" again "$work/none"

finish
