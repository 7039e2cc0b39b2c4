#!/usr/bin/env bash
# Runs every test: set-up, unit tests (debug), end-to-end tests (release), then both again under
# AddressSanitizer + UBSan and ThreadSanitizer, and comparisons with the servers whose interfaces these are
# (tests/differential). The set-up installs the Debian packages that are missing, and names them first. The
# last line has the counts, and the exit status is 0 only if nothing failed. A test that failed beside others
# is run once more alone; if it passes then, it is listed as unstable.
#   scripts/test.sh            all of it, about an hour on 2 cores
#   scripts/test.sh --quick    debug unit tests and release end-to-end tests, without heavy load
#   scripts/test.sh --sample   debug unit tests and one release end-to-end test of each file
#   scripts/test.sh --fresh    all of it, and scripts/fresh.sh --quick, which counts as one test
# Logs stay in build/test-logs. CONTINUO_KILLS=100 makes the test of kills long.
set -uo pipefail
cd "$(dirname "$0")/.."

quick= sample= fresh=
case ${1:-} in
--quick) quick=1 ;;
--sample) quick=1 sample=1 ;;
--fresh) fresh=1 ;;
-h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
'') ;;
*) echo "scripts/test.sh: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
esac

logs=build/test-logs
passed=0 failed=0 skipped=0 began=$SECONDS
failures=() unstable=() skips=()

say() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - began)); }

# Prints the commit that is checked out, unless files differ from it.
clean_commit() {
    [ -n "$(git status --porcelain 2>&1)" ] || git rev-parse HEAD
}
commit=$(clean_commit)

# Steps that are not tests themselves. begin() starts one beside what follows, must() waits for it, and
# its failure counts as one.
declare -A running=() ended=()

begin() { # name, command...
    local name=$1
    shift
    "$@" >"$logs/$name.log" 2>&1 &
    running[$name]=$!
}

must() { # name, command...
    local name=$1
    [ -n "${running[$name]:-}" ] || begin "$@"
    if [ -z "${ended[$name]:-}" ]; then
        wait "${running[$name]}"
        ended[$name]=$?
        if [ "${ended[$name]}" != 0 ]; then
            failed=$((failed + 1)) failures+=("$name: see $logs/$name.log")
            tail -n 40 "$logs/$name.log"
        fi
    fi
    return "${ended[$name]}"
}

# Unit tests run in debug builds only, so the release build is without them.
compile() { # preset
    local what=all
    [ "$1" != release ] || what=programs
    cmake --preset "$1" && cmake --build --preset "$1" --target "$what"
}

# Beside tests, which come first.
compile_beside() { # preset
    renice -n 10 "$BASHPID" >/dev/null
    compile "$1"
}

sum_of() { # pattern with the number in \1, file
    sed -n "s/$1/\\1/p" "$2" | awk '{n += $1} END {print n + 0}'
}

output_of() { # a unit test, ctest's log: the last line that the test printed
    awk -v name="$1" '$2 == "Testing:" {here = $3 == name} here && /^<end of output>/ {print last; exit} {last = $0}' "$2"
}

failed_units() { # ctest's log: the names of the tests that failed
    sed -n '/(Skipped)$/d; s/^[[:space:]]*[0-9]* - \(.*\) (.*)$/\1/p' "$1"
}

# Prints the end of what each failed test has printed, since the machine may be gone when somebody asks.
output_of_failed_units() { # ctest's log
    awk '/^ *[0-9]+\/[0-9]+ Test +#|^ *Start +[0-9]+:/ {flush(); here = /\*\*\*/ && !/\*\*\*Skipped/}
        /tests passed, [0-9]+ tests? failed/ {flush(); here = 0}
        here {lines[n++] = $0}
        function flush(i) {for (i = n > 60 ? n - 60 : 0; i < n; i++) print lines[i]; n = 0}' "$1"
}

