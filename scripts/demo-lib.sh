# What scripts/demo.sh and scripts/demo-cluster.sh share. They set $demo, their folder.

title() { printf '\n### %s\n' "$*"; }

# Prints a command as one would type it, then runs it. The output is kept in $output too.
run() {
    local word line='$'
    for word in "$@"; do
        case $word in
        *[!A-Za-z0-9_./:=@,?\&+-]* | '') line+=" '$word'" ;;
        *) line+=" $word" ;;
        esac
    done
    printf '%s\n' "${line//$demo/\$demo}"
    output=$("$@")
    [ -z "$output" ] || printf '%s\n' "$output"
}

fail() {
    printf '\nWRONG: %s\n' "$*" >&2
    tail -n 20 "$demo"/*.log >&2
    exit 1
}

is() { # what must have come back
    [ "$output" = "$1" ] || fail "expected $1, got $output"
}
