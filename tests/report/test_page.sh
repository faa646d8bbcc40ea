#!/bin/bash
# report.html in a browser: no error, nothing wider than a phone, light and dark, tables that sort,
# hostile strings that do nothing.
. "$ECH_SRC/tests/support/check.sh"
no_browser() { left_out "browser" "$1"; skip "$1"; }
browser=$(command -v chromium || command -v chromium-browser) || no_browser "no chromium"
[[ -z ${ECH_SAN:-} ]] || no_browser "a sanitizer build: the page is the same in every build"
covered "browser"
cd "$work" || exit 1

python3 "$ECH_SRC/tests/report/make_fixture.py" lab || exit 1
python3 "$ECH_SRC/tests/report/make_fixture.py" bad --hostile || exit 1
check "a report" "$ECHELON" report lab --format html
check "one of hostile strings" "$ECHELON" report bad --format html

# The page with a script behind it that looks around and writes what it sees into the title.
probe() {
    python3 - "$1" "$2" <<'END'
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
script = """<script>
window.problems = [];
addEventListener('error', e => problems.push(String(e.message)));
addEventListener('securitypolicyviolation', e => problems.push('blocked ' + e.blockedURI));
window.alert = () => problems.push('alert');
</script>"""
look = """<script>
addEventListener('load', () => {
  const root = document.documentElement, seen = {problems};
  seen.width = innerWidth;
  seen.overflow = Math.max(root.scrollWidth, document.body.scrollWidth) - innerWidth;
  const wide = [...document.querySelectorAll('main *, header *')].filter(e => !e.closest('.scroll') && !e.closest('svg') &&
    e.getBoundingClientRect().right > innerWidth + 1);
  seen.wide = wide.slice(0, 3).map(e => e.outerHTML.slice(0, 80));
  seen.shown = [...document.querySelectorAll('svg')].filter(e => e.getBoundingClientRect().width > 0).length;
  seen.small = [...document.querySelectorAll('svg text')].map(e => [e.getBoundingClientRect().height, e.textContent])
    .filter(h => h[0] > 0 && h[0] < 8.5).length;
  seen.paper = getComputedStyle(root).backgroundColor;
  document.getElementById('theme').click();
  seen.other = getComputedStyle(root).backgroundColor;
  document.getElementById('theme').click();
  const table = [...document.querySelectorAll('table')].find(t => t.tHead.rows[0].cells[0].textContent.startsWith('Step'));
  const button = table.tHead.rows[0].cells[0].querySelector('button');
  const first = () => table.tBodies[0].rows[0].cells[0].textContent;
  seen.order = [first()];
  button.click(); seen.order.push(first());
  button.click(); seen.order.push(first());
  seen.rows = table.tBodies[0].rows.length;
  const point = document.querySelector('svg .h'), box = point.getBoundingClientRect();
  point.firstElementChild.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: box.x, clientY: box.y}));
  const tip = document.getElementById('tip');
  seen.tip = tip.hidden ? '' : tip.textContent;
  seen.menu = document.querySelector('nav details').open;
  seen.copies = [...document.querySelectorAll('.run button')].filter(b => !b.hidden).length;
  document.title = 'SEEN' + JSON.stringify(seen) + 'END';
});
</script>"""
text = text.replace("<head>", "<head>" + script, 1)
text = text.replace("</body>", look + "</body>", 1)
open(sys.argv[2], "w", encoding="utf-8").write(text)
END
}

profiles=0
chrome() {
    profiles=$((profiles + 1))
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking \
        --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars \
        --user-data-dir="$work/profile$profiles" "$@" 2>>"$work/chrome.log" </dev/null
}
# look NAME PAGE WIDTH OPTIONS...: what the page's script saw, as NAME.json. A window is never narrower than 500 in some
# versions, so that the page goes into a frame of the width.
look() {
    local name=$1 page=$2 width=$3
    shift 3
    probe "$page" "$name.html" || return 1
    cat >"$name-frame.html" <<END
<!doctype html><body style="margin:0"><iframe src="$name.html" style="border:0;width:${width}px;height:1400px"></iframe>
<script>
const frame = document.querySelector('iframe');
setInterval(() => { const t = frame.contentDocument.title; if (t.startsWith('SEEN')) document.title = t; }, 50);
</script></body>
END
    chrome --allow-file-access-from-files --virtual-time-budget=4000 "$@" --dump-dom \
        "file://$work/$name-frame.html" >"$name.dom"
    python3 - "$name" <<'END'
import html, json, re, sys
found = re.search("SEEN(.*?)END", open(sys.argv[1] + ".dom", encoding="utf-8").read(), re.S)
if not found:
    sys.exit("the page said nothing")
open(sys.argv[1] + ".json", "w").write(json.dumps(json.loads(html.unescape(found.group(1)))))
END
}
holds() { check "$1" python3 -c 'import json, sys
s = json.load(open(sys.argv[1] + ".json"))
if not eval(sys.argv[2]): sys.exit(json.dumps(s))' "$2" "$3"; }

check "a wide window" look wide lab/report.html 1200
holds "has no errors" wide 's["problems"] == []'
holds "does not scroll sideways" wide 's["width"] == 1200 and s["overflow"] <= 0 and s["wide"] == []'
holds "shows each plot once" wide 's["shown"] == 11'
holds "tables sort up and down" wide 's["order"] == ["1", "1", "65"] and s["rows"] == 65'
holds "values show under the pointer" wide '"ms" in s["tip"] or ":" in s["tip"]'
holds "the switch changes colours" wide 's["paper"] != s["other"]'
holds "commands can be copied" wide 's["copies"] > 9'
holds "contents are open" wide 's["menu"]'

check "a phone" look phone lab/report.html 360
holds "has no errors" phone 's["problems"] == []'
holds "does not scroll sideways" phone 's["width"] == 360 and s["overflow"] <= 0 and s["wide"] == []'
holds "shows each plot once, its text large enough" phone 's["shown"] == 11 and s["small"] == 0'
holds "contents are folded" phone 'not s["menu"]'

check "hostile strings" look hostile bad/report.html 360
holds "do nothing" hostile 's["problems"] == []'
holds "and do not break the width" hostile 's["overflow"] <= 0 and s["wide"] == []'

check "a dark system" look dark lab/report.html 1200 --force-dark-mode \
    --enable-features=WebContentsForceDark:disabled --blink-settings=preferredColorScheme=0
holds "is dark" dark 's["paper"] == "rgb(20, 23, 26)"'
holds "a light one is light" wide 's["paper"] == "rgb(255, 255, 255)"'
if [[ -n ${ECH_SHOTS:-} ]]; then # pictures to look at
    chrome --window-size=1200,6000 --screenshot="$ECH_SHOTS/light.png" "file://$work/lab/report.html"
    chrome --window-size=1200,6000 --blink-settings=preferredColorScheme=0 \
        --screenshot="$ECH_SHOTS/dark.png" "file://$work/lab/report.html"
    sed 's/height:1400px/height:9000px/' phone-frame.html >phone-tall.html
    chrome --allow-file-access-from-files --window-size=500,9000 \
        --screenshot="$ECH_SHOTS/phone.png" "file://$work/phone-tall.html"
fi
finish
