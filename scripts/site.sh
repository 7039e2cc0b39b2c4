#!/usr/bin/env bash
# Builds the documentation as a site, with a search and light and dark colours, from docs/ into build/site. The site
# loads nothing from elsewhere: open build/site/index.html, or put the folder on any web server. The build fails on a
# broken link, a missing anchor, and a page that is not in the navigation (properdocs.yml).
#   scripts/site.sh            installs the generator into .venv-site the first time (165 MB), and builds
#   scripts/site.sh --to DIR   builds into DIR, which is emptied first
#   scripts/site.sh --install  only installs the generator
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=scripts/site/requirements.txt venv=.venv-site to=build/site build=1
while [ $# -gt 0 ]; do
  case $1 in
  --install) build= ;;
  --to)
    [ -n "${2:-}" ] || { echo "scripts/site.sh: --to needs a folder" >&2; exit 2; }
    to=$2
    shift
    ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "scripts/site.sh: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
  esac
  shift
done

say() { echo "site: $*"; }

if [ -n "$(ls -A "$to" 2>/dev/null)" ] && [ ! -e "$to/search/search_index.json" ]; then
  echo "scripts/site.sh: $to has files that are not a site; they would be deleted, so choose another folder" >&2
  exit 2
fi
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || {
  echo "scripts/site.sh: this needs a git checkout, whose list of files says what belongs to the site" >&2
  exit 1
}

if ! "$venv/bin/python" -c '' 2>/dev/null || ! cmp -s "$wanted" "$venv/installed-requirements.txt"; then
  say "python3 -m venv $venv; pip install -r $wanted"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted" || {
    echo "scripts/site.sh: the generator cannot be installed from your package index; pip's message is above" >&2
    exit 1
  }
  cp "$wanted" "$venv/installed-requirements.txt"
fi
[ -n "$build" ] || { say "$venv has the generator"; exit 0; }
# With --quiet the generator counts no warnings, and --strict would be without effect.
"$venv/bin/properdocs" build --strict --site-dir "$(realpath -m "$to")" 2>&1 | { grep -v '^INFO ' || true; } || {
  echo "scripts/site.sh: the site was not built; each line above names a page and what is wrong there" >&2
  exit 1
}
say "the site is in $to; open $to/index.html"
