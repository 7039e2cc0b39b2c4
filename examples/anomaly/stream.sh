#!/usr/bin/env bash
# Streams three measured series at once, each as a sequence of its own, and prints
# the days that the model found unusual.
#   examples/anomaly/stream.sh [inference address] [days, default all 1461] [keys]
# With `keys`, each request has an Idempotency-Key and is sent again until it is answered.
set -euo pipefail
address=${1:-http://localhost:8080}
days=${2:-1461}
keys=${3:-}
data=$(dirname "$0")/data/seattle-weather.csv
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One curl for a series: its requests follow each other on one connection.
stream() { # name, column
    awk -F, -v name="$1" -v column="$2" -v days="$days" -v url="$address/predictions/anomaly" -v keys="$keys" '
        NR > 1 && NR <= days + 1 {
            if (NR > 2) print "next"
            printf "url = \"%s\"\n", url
            printf "header = \"ts-request-sequence-id: seattle-%s\"\n", name
            if (keys) {
                printf "header = \"Idempotency-Key: %s-%d\"\n", name, NR
                print "retry = 40\nretry-delay = 1\nretry-all-errors\nfail"
            } else {
                print "fail-with-body"
            }
            printf "data = \"%s\"\nwrite-out = \"\\n\"\n", $column
        }' "$data" >"$work/$1.curl"
    curl -s -K "$work/$1.curl" >"$work/$1.answers"
}

stream temp_max 3 & first=$!
stream temp_min 4 & second=$!
stream wind 5 & third=$!
wait "$first"
wait "$second"
wait "$third"

for series in temp_max temp_min wind; do
    echo "seattle-$series: $(wc -l <"$work/$series.answers") days, unusual:"
    tail -n +2 "$data" | head -n "$days" | cut -d, -f1 | paste -d' ' - "$work/$series.answers" |
        grep '"anomaly": *true' | sed 's/^/    /' || echo "    none"
done
