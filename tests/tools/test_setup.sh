#!/bin/bash
# The set-up against a made-up package manager: it asks only for what is missing, and says one line when it fails.
. "$ECH_SRC/tests/support/check.sh"

bin=$work/bin
mkdir "$bin"
export CALLS=$work/calls MISSING='' APT_ANSWER=''
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
[[ -z $APT_ANSWER ]] && exit 0
printf 'Reading...\nE: %s\nE: more\n' "$APT_ANSWER"
exit 100
END
printf '#!/bin/bash\n[[ $1 == -n ]] && shift\nexec "$@"\n' >"$bin/sudo"
chmod +x "$bin"/*
setup() { PATH=$bin:$PATH "$ECH_SRC/tools/setup" "$@" </dev/null; }

refuse "it is silent when nothing is missing" sh -c '"$@" 2>&1 | grep .' - env PATH="$bin:$PATH" "$ECH_SRC/tools/setup" build test
refuse "and calls no package manager" test -e "$CALLS"

MISSING="cmake libcmocka-dev"
check "it installs" setup build test
says "after an update" '^1:.* update$' grep -n . "$CALLS"
says "what is missing and nothing else" '^2:.* install --no-install-recommends cmake libcmocka-dev$' grep -n . "$CALLS"

rm "$CALLS"
check "a group that was not asked for is left alone" setup lint
says "the shared package is not" 'libcmocka-dev$' cat "$CALLS"

APT_ANSWER="no network"
refuse "a failure is a failure" setup build
says "and one line" '^1$' sh -c '"$@" 2>&1 | grep -c "^tools/setup:"' - env PATH="$bin:$PATH" "$ECH_SRC/tools/setup" build
says "that says why" '^tools/setup: apt-get update failed: E: no network$' setup build
says "an unknown group is named" 'no group nonsense' setup nonsense
refuse "and refused" setup nonsense
finish
