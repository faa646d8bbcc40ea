#!/bin/bash
# The live view of a lab that really runs: what it shows, whom it refuses, and that nothing of it is left behind.
. "$ECH_SRC/tests/support/check.sh"
has_part libmicrohttpd || { left_out "live view" "this build is without libmicrohttpd"; skip "no live view"; }
covered "live view"
unset ECHELON_TUNING ECHELON_COSTS ECH_CIFAR
export XDG_CACHE_HOME=$work/cache HOME=$work
program=$ECH_BUILD/tests/echelon_studies
cd "$work" || exit 1
server='' port=''
trap '[[ -z $server ]] || kill -9 "$server" 2>/dev/null; rm -rf "$work"' EXIT

# code WANTED COMMAND...: its exit code
code() {
    local wanted=$1 got
    shift
    "$@"
    got=$?
    [[ $got == "$wanted" ]] || { echo "exit code $got, not $wanted"; return 1; }
}
# serve OUT STUDY...: a lab in the background; its port in $port
serve() {
    local out=$1 i
    shift
    # A shell that runs a script lets its background jobs ignore SIGINT, which this one is to be stopped by.
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$program" lab run "$@" --quick --out "$out" --serve 0 >"$out.out" 2>"$out.err" &
    server=$!
    for ((i = 0; i < 100; i++)); do
        port=$(sed -n 's,^live view: http://127\.0\.0\.1:\([0-9]*\)/$,\1,p' "$out.err")
        [[ -n $port ]] && return 0
        sleep 0.1
    done
    cat "$out.err"
    return 1
}

# request LINE...: the answer to a request of these lines, headers included
cat >request.py <<'END'
import socket, sys
port, *lines = sys.argv[1:]
with socket.create_connection(("127.0.0.1", int(port)), 5) as s:
    s.sendall("".join(line + "\r\n" for line in [*lines, "Connection: close", ""]).encode())
    answer = b""
    while part := s.recv(65536):
        answer += part
sys.stdout.buffer.write(answer.replace(b"\r\n", b"\n"))
END
request() { python3 request.py "$port" "$@"; }
get() { request "GET $1 HTTP/1.1" "Host: 127.0.0.1:$port"; }
# has PATTERN PATH: whether a page has it in it
has() { get "$2" | grep -aE -- "$1"; }

# wait_for SECONDS CONDITION: asks for the state until the condition on it, s, holds
cat >wait_for.py <<'END'
import json, sys, time, urllib.request
port, seconds, condition = sys.argv[1:]
end = time.time() + float(seconds)
s = None
while time.time() < end:
    s = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/state", timeout=5))
    if eval(condition):
        sys.exit(0)
    time.sleep(0.3)
sys.exit(json.dumps(s)[:3000])
END
wait_for() { python3 wait_for.py "$port" "$@"; }

# ---- what cannot be served ----

python3 -c 'import socket, time
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(100)' >taken &
taker=$!
for ((i = 0; i < 100; i++)); do [[ -s taken ]] && break; sleep 0.1; done
taken=$(<taken)
lab=("$program" lab run probe --quick --out none --serve)
check "a port that is in use fails" code 1 "${lab[@]}" "$taken"
says "in one line that names it" '^1:echelon lab run: port [0-9]+ of 127\.0\.0\.1 is in use' \
    bash -c '"$@" 2>&1 | grep -n .' - "${lab[@]}" "$taken"
check "before any run" test ! -e none/runs
kill "$taker"
wait "$taker" 2>/dev/null
check "a port out of range is wrong usage" code 2 "${lab[@]}" 65536
says "and is named" '65536' "${lab[@]}" 65536

# As a user that nothing else runs as, where there may be as many processes as NUMBER.
limited() { # NUMBER COMMAND...
    local number=$1
    shift
    setpriv --reuid 64123 --regid 64123 --clear-groups bash -c 'ulimit -u "$1"; shift; exec "$@"' - "$number" "$@"
}
if [[ $(id -u) == 0 && -z ${ECH_SAN:-} ]] && command -v setpriv >/dev/null \
    && limited 10 "$program" --version >/dev/null 2>&1; then
    chmod 755 "$work"
    mkdir -m 777 few
    export OPENBLAS_NUM_THREADS=1 # its threads would be refused first
    check "a live view without a thread fails" code 1 limited 1 "$program" lab run probe --quick --serve 0 --out few/lab
    says "in one line that says why" '^1:echelon lab run: the live view needs 1 thread, of which 0 can be started' \
        bash -c "$(declare -f limited)"'; limited 1 "$@" 2>&1 | grep -n .' - "$program" lab run \
        probe --quick --serve 0 --out few/lab
    unset OPENBLAS_NUM_THREADS
