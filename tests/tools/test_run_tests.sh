#!/bin/bash
# The runner of the tests: what it counts and what it returns, for tests that pass, fail, crash, hang, skip.
. "$ECH_SRC/tests/support/check.sh"
command -v ctest >/dev/null || skip "no ctest"

build=$work/build
mkdir -p "$build"

# declare_test NAME SCRIPT: one more entry in the made-up build directory.
declare_test() {
    printf '#!/bin/bash\n%s\n' "$2" >"$build/$1"
    chmod +x "$build/$1"
    printf 'add_test(%s "%s")\nset_tests_properties(%s PROPERTIES TIMEOUT 1 SKIP_RETURN_CODE 77)\n' \
        "$1" "$build/$1" "$1" >>"$build/CTestTestfile.cmake"
}
fresh() { rm -rf "${build:?}"/*; }
run() { "$ECH_SRC/tools/run_tests" "$build" --jobs 1; }
# counts WHAT LINE CODE: the last line and the exit code of the runner.
counts() {
    local output code
    output=$(run 2>&1)
    code=$?
    echo "$output" >"$work/.output"
    if [[ ${output##*$'\n'} == "$2" && $code == "$3" ]]; then
        ok "$1"
    else
        echo "last line: ${output##*$'\n'}; exit code $code" >>"$work/.output"
        not_ok "$1"
    fi
}

fresh
declare_test plain 'exit 0'
counts "a silent test is one case" "1 passed, 0 failed" 0
declare_test lines 'echo "ok - one"; echo "ok 2 - two"; echo "ok - three # skip no device"'
counts "lines are counted" "3 passed, 0 failed, 1 skipped" 0
declare_test unit 'echo "[==========] Running 3 test(s)."; echo "[  PASSED  ] 3 test(s)." >&2'
counts "the summary of cmocka is counted" "6 passed, 0 failed, 1 skipped" 0
declare_test absent 'exit 77'
counts "exit code 77 is a skip" "6 passed, 0 failed, 2 skipped" 0
declare_test wordy 'yes filler | head -c 200000; echo; echo "ok - after much text"'
counts "cases behind much output are counted" "7 passed, 0 failed, 2 skipped" 0

fresh
declare_test good 'echo "ok - one"'
declare_test bad 'echo "ok - one"; echo "not ok - two"; exit 1'
counts "a failed line fails the run" "2 passed, 1 failed" 1
fresh
declare_test liar 'echo "ok - one"; echo "not ok - two"; exit 0'
counts "a failed line counts even where the script says all is well" "1 passed, 1 failed" 1
fresh
declare_test unit \
    'echo "[  PASSED  ] 2 test(s)."; echo "[  FAILED  ] 2 test(s), listed below:"; echo "[  FAILED  ] one"; exit 2'
counts "failures that cmocka counts" "2 passed, 2 failed" 1
fresh
declare_test crash 'echo "ok - one"; kill -SEGV $$'
counts "a crash is a failure" "1 passed, 1 failed" 1
fresh
declare_test late 'echo "[  PASSED  ] 2 test(s)."; exit 1'
counts "a bad exit code after good cases is a failure" "2 passed, 1 failed" 1
fresh
declare_test hang 'echo "ok - one"; sleep 30; exit 0'
counts "a hang is a failure" "1 passed, 1 failed" 1
fresh
declare_test good 'exit 0'
declare_test gone 'exit 0'
rm "$build/gone"
counts "a test that cannot be started is a failure" "1 passed, 1 failed" 1
fresh
declare_test nothing 'echo "[  PASSED  ] 0 test(s)."'
counts "a test without a case is a failure" "0 passed, 1 failed" 1
fresh
touch "$build/CTestTestfile.cmake"
counts "a build without tests is a failure" "0 passed, 1 failed" 1
fresh
declare_test absent 'exit 77'
counts "a run that only skips is no success" "0 passed, 0 failed, 1 skipped" 1
fresh
declare_test odd 'printf "ok - one\n\377\001\033[31m\n"'
counts "bytes that are no text are no trouble" "1 passed, 0 failed" 0

# ---- what was tested and what was not ----

fresh
declare_test wide 'echo "covered - vector width avx2"; echo "ok - one"; echo "covered - browser" >&2'
declare_test wider 'echo "covered - vector width avx2"; echo "covered - vector width generic"'
declare_test absent \
    'echo "left out - vector width avx512: this processor has none"; echo "left out - browser: not here"; exit 77'
counts "lines of parts are no cases" "2 passed, 0 failed, 1 skipped" 0
tail -n 5 "$work/.output" >"$work/list"
check "they are listed before the last line, in a fixed order, each part once" diff "$work/list" - <<'END'
tested   vector width generic
tested   vector width avx2
tested   browser
skipped  vector width avx512: this processor has none
2 passed, 0 failed, 1 skipped
END

# ---- sources without a test ----

fresh
mkdir -p "$work/tree/tests/layer"
echo "CMAKE_HOME_DIRECTORY:INTERNAL=$work/tree" >"$build/CMakeCache.txt"
declare_test one 'echo "ok - one"'
sed -i 's|(one |(layer/one |' "$build/CTestTestfile.cmake"
touch "$work/tree/tests/layer/test_one.sh" "$work/tree/tests/layer/prog_other.c"
counts "sources whose tests are there are no failures" "1 passed, 0 failed" 0
touch "$work/tree/tests/layer/test_two.c"
counts "a test source that the build does not know is a failure" "1 passed, 1 failed" 1
says "that is named" '^layer/two: its source is on disk, but .* has no such test$' run
says "unless only others are asked for" '^1 passed, 0 failed$' "$ECH_SRC/tools/run_tests" "$build" --only layer/one

says "what a failed test said is shown" 'reason 42' bash -c '
    rm -rf "$1"/*; printf "#!/bin/bash\necho reason 42; exit 1\n" >"$1/bad"; chmod +x "$1/bad"
    echo "add_test(bad \"$1/bad\")" >"$1/CTestTestfile.cmake"; "$0" "$1"' "$ECH_SRC/tools/run_tests" "$build"
finish