# Runs up to five failed unit tests once more, one by one, as run_again() does with end-to-end tests, which
# says why. A test in which a sanitizer reported something is not run again.
unit_again() { # preset
    local log=$logs/unit-$1.log names
    mapfile -t names < <(failed_units "$log")
    [ ${#names[@]} -gt 0 ] && [ ${#names[@]} -le 5 ] || return 1
    ! grep -q 'Sanitizer: \|runtime error: ' "$log" || return 1
    printf 'once more, one by one: %s\n' "${names[@]}"
    ctest --preset "$1" --rerun-failed -j 1 >"$logs/unit-$1-again.log" 2>&1 || return 1
    for name in "${names[@]}"; do
        unstable+=("unit test $name, $1: see $log")
    done
}

unit() { # preset
    local log=$logs/unit-$1.log detail=build/$1/Testing/Temporary/LastTest.log good bad skip rc line
    say "unit tests, $1"
    must "build-$1" compile "$1" || return
    ctest --preset "$1" >"$log" 2>&1
    rc=$?
    cp "$detail" "$logs/unit-$1-detail.log" # since a second run writes a new one
    detail=$logs/unit-$1-detail.log
    # cmocka's own counts; tests that are not cmocka's count as one each.
    good=$(sum_of '^\[  PASSED  \] \([0-9]*\) test(s)\..*' "$detail")
    good=$((good + $(grep -c 'Test *#[0-9]*: \(lint\|headers\|examples\|fuzz\)\..* Passed ' "$log")))
    # ctest ends with a list of what failed and one of what was skipped: "  9 - lint.format (Skipped)".
    bad=$(failed_units "$log" | grep -c .)
    skip=$(grep -c '^[[:space:]]*[0-9]* - .* (Skipped)$' "$log")
    while read -r line; do
        skips+=("$line, $1: $(output_of "$line" "$detail")")
    done < <(sed -n 's/^[[:space:]]*[0-9]* - \(.*\) (Skipped)$/\1/p' "$log")
    [ $rc = 0 ] || [ "$bad" -gt 0 ] || bad=1
    [ $rc = 0 ] || output_of_failed_units "$log"
    if [ $rc != 0 ] && unit_again "$1"; then
        rc=0 good=$((good + bad)) bad=0
    fi
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skip))
    if [ $rc != 0 ]; then
        failures+=("unit tests, $1: see $log")
        grep -A200 'The following tests FAILED' "$log" || tail -n 40 "$log"
    fi
    echo "$good passed, $bad failed, $skip skipped"
}

# Sets `pythons` to the interpreters for the tests of Python handlers. Each version that is not here
# counts as one skipped test.
find_pythons() {
    local line
    pythons=${CONTINUO_PYTHONS:-$(scripts/pythons.sh "$python" 2>"$logs/pythons.log")}
    [ -z "${CONTINUO_PYTHONS:-}" ] || return
    while read -r line; do
        skipped=$((skipped + 1)) skips+=("tests of Python handlers: $line")
    done <"$logs/pythons.log"
}

# Tests mostly wait, so more of them run side by side than there are cores. Those that load the machine run
# afterwards: tests of chaos side by side, since they only wait longer then, and the others, which measure, one
# by one. That leaves time to build what comes next. More loops than a small machine would have by default bring
# the crossings between them to light.
end_to_end() { # preset, factor for time limits, loops (0: as many as by default), preset to build meanwhile
    local pythons=${CONTINUO_PYTHONS:-} preset=$1 factor=$2 loops=$3 next=${4:-} log=$logs/e2e-$1.log folders=(tests/e2e) tests sums good bad skip rc=0 line
    [ "$preset" != release ] || folders+=(tests/chaos tests/cluster tests/python)
    say "end-to-end tests, $preset"
    must "build-$preset" compile "$preset" || return
    must python-packages || return
    if [ "$preset" = release ] && [ -z "$quick" ]; then
        find_pythons
    fi
    # Each process that collects the tests would compile them anew, were it not to keep what it compiled;
    # and of the plug-ins that are found, some import for a second what one test needs.
    tests=(env -u PYTHONDONTWRITEBYTECODE PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
        "CONTINUO_BUILD=build/$preset" "CONTINUO_TEST_FACTOR=$factor" "CONTINUO_TEST_LOOPS=$loops"
        "CONTINUO_PYTHONS=${pythons:-$("$python" -c 'import sys; print(sys.executable)')}"
        "$python" -m pytest -q -rfEs -p xdist -p no:cacheprovider --durations=15
        --rootdir . -p tests.support.failures "--failures=$logs/failures-$preset")
    [ -z "$sample" ] || tests+=(--one-of-each-file)
    rm -f "$logs/failures-$preset"
    "${tests[@]}" "${folders[@]}" -m "not load" -n $(($(nproc) * 3)) --dist worksteal >"$log" 2>&1 || rc=1
    [ -z "$next" ] || begin "build-$next" compile_beside "$next"
    if [ -z "$quick" ]; then
        "${tests[@]}" "${folders[0]}" -m load >>"$log" 2>&1 || rc=1
        [ ${#folders[@]} = 1 ] || "${tests[@]}" "${folders[@]:1}" -m load -n "$(nproc)" >>"$log" 2>&1 || rc=1
    fi
    sums=$(grep -a ' in [0-9.]*s' "$log" | sed 's/^/ /')
    good=$(sum_of '.*[^0-9]\([0-9]*\) passed.*' <(echo "$sums"))
    bad=$(sum_of '.*[^0-9]\([0-9]*\) failed.*' <(echo "$sums"))
    bad=$((bad + $(sum_of '.*[^0-9]\([0-9]*\) error.*' <(echo "$sums"))))
    skip=$(sum_of '.*[^0-9]\([0-9]*\) skipped.*' <(echo "$sums"))
    while read -r line; do
        skips+=("$line ($preset)")
    done < <(sed -n 's/^SKIPPED //p' "$log")
    if [ $rc != 0 ] && [ "$bad" -gt 0 ] && run_again "$preset" "${tests[@]}"; then
        good=$((good + bad)) bad=0 rc=0
    fi
    [ $rc = 0 ] || [ "$bad" -gt 0 ] || bad=1
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skip))
    if [ $rc != 0 ]; then
        failures+=("end-to-end tests, $preset: see $log")
        grep -a '^\(FAILED\|ERROR\)' "$log" || tail -n 40 "$log"
    fi
    echo "$good passed, $bad failed, $skip skipped"
}

