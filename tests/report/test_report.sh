#!/bin/bash
# echelon report: files from the records of a made-up lab, what is in them, and one sentence for
# everything that is wrong.
. "$ECH_SRC/tests/support/check.sh"
cd "$work" || exit 1

make() { python3 "$ECH_SRC/tests/report/make_fixture.py" "$@"; }
make lab || exit 1

check "a report" "$ECHELON" report lab
check "has a page" test -s lab/report.html
prints() { has_part cairo && has_part pango; }
! prints || check "and a PDF" test -s lab/report.pdf
sum=$(sha256sum <lab/report.html)
check "once more" "$ECHELON" report lab
check "gives the same page" test "$sum" = "$(sha256sum <lab/report.html)"
says "help has examples" 'echelon report reports/quick' "$ECHELON" report --help

# ---- the page ----

cat >page.py <<'END'
import html.parser, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
VOID = {"meta", "link", "br", "img", "path", "rect"}

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.stack, self.ids, self.links, self.tags, self.words = [], [], [], {}, []
    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.tags[tag] = self.tags.get(tag, 0) + 1
        if "id" in a: self.ids.append(a["id"])
        if "href" in a: self.links.append(a["href"])
        assert not [k for k in a if k.startswith("on")], a
        assert "src" not in a, a
        if tag not in VOID: self.stack.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
    def handle_endtag(self, tag):
        if tag in VOID: return
        assert self.stack and self.stack[-1] == tag, (tag, self.stack[-4:], self.getpos())
        self.stack.pop()
    def handle_data(self, data):
        self.words.append(data)

p = Page()
p.feed(text)
assert not p.stack, p.stack
assert len(p.ids) == len(set(p.ids)), "ids come twice"
words = " ".join(p.words)
exec(sys.argv[2])
END
holds() { check "$1" python3 page.py "${3:-lab/report.html}" "$2"; }
holds "its elements are closed in order" 'pass'
holds "it has one script and one style" 'assert p.tags["script"] == 1 and p.tags["style"] == 1'
holds "links lead to studies and records only" \
    'assert all(re.fullmatch(r"#[a-z-]+|runs/[\w./-]+/run.json|data:,", l) for l in p.links), p.links'
holds "every study is in it" 'assert p.tags["article"] == 9'
holds "every plot twice, for wide and narrow screens" 'assert p.tags["svg"] == 2 * p.tags["figure"] == 22, p.tags'
holds "figures of answers are printed" \
    'assert "took" in words and "74.2\u00a0ms" in words and "{first}" not in words and "{Braces} stay" in words'
holds "and their sources" 'assert "emulated, n1, n4" in words and "median of steps 6 to 35" in words'
holds "emulated rows are marked" 'assert text.count("title=\"emulated\">e</sup>") == 3'
holds "a failed run says why" 'assert "rank 1 was killed by signal 9" in words'
holds "nothing remote" 'assert not re.search(r"https?:|url\((?!#)|@import", text)'
check "links lead to files" sh -c \
    'cd lab && grep -o "href=\"runs/[^\"]*" report.html | cut -d\" -f2 | xargs -n1 test -s'
check "elsewhere" "$ECHELON" report lab --out site/deep --format html
check "there is the page" test -s site/deep/report.html
refuse "and no PDF" test -e site/deep/report.pdf
check "links lead to the same files" sh -c \
    'cd site/deep && grep -o "href=\"[^\"#]*run.json" report.html | cut -d\" -f2 | xargs -n1 test -s'

# ---- hostile strings ----

make bad --hostile || exit 1
check "strings that are markup" "$ECHELON" report bad --csv
holds "stay strings" \
    'assert p.tags["script"] == 1 and "img" not in p.tags and "alert(1)" in words and "<!--" not in text' \
    bad/report.html

# ---- CSV ----

check "tables as CSV" "$ECHELON" report lab --format html --csv
csv() { check "$1" python3 -c 'import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline="")))
assert all(len(r) == len(rows[0]) for r in rows)
if not eval(sys.argv[2]): sys.exit(repr(rows))' "$3" "$2"; }
csv "have heads with units, ends of intervals and clocks" \
    'rows[0][:5] == ["Devices", "Time per step [ms]", "Time per step low [ms]", "Time per step high [ms]", "Time per step clock"]' \
    lab/csv/strong-scaling-1.csv
csv "and figures in full" \
    '[r[4] for r in rows[1:]] == ["measured", "measured", "emulated", "predicted"] and float(rows[1][1]) == 11.42' \
    lab/csv/strong-scaling-1.csv
csv "one file a table" 'len(rows) == 66' lab/csv/warmup-2.csv
csv "quotes are doubled" 'rows[1][0].endswith("\"'"'"'&amp;<!--")' bad/csv/accum-amp-1.csv
says "JSON says where" '"tables": 6' "$ECHELON" report lab --json --csv

# ---- pictures ----

check "plots as SVG" "$ECHELON" report lab --format html --pictures svg
check "each a well-formed file" python3 -c '
import glob, xml.etree.ElementTree as xml
files = glob.glob("lab/pictures/*.svg")
assert len(files) == 11, files
for f in files:
    root = xml.parse(f).getroot()
    words = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert root.tag.endswith("}svg") and len(words) > 5, (f, words)
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids)), f
    used = [v[5:-1] for e in root.iter() for v in e.attrib.values() if v.startswith("url(#")]
    assert set(used) <= set(ids), (f, used, ids)'
check "hostile ones too" "$ECHELON" report bad --format html --pictures svg
check "are well-formed" python3 -c '
import glob, xml.etree.ElementTree as xml
assert not any(e.tag.endswith("script") for f in glob.glob("bad/pictures/*.svg") for e in xml.parse(f).getroot().iter())'
if prints; then
    says "plots as PNG" '"plots": 11' "$ECHELON" report lab --format html --pictures png --json
    check "are PNG" python3 -c '
