#!/bin/bash
# Ranks on several hosts: network and UTS namespaces with names and addresses of their own, joined by a bridge. mpirun reaches
# them through a launch agent that enters a namespace where ssh would log in. Everything lives in a PID namespace and a mount
# namespace of its own, so nothing is left when this script ends, whatever happens.
if [[ ${1-} != inside ]]; then
    as_root=()
    ((EUID == 0)) || as_root=(--map-root-user)
    inside=(unshare "${as_root[@]}" --net --mount --uts --ipc --pid --fork --kill-child --mount-proc)
    for tool in mpirun unshare nsenter ip; do
        command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
    done
    # shellcheck disable=SC2016
    if ! reason=$("${inside[@]}" sh -c 'ip link add h0 type veth peer name h1 && ip link add b0 type bridge &&
            unshare --net --uts true && mount --bind /etc/hosts /etc/hosts' 2>&1); then
        echo "skipped: no rights to make network namespaces: ${reason//$'\n'/; }"
        exit 77
    fi
    exec "${inside[@]}" "$0" inside
fi
. "$ECH_SRC/tests/support/mpi.sh"

# add_host NUMBER: a host named hNUMBER with address 10.77.0.NUMBER on its interface eth0.
add_host() {
    local name=h$1 pid
    unshare --net --uts sleep infinity &
    pid=$!
    echo $pid >"$work/$name.pid"
    until [[ $(readlink /proc/$pid/exe) == */sleep ]]; do sleep 0.01; done
    nsenter -t $pid -u hostname "$name" &&
        ip link add "v$1" type veth peer name eth0 netns $pid && ip link set "v$1" master hub up &&
        nsenter -t $pid -n ip addr add "10.77.0.$1/24" dev eth0 &&
        nsenter -t $pid -n ip link set eth0 up && nsenter -t $pid -n ip link set lo up &&
        echo "10.77.0.$1 $name" >>"$work/hosts"
}

make_network() {
    echo "127.0.0.1 localhost" >"$work/hosts"
    ip link set lo up && ip link add hub type bridge && ip link set hub up &&
        add_host 1 && add_host 2 && add_host 3 && mount --bind "$work/hosts" /etc/hosts
}

# As ssh is called: options, the host, and a command in words for its shell.
cat >"$work/agent" <<'END'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1
shift
exec nsenter -t "$(cat "$(dirname "$0")/$host.pid")" -n -u sh -c "$*"
END
chmod +x "$work/agent"
make_network >"$work/.output" 2>&1 || { not_ok "three hosts on one network"; finish; }
export OMPI_MCA_plm_rsh_agent=$work/agent OMPI_MCA_btl_tcp_if_include=eth0
export OMPI_MCA_oob_tcp_if_include=eth0

# run NAME HOSTS ARGS...: all collectives from host h1; keeps the output under that name.
on() { nsenter -t "$(cat "$work/$1.pid")" -n -u "${@:2}"; }
map=slot
hosts() {
    on h1 timeout -k 5 60 mpirun --host "$1" --bind-to none -x ECHELON_PLUGIN_DIR -x ASAN_OPTIONS \
        -x ECHELON_TIMEOUT --map-by "$map" "$program" "${@:2}"
}
run() { hosts "${@:2}" >"$work/$1" 2>&1 || { cat "$work/$1"; false; }; }
has() { grep -qE -- "$2" "$work/$1" || { cat "$work/$1"; false; }; }
memories() { sed -nE "s/^rank .* on $2, .*memory ([1-9][0-9]*)\$/\\1/p" "$work/$1" | sort | uniq -c | sed -E 's/^ *([0-9]+) .*/\1/' | paste -sd' '; }
same_bits() {
    bits "$work/$1" | grep -E "$3" >"$work/a"
    bits "$work/$2" | grep -E "$3" >"$work/b"
    test -s "$work/a" && cmp "$work/a" "$work/b"
}
sent() { on h2 ip -s link show dev eth0 | awk '/TX:/ { getline; print $1 }'; }
export ECHELON_TIMEOUT=60

before=$(sent)
check "two hosts with two ranks each" run two h1:2,h2:2 nodes=2
check "they are two nodes" has two '^4 ranks on 2 nodes over mpi$'
says "ranks of the first share one memory" '^2$' memories two h1
says "ranks of the second share another" '^2$' memories two h2
says "the hosts share none" '^2$' sh -c 'sed -nE "s/^rank .*memory ([1-9][0-9]*)\$/\1/p" "$0" | sort -u | wc -l' "$work/two"
check "what they exchange goes over the network" test $(($(sent) - before)) -gt 4000000
check "four ranks on one host" run one h1:4 quick=1 nodes=1
check "sums over two hosts have the bits of sums on one" same_bits two one 'sum of f(32|64)'
check "so have blocking ones of 16 bits" same_bits two one ' a sum of bf16'

check "three hosts with one rank each" run three h1:1,h2:1,h3:1 nodes=3
check "three ranks on one host" run single h1:3 quick=1 nodes=1
check "have the same bits" same_bits three single 'sum'
check "two ranks and one" run uneven h1:2,h2:1 quick=1 nodes=2
check "one rank and two" run other h1:1,h2:2 quick=1 nodes=2
check "blocking sums have the same bits wherever the ranks are" same_bits uneven single ' a sum of'
check "messages only" run messages h1:2,h2:2 backend=mpi quick=1 nodes=4
check "have the same bits" same_bits messages one 'sum'
map=node
check "ranks that are numbered across the hosts" run across h1:2,h2:2 quick=1 nodes=2
check "rank 2 is the first host's second" has across '^rank 2, 1 of 2 on h1,'
check "blocking sums are in the order of the ranks all the same" same_bits across one ' a sum of'
map=slot
says "shared memory alone is refused between hosts" 'backend shm: the 2 ranks are on 2 nodes' \
    hosts h1:1,h2:1 backend=shm

# ends "CODES" SECONDS HOSTS ARGS...: with one of these codes, and no later.
ends() {
    local start=$SECONDS code
    hosts "${@:3}" >"$work/end" 2>&1
    code=$?
    [[ " $1 " == *" $code "* ]] && ((SECONDS - start <= $2)) || {
        echo "code $code after $((SECONDS - start)) s"
        cat "$work/end"
        false
    }
}
check "a rank killed on another host ends the job" ends "1 137" 10 h1:2,h2:2 die=3
check "a rank killed on this host too" ends "1 137" 10 h1:2,h2:2 die=0
check "a rank that fails on another host too" ends "1 3" 10 h1:2,h2:2 quit=2
export ECHELON_TIMEOUT=2
check "a stopped rank on another host too" ends 1 15 h1:2,h2:1 stop=2
check "and is named with the operation" has end 'waited 2.* s for rank 2 in (allreduce|barrier) #[0-9]+'
sleep 1
left() { pgrep -x 'orted|mpirun|comm_prog_colle'; }
refuse "no process is left" left
finish
