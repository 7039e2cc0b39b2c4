#!/usr/bin/env bash
# Compares Continuo with the servers whose interfaces it speaks, each installed once into a cache
# folder (CONTINUO_PEERS, by default ~/.cache/continuo/peers). A peer that can't be installed is
# skipped with the reason; CONTINUO_REQUIRE_PEERS=1 makes that a failure.
#   tests/differential/run.sh               all of them
#   tests/differential/run.sh torchserve    one of them; what follows goes to its script
# Ends with one line of counts.
set -uo pipefail
cd "$(dirname "$0")/../.."

python=${CONTINUO_PYTHON:-.venv/bin/python}
logs=build/test-logs
names=(torchserve triton)
case ${1:-} in
-h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
'') ;;
*) names=("$1"); shift ;;
esac
mkdir -p "$logs"

passed=0 failed=0 skipped=0
for name in "${names[@]}"; do
    script=tests/differential/$name.py log=$logs/differential-$name.log
    [ -e "$script" ] || continue
    "$python" "$script" "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1)
    read -r good bad skip <<<"$(tr -cs '0-9\n' ' ' <<<"$counts")"
    [ "$status" = 0 ] || [ "${bad:-0}" -gt 0 ] || bad=1
    passed=$((passed + ${good:-0})) failed=$((failed + ${bad:-0})) skipped=$((skipped + ${skip:-0}))
done
echo
echo "differential tests: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