fi

# ---- a lab that goes on until it is stopped ----

check "a lab begins, and says where it can be looked at" serve long probe watched
check "a study is told meanwhile" wait_for 80 's["studies"][0]["state"] == "told"'
check "the state has the run that goes on" wait_for 20 \
    's["current"] and s["current"]["run"] == "slow" and s["current"]["pid"] > 0 and s["current"]["seconds"] > 0'
check "its steps" wait_for 30 's["series"]["run"] == "slow" and s["series"]["done"] > 600'
check "in no more points than a screen can show" wait_for 5 \
    '0 < len(s["series"]["points"]) <= 512 and all(len(p) == 7 for p in s["series"]["points"])'
check "which hold all of them" wait_for 5 \
    'all(q[0] == p[1] + 1 for p, q in zip([[0, 0]] + s["series"]["points"], s["series"]["points"]))'
check "with losses and times" wait_for 5 \
    'all(p[2] >= 0 and 0 < p[4] <= p[3] * 1.001 <= p[5] * 1.002 for p in s["series"]["points"])'
check "both of its devices, and that they are busy" wait_for 20 \
    '[d["name"] for d in s["devices"]] == ["device 0", "device 1"] and all((d["busy"] or 0) > 0.01 for d in s["devices"])'
check "what is to be done and what was done" wait_for 5 \
    's["series"]["steps"] == 100000 and [r["state"] for r in s["studies"][0]["runs"]] == ["done"] * 5 and not s["finished"] and not s["over"]'

# ---- who may look, and at what ----

says "the page" '^HTTP/1.1 200' get /
says "is HTML" '^Content-Type: text/html; charset=utf-8' get /
says "may load nothing from elsewhere, and no script but its own" \
    "^Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'" get /
