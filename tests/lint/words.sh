#!/usr/bin/env bash
# Fails on unfinished work in tracked files: marks that promise to do it later,
# stubs, and tests that are skipped without saying why. Run from the root.
set -uo pipefail
bad=0

report() { # title, lines
    [ -n "$2" ] || return 0
    printf '%s\n%s\n' "$1" "$2"
    bad=1
}

sources=('*.c' '*.h' '*.def' '*.py' '*.sh' '*.lua' '*.cmake' '*CMakeLists.txt' '*.md' '*.yaml' '*.in')
mine=':!tests/lint/words.sh'

report "marks of unfinished work:" \
    "$(git grep -nIwE 'TODO|FIXME|XXX|HACK' -- "${sources[@]}" "$mine")"
report "stubs:" \
    "$(git grep -nIiwE 'stub|stubs|stubbed|not implemented yet' -- '*.c' '*.h' '*.py' '*.sh' '*.lua' "$mine")"
# A skip may spread over lines, so the whole call is read.
report "pytest skips without a reason:" "$(git ls-files '*.py' | python3 -c '
import ast, os, sys

def name(node):
    return ast.unparse(node).rsplit(".", 1)[-1]

def look(path, node):
    if isinstance(node, ast.Call) and name(node.func) in ("skip", "skipif", "xfail", "importorskip"):
        said = any(k.arg in ("reason", "msg") for k in node.keywords)
        if not (said or (name(node.func) in ("skip", "xfail") and node.args)):
            print(f"{path}:{node.lineno}: {ast.unparse(node)}")
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        for d in node.decorator_list:
            if not isinstance(d, ast.Call) and name(d) in ("skip", "skipif", "xfail"):
                print(f"{path}:{d.lineno}: @{ast.unparse(d)}")

for path in filter(os.path.exists, sys.stdin.read().split()):
    for node in ast.walk(ast.parse(open(path).read(), path)):
        look(path, node)
')"
report "cmocka skip() without a comment on its line that says why:" \
    "$(git grep -nIE '^[^"]*\bskip\(\)' -- '*_test.c' | grep -v '/\*')"
[ $bad = 0 ] && echo "no unfinished work"
exit $bad
