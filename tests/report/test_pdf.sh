#!/bin/bash
# report.pdf, read back with poppler: pages, contents, fonts, text that stays text.
. "$ECH_SRC/tests/support/check.sh"
no_pdf() { left_out "report.pdf" "$1"; skip "$1"; }
has_part cairo && has_part pango || no_pdf "this build is without cairo and pango"
for tool in pdfinfo pdftotext pdffonts pdftoppm; do
    command -v $tool >/dev/null || no_pdf "no $tool (poppler-utils)"
done
covered "report.pdf"
cd "$work" || exit 1

python3 "$ECH_SRC/tests/report/make_fixture.py" lab || exit 1
check "a report" "$ECHELON" report lab --format pdf
pdf=lab/report.pdf
says "is A4" '^Page size: +595\.2[0-9]* x 841\.[0-9]+ pts \(A4\)' pdfinfo $pdf
says "has a title" '^Title: +Parallel training on two cores$' pdfinfo $pdf
says "and a date" '^CreationDate: .*2026' pdfinfo $pdf
pages=$(pdfinfo $pdf | sed -n 's/^Pages: *//p')
check "has several pages" test "$pages" -ge 9
check "and not too many" test "$pages" -le 24

check "its fonts are embedded, as subsets" sh -c \
    'pdffonts "$0" | awk "NR > 2 { n++; if (\$(NF-4) != \"yes\" || \$(NF-3) != \"yes\") bad = 1 } END { exit bad || n < 2 }"' \
    $pdf

pdftotext -layout $pdf all.txt
for page in $(seq "$pages"); do
    pdftotext -layout -f "$page" -l "$page" $pdf "page$page.txt"
done
says "the contents are on the first page" '^ *Contents' cat page1.txt
numbered() { for page in $(seq "$pages"); do grep -qE "Parallel training on two cores +$page\$" \
    "page$page.txt" || return 1; done; }
check "every page has its number" numbered

# Every line of the contents names the page that the study's title is on.
contents() {
    python3 - "$pages" <<'END'
import json, re, sys
pages = {n: open(f"page{n}.txt").read() for n in range(1, int(sys.argv[1]) + 1)}
lab = json.load(open("lab/lab.json"))
titles = [json.load(open(f"lab/studies/{i}.json"))["title"] for i in lab["studies"]]
for title in titles:
    found = re.search(re.escape(title) + r"[ .\-]*?(\d+)$", pages[1], re.M)
    assert found, f"{title} is not in the contents"
    number = int(found.group(1))
    assert re.search(r"^ *" + re.escape(title) + r"$", pages[number], re.M), f"{title} is not on page {number}"
    others = [n for n in pages if n not in (1, number) and re.search(r"^ *" + re.escape(title) + r"$", pages[n], re.M)]
    assert not others, (title, others)
END
}
check "the contents have the right pages" contents
heads() { (($(grep -cE '^ *seed0-a +seed0-b +seed0-c +seed1$' all.txt) >= 2)); }
check "a table over several pages has its head on each" heads
rows() { python3 -c '
import re
steps = [int(m) for m in re.findall(r"^ *(\d+)(?: +\d+\.\d\d){4}$", open("all.txt").read(), re.M)]
assert steps == list(range(1, 66)), steps'; }
check "and every row once" rows
says "tables have figures with intervals and marks" '4 +4\.02 e \[1\] +3\.94.4\.10' cat all.txt
says "notes stand below" '^ *\[1\] Half of this is the exchange' cat all.txt
says "answers have their figures" '1\.81 times as fast as one \(1\.74 to 1\.88\)' cat all.txt
says "text of plots stays text" 'warm-up' cat all.txt
says "a failed run says why" 'rank 1 was killed by signal 9' cat all.txt
check "the outline has groups and studies" python3 -c '
import re, zlib
data = open("'$pdf'", "rb").read()
assert data.count(b"/Dest") + data.count(b"/Dests") > 0
assert b"/Outlines" in data'

# Nothing is drawn outside of the margins, and no page is empty.
pdftoppm -r 40 -gray $pdf shot
margins() {
    python3 - shot-*.pgm <<'END'
import sys
for name in sys.argv[1:]:
    data = open(name, "rb").read()
    parts = data.split(b"\n", 3)
    width, height = map(int, parts[1].split())
    pixels = parts[3]
    rows = [pixels[y * width:(y + 1) * width] for y in range(height)]
    ink = [(x, y) for y, row in enumerate(rows) for x, v in enumerate(row) if v < 200]
    assert len(ink) > 100, f"{name} is empty"
    left, right = min(x for x, _ in ink), max(x for x, _ in ink)
    assert left >= 0.08 * width and right <= 0.92 * width, (name, left, right, width)
END
}
check "all stays inside of the margins" margins

python3 "$ECH_SRC/tests/report/make_fixture.py" bad --hostile || exit 1
check "strings that are markup" "$ECHELON" report bad --format pdf
says "are printed as they are" '<script>alert\(1\)</script>' pdftotext bad/report.pdf -
finish