import glob
files = glob.glob("lab/pictures/*.png")
assert len(files) == 11 and all(open(f, "rb").read(8) == b"\x89PNG\r\n\x1a\n" for f in files)'
else
    says "a build that cannot print says so" 'no PNG plots: this build is without cairo' \
        "$ECHELON" report lab --format html --pictures png
fi

# ---- what it refuses ----

# sentence WHAT PATTERN ARGS...: fails with one line that matches, within a second.
sentence() {
    local what=$1 pattern=$2 code
    shift 2
    timeout 5 "$ECHELON" report "$@" >"$work/out" 2>"$work/.output"
    code=$?
    if ((code == 1 || code == 2)) && [[ ! -s $work/out && $(wc -l <"$work/.output") == 1 ]] &&
        grep -qE -- "$pattern" "$work/.output"; then
        ok "$what"
    else
        echo "exit code $code" >>"$work/.output"
        not_ok "$what"
    fi
}
fresh() {
    rm -rf broken
    cp -r lab broken
    rm -f broken/report.*
}
sentence "no directory" 'lab.json.*No such file' nowhere
sentence "no argument" 'DIR'
sentence "an empty one" "DIR '': must be a directory" ''
sentence "an unknown option" 'unknown option' lab --colour
sentence "an unknown format" '--format doc' lab --format doc
fresh && head -c 300 lab/lab.json >broken/lab.json
sentence "a torn lab" 'broken/lab.json: line [0-9]+' broken
refuse "nothing is written of a report that fails" test -e broken/report.html
fresh && for study in broken/studies/*.json; do : >"$study"; done
sentence "no study that can be read" 'no study can be read: study [a-z-]+: broken/studies/' broken
sentence "a place that cannot be written" 'directory for the report' lab --out /proc/nowhere
fresh && truncate -s -20 broken/runs/warmup/seed1/steps.jsonl
check "a last line that a killed run did not finish is left out" "$ECHELON" report broken --format html

# ---- where threads are few ----

# Pango looks for fonts in threads, and GLib ends a program that cannot start one.
limited() { # NUMBER COMMAND...: as a user that nothing else runs as, with so many processes
    local number=$1
    shift
    setpriv --reuid 64123 --regid 64123 --clear-groups bash -c 'ulimit -u "$1"; shift; exec "$@"' - "$number" "$@"
}
chmod 755 "$work" && chmod -R a+rX lab
export OPENBLAS_NUM_THREADS=1
if prints && [[ $(id -u) == 0 && -z ${ECH_SAN:-} ]] && command -v setpriv >/dev/null \
    && limited 20 "$ECHELON" --version >/dev/null 2>&1; then
    mkdir -m 777 few
    for number in 2 3; do
        limited "$number" "$ECHELON" report lab --out few/report 2>"$work/few.err"
        check "with $number processes there is no crash" test $? = 1
        check "but a line" bash -c \
            "grep -q 'a page with its fonts needs 8 threads' '$work/few.err' && test -s few/report/report.html"
    done
fi
unset OPENBLAS_NUM_THREADS

# ---- what it survives ----

format=()
prints || format=(--format html)
# torn WHAT PATTERN STUDY: one line that matches, exit code 1, and a report that says the same below
# the study's title and has the others
torn() {
    local code
    timeout 10 "$ECHELON" report broken "${format[@]}" >"$work/out" 2>"$work/.output"
    code=$?
    if ((code == 1)) && [[ $(wc -l <"$work/.output") == 1 ]] && { ! prints \
        || test -s broken/report.pdf; } && grep -qE -- "study $3: .*$2" "$work/.output" &&
        python3 - broken/report.html "$2" "$3" >>"$work/.output" 2>&1 <<'PY'; then ok "$1"; else not_ok "$1"; fi
import html, re, sys
articles = {a[0]: html.unescape(a[1]) for a in re.findall(r'<article id="([^"]+)">(.*?)</article>', open(sys.argv[1]).read(), re.S)}
assert re.search(r'<p class="failed">.*' + sys.argv[2], articles[sys.argv[3]]), articles[sys.argv[3]][:2000]
assert len(articles) > 3 and all("<table" in text or "<figure" in text for name, text in articles.items() if name != sys.argv[3]), list(articles)
PY
}
fresh && rm broken/studies/delay.json
torn "a study that is not there" 'broken/studies/delay.json.*No such file' delay
fresh && head -c 700 lab/studies/delay.json >broken/studies/delay.json
torn "a torn study" 'broken/studies/delay.json: line [0-9]+' delay
fresh && : >broken/studies/delay.json
torn "an empty study" 'broken/studies/delay.json' delay
fresh && cp broken/studies/delay.json broken/studies/warmup.json
torn "a study under another name" '"id" delay: must be warmup' warmup
fresh && sed -i 's/"title": "Speedup over the delay"/"titel": "x"/' broken/studies/delay.json
torn "a slip in a field" 'plots\[0\]: unknown field "titel"' delay
fresh && rm broken/runs/warmup/seed1/steps.jsonl
torn "a record that is not there" 'is left out: .*seed1/steps.jsonl.*No such file' warmup
fresh && sed -i '4s/.*/{"step": 4,/' broken/runs/warmup/seed1/steps.jsonl
torn "a torn line" 'is left out: .*seed1/steps.jsonl: line 4' warmup
fresh && sed -i 's/"step 7"/"step 8"/' broken/runs/mp-devices/baton/trace.json
torn "a trace without the step" 'is left out: .*baton/trace.json: there is no step 7 in it' mp-devices
finish