# Runs up to ten failed tests once more, one by one, since a test may fail only because the machine was busy
# with others. Succeeds if all of them pass. Each is listed as unstable at the end, because such a test
# should be mended. A test in which a sanitizer reported something is not run again (tests/support/failures.py).
run_again() { # preset, pytest and its options
    local preset=$1 list=$logs/failures-$1 ids
    shift
    [ -s "$list" ] && ! grep -qx -e - "$list" || return 1
    mapfile -t ids <"$list"
    [ ${#ids[@]} -le 10 ] || return 1
    printf 'once more, one by one: %s\n' "${ids[@]}"
    "${@/#--failures=*/--failures=/dev/null}" "${ids[@]}" >"$logs/e2e-$preset-again.log" 2>&1 || return 1
    for id in "${ids[@]}"; do
        unstable+=("$id, $preset: see $logs/e2e-$preset.log")
    done
}

# Peers that can't be installed here are skipped with the reason.
differential() {
    local log=$logs/differential.log line good bad skip rc
    say "differential tests"
    must build-release compile release || return
    must python-packages || return
    CONTINUO_BUILD=build/release CONTINUO_PYTHON=$python tests/differential/run.sh >"$log" 2>&1
    rc=$?
    grep -E '^(DIFFERENT|NO LONGER DIFFERENT): ' "$log"
    while read -r line; do
        skips+=("$line")
    done < <(grep ': skipped: ' "$log")
    line=$(sed -n 's/^differential tests: //p' "$log" | tail -n 1)
    read -r good bad skip <<<"$(tr -cs '0-9\n' ' ' <<<"$line")"
    [ $rc = 0 ] || [ "${bad:-0}" -gt 0 ] || bad=1
    passed=$((passed + ${good:-0})) failed=$((failed + ${bad:-0})) skipped=$((skipped + ${skip:-0}))
    [ $rc = 0 ] || failures+=("differential tests: see $log")
    echo "${line:-${bad:-0} failed}"
}

# README's two commands on a machine with nothing installed by hand. Where no such root can be made, as
# without root or a package registry, that is one skipped test with a reason, not a passed one.
fresh_root() {
    local log=$logs/fresh.log
    say "a fresh Debian 12"
    nice scripts/fresh.sh --quick >"$log" 2>&1 &
    wait $!
    case $? in
    0) passed=$((passed + 1)); tail -n 1 "$log" ;;
    77) skipped=$((skipped + 1)) skips+=("$(tail -n 1 "$log")"); tail -n 1 "$log" ;;
    *) failed=$((failed + 1)) failures+=("fresh root: see $log"); tail -n 60 "$log" ;;
    esac
}

mkdir -p "$logs"
[ -n "$quick" ] || rm -f build/tested
trap 'jobs=$(jobs -p) && [ -z "$jobs" ] || kill $jobs' EXIT
scripts/setup.sh --missing
say "set-up"
must setup scripts/setup.sh --no-python || { echo "0 passed, 1 failed"; exit 1; }
python=${CONTINUO_PYTHON:-.venv/bin/python}
begin python-packages scripts/setup.sh # only .venv is left to do

must build-debug compile debug && begin build-release compile_beside release
unit debug
if [ -n "$quick" ]; then
    end_to_end release 2 0
else
    end_to_end release 2 0 asan
    differential
    unit asan
    end_to_end asan 6 2 tsan
    unit tsan
    end_to_end tsan 8 3
fi

[ -z "$fresh" ] || fresh_root

say "done"
for line in ${failures[@]+"${failures[@]}"}; do
    echo "FAILED: $line"
done
for line in ${unstable[@]+"${unstable[@]}"}; do
    echo "UNSTABLE, failed once and passed alone: $line"
done
for line in ${skips[@]+"${skips[@]}"}; do
    echo "SKIPPED: $line"
done
[ "$skipped" = 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
# scripts/release.sh asks which commit has passed all of it, at the first try.
if [ "$failed" = 0 ] && [ ${#unstable[@]} = 0 ] && [ -z "$quick" ] && [ -n "$commit" ] && [ "$commit" = "$(clean_commit)" ]; then
    echo "$commit" >build/tested
fi
[ "$failed" = 0 ]
