#!/bin/bash
# The set-up with a package manager of our own: it asks only for what is missing, goes on with what
# is here when it cannot install, and names what is missing and what that is for.
. "$ECH_SRC/tests/support/check.sh"

bin=$work/bin
mkdir "$bin"
export CALLS=$work/calls MISSING='' APT_ANSWER='' UNKNOWN=''
# dpkg-query knows all packages but those in MISSING; apt-get writes down how it was called.
cat >"$bin/dpkg-query" <<'END'
#!/bin/bash
for name in "${@:4}"; do
    [[ " $MISSING " == *" $name "* ]] && continue
    echo "$name installed"
done
END
cat >"$bin/apt-get" <<'END'
#!/bin/bash
echo "$*" >>"$CALLS"
[[ -n $UNKNOWN && " $* " == *" $UNKNOWN "* ]] && APT_ANSWER="Unable to locate package $UNKNOWN"
[[ -z $APT_ANSWER ]] && exit 0
printf 'Reading...\nE: %s\nE: more\n' "$APT_ANSWER"
exit 100
END
printf '#!/bin/bash\n[[ $1 == -n ]] && shift\nexec "$@"\n' >"$bin/sudo"
chmod +x "$bin"/*
export bin
setup() { PATH=$bin:$PATH "$ECH_SRC/tools/setup" "$@" </dev/null; }

refuse "it is silent when nothing is missing" sh -c '"$@" 2>&1 | grep .' - env PATH="$bin:$PATH" \
    "$ECH_SRC/tools/setup" build test
refuse "and calls no package manager" test -e "$CALLS"

MISSING="cmake libcmocka-dev"
check "it installs" setup build test
says "after an update" '^1:.* update$' grep -n . "$CALLS"
says "what is missing and nothing else" '^2:.* install --no-install-recommends cmake libcmocka-dev$' grep -n . "$CALLS"

rm "$CALLS"
check "a group that was not asked for is left alone" setup lint
says "the shared package is not" 'libcmocka-dev$' cat "$CALLS"


rm "$CALLS"
MISSING="libjansson-dev libmicrohttpd-dev" UNKNOWN=libmicrohttpd-dev
check "a package that the distribution does not have keeps no other away" setup build
says "the others are installed" '^3:.* install --no-install-recommends libjansson-dev$' grep -n . "$CALLS"
UNKNOWN=''

# ---- where nothing can be installed ----

# hidden COMMAND...: with no library that pkg-config finds but Jansson.
mkdir "$work/modules"
printf 'Name: jansson\nDescription: JSON\nVersion: 2\nLibs:\n' >"$work/modules/jansson.pc"
export work
hidden() { PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$work/modules "$@"; }

export -f hidden setup
APT_ANSWER="no network"
check "what is here is enough" setup build
refuse "what is needed and not here is a failure" hidden setup build
says "that says why" '^tools/setup: apt-get update failed: E: no network$' hidden setup build
says "and names all that is needed" '^2$' bash -c \
    'hidden setup build 2>&1 | sed -n "/needed:/,\$p" | grep -cE "module (libpng|hwloc) .* \(Debian: lib(png|hwloc)-dev\)$"'
says "and what is left out" \
    '^  module libmicrohttpd +libmicrohttpd: no live view.* \(Debian: libmicrohttpd-dev\)$' \
    hidden setup build
refuse "and not what is here" bash -c 'hidden setup build 2>&1 | grep "module jansson"'
APT_ANSWER=''

rm "$CALLS"
refuse "a check installs nothing" hidden setup --check build
refuse "and calls no package manager" test -e "$CALLS"
says "it names what is needed" 'module openblas .*OpenBLAS: ' hidden setup --check build
refuse "and only that" bash -c 'hidden setup --check build 2>&1 | grep microhttpd'

# A system without apt-get, whatever else it has.
mkdir "$work/other"
for tool in bash dirname cc pkg-config cmake make; do ln -s "$(command -v $tool)" "$work/other/$tool"; done
other() { PATH=$work/other "$ECH_SRC/tools/setup" "$@"; }
check "another distribution needs no apt-get" other build
refuse "what it lacks is a failure there too" hidden other build
says "with the way out" 'this system has no apt-get: install what is named above' hidden other build

says "an unknown group is named" 'no group nonsense' setup nonsense
refuse "and refused" setup nonsense
finish