refuse "names no other place" has 'https?:|<script>|<style|style=' /
says "the style has the report's colours" '^:root\{color-scheme:light;--paper:#ffffff;' get /style.css
says "the script" '^Content-Type: text/javascript' get /script.js
refuse "which never writes markup" has 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(' /script.js
says "the state is JSON" '^Content-Type: application/json' get /state
says "and is not kept" '^Cache-Control: no-store' get /state
says "by the name localhost too" '^HTTP/1.1 200' request "GET / HTTP/1.1" "Host: localhost:$port"
says "another host is refused" '^HTTP/1.1 403' request "GET /state HTTP/1.1" "Host: evil.example:$port"
says "one that begins like ours too" '^HTTP/1.1 403' request "GET /state HTTP/1.1" "Host: 127.0.0.1.evil.example:$port"
says "another port too" '^HTTP/1.1 403' request "GET /state HTTP/1.1" "Host: 127.0.0.1:1"
says "no host at all too" '^HTTP/1.[01] 40[03]' request "GET /state HTTP/1.0"
says "POST is refused" '^HTTP/1.1 405' request "POST /state HTTP/1.1" "Host: 127.0.0.1:$port" "Content-Length: 0"
says "and told what is answered" '^Allow: GET$' request "POST /state HTTP/1.1" \
    "Host: 127.0.0.1:$port" "Content-Length: 0"
says "DELETE is refused" '^HTTP/1.1 405' request "DELETE / HTTP/1.1" "Host: 127.0.0.1:$port"
for path in /state/ /lab.json /../../../../etc/passwd /%2e%2e/%2e%2e/etc/passwd //etc/passwd /runs/ /style.css/..; do
    says "there is no $path" '^HTTP/1.1 404' get "$path"
done
says "a header without end is refused" '^HTTP/1.[01] 4[0-9][0-9]|ConnectionResetError|BrokenPipe' \
    request "GET / HTTP/1.1" "Host: 127.0.0.1:$port" "X: $(head -c 100000 /dev/zero | tr '\0' x)"
says "only this machine is listened to" "^127\.0\.0\.1:$port$" bash -c "ss -Hltn 'sport = :$port' | awk '{print \$4}'"

# ---- who holds connections without asking for anything ----

# 200 clients that send a header byte by byte, and that nobody can tell from an honest one at any single moment.
cat >slow.py <<'END'
import select, socket, sys, time
port = int(sys.argv[1])
def connect(source):
    s = socket.socket()
    s.settimeout(5)
    s.bind((source, 0))
    s.connect(("127.0.0.1", port))
    return s
def ask(s):
    s.sendall(f"GET /state HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    answer = s.recv(20)
    assert answer.startswith(b"HTTP/1.1 200"), answer
def drip(clients):
    for s in list(clients):
        try:
            s.send(b"x")
        except OSError:
            clients.remove(s)
def is_closed(s):
    try:
        return bool(select.select([s], [], [], 0)[0]) and s.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True
def slow(count):
    clients = []
    for i in range(count):
        s = connect("127.0.0.1")
        s.sendall(b"GET /state HTTP/1.1\r\nX-Slow: ")
        clients.append(s)
    return clients

honest = connect("127.0.0.2")
ask(honest)
honest.setblocking(False)
while select.select([honest], [], [], 0.5)[0] and honest.recv(65536):
    pass
honest.settimeout(5)
clients = slow(200)
for i in range(5):
    drip(clients)
    time.sleep(0.1)
ask(connect("127.0.0.2"))
ask(connect("127.0.0.1"))  # also from where the slow ones are
ask(honest)                # a connection that was open before stays so
left = [s for s in clients if not is_closed(s)]
assert len(left) <= 16, f"{len(left)} of 200 slow clients are still connected"

few = slow(3)
end = time.time() + 11
while time.time() < end:
    drip(few)
    time.sleep(0.5)
ask(connect("127.0.0.1"))
time.sleep(0.5)
assert all(is_closed(s) for s in few), "a request that is never completed stays for ever"
END
check "slow clients keep nobody out, and do not stay" timeout 60 python3 slow.py "$port"
check "the live view goes on" wait_for 5 's["current"] and not s["over"]'

# ---- the page in a browser ----

if browser=$(command -v chromium || command -v chromium-browser) && [[ -z ${ECH_SAN:-} ]]; then
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking \
        --disable-component-update --disable-sync --disable-dev-shm-usage --user-data-dir="$work/profile" \
        --enable-logging=stderr --virtual-time-budget=3500 --dump-dom "http://127.0.0.1:$port/" \
        >page.html 2>browser.log </dev/null
    says "the page shows the run" 'id="run">Watched, slow<' cat page.html
    says "its curves" '<figure id="time">.*class="f-none l-s1".*<h2>Runs' tr -d '\n' <page.html
    says "its devices" '>device 1</span>' cat page.html
    says "the runs before it" '<summary>A probe: 5 of 5 runs<' cat page.html
    refuse "without any error" grep CONSOLE browser.log
    covered "browser"
fi

# ---- how it ends ----

processes=$(get /state | python3 -c 'import json, subprocess, sys
pid = str(json.loads(sys.stdin.read().split("\n\n", 1)[1])["current"]["pid"])
lines = subprocess.run(["ps", "--ppid", pid, "-o", "pid=,comm="], capture_output=True, text=True, check=True).stdout.splitlines()
children = dict(line.split(None, 1) for line in lines)
assert sum(name != "echelon-watch" for name in children.values()) == 2, children
print(",".join([pid, *children]))')
check "the run has its processes" ps -p "$processes"
begin=$SECONDS
kill -INT "$server"
wait "$server"
check "a signal ends the lab as it does without a view" test $? = 130
check "soon" test $((SECONDS - begin)) -le 10
server=''
refuse "nobody listens any more" get /
sleep 0.2
refuse "no process of the run is left" ps -p "$processes"

# Somebody who looks once a second gets to see the end, and where the report is.
cat >watch.py <<'END'
import json, sys, time, urllib.request
last = None
try:
    while not (last and last["over"]):
        last = json.load(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/state", timeout=5))
        time.sleep(1)
except OSError as error:
    sys.exit(f"the end was not seen: {error}")
assert last["finished"] and last["report"]["ready"] and last["current"] is None, last
assert last["report"]["path"] == sys.argv[2], last["report"]
END
check "a second lab" serve long probe
python3 watch.py "$port" "$(realpath long)/report.html" >watch.out 2>&1 &
watcher=$!
wait "$server"
check "succeeds" test $? = 0
server=''
wait "$watcher"
watched=$?
check "and who looks on sees it finished" bash -c "cat watch.out; exit $watched"
finish
