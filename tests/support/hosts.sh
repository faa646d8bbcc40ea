# What a test of several hosts begins with, instead of check.sh:  . "$ECH_SRC/tests/support/hosts.sh"
#
# start HOSTS COMMAND...    mpirun from host h1, HOSTS as h1:2,h2:1; there are h1, h2 and h3; $map
# says how ranks are numbered
#   hosts HOSTS ARGS...       the same with $program of mpi.sh
#   run NAME HOSTS ARGS...    the same, its output kept under that name
#   has NAME PATTERN          whether that output has such a line
#
# Hosts are network and UTS namespaces with names and addresses of their own, joined by a bridge.
# mpirun reaches them through a launch agent that enters a namespace where ssh would log in. The
# script is run again in a PID namespace and a mount namespace of its own, so nothing is left when
# it ends, whatever happens; where there are no rights for that, it is skipped.
# shellcheck shell=bash disable=SC2154
if [[ ${1-} != inside ]]; then
    no_hosts() { printf '%s: %s\n' "left out - network namespaces" "$1" "skipped" "$1"; exit 77; }
    as_root=()
    ((EUID == 0)) || as_root=(--map-root-user)
    inside=(unshare "${as_root[@]}" --net --mount --uts --ipc --pid --fork --kill-child --mount-proc)
    for tool in mpirun unshare nsenter ip; do
        command -v $tool >/dev/null || no_hosts "no $tool"
    done
    # shellcheck disable=SC2016
    if ! reason=$("${inside[@]}" sh -c 'ip link add h0 type veth peer name h1 && ip link add b0 type bridge &&
            unshare --net --uts true && mount --bind /etc/hosts /etc/hosts' 2>&1); then
        no_hosts "no rights to make network namespaces: ${reason//$'\n'/; }"
    fi
    exec "${inside[@]}" "$0" inside
fi
. "$ECH_SRC/tests/support/mpi.sh"
covered "network namespaces"

# add_host NUMBER: a host named hNUMBER with address 10.77.0.NUMBER on its interface eth0.
add_host() {
    local name=h$1 pid
    unshare --net --uts sleep infinity &
    pid=$!
    echo $pid >"$work/$name.pid"
    until [[ $(readlink /proc/$pid/exe) == */sleep ]]; do kill -0 $pid && sleep 0.01 || return 1; done
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

on() { nsenter -t "$(cat "$work/$1.pid")" -n -u "${@:2}"; }
map=slot
start() {
    on h1 timeout -k 5 60 mpirun --host "$1" --bind-to none -x ECHELON_PLUGIN_DIR -x ASAN_OPTIONS \
        -x ECHELON_TIMEOUT --map-by "$map" "${@:2}"
}
hosts() { start "$1" "$program" "${@:2}"; }
run() { hosts "${@:2}" >"$work/$1" 2>&1 || { cat "$work/$1"; false; }; }
has() { grep -qE -- "$2" "$work/$1" || { cat "$work/$1"; false; }; }
export ECHELON_TIMEOUT=60
