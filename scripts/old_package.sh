#!/usr/bin/env bash
# Builds the Debian package of an older commit, for scripts/try_packages.sh upgrade:
#   scripts/old_package.sh COMMIT [FOLDER]    FOLDER is that of a clone that is kept, so that a second run builds nothing
# The script prints the path of the package, whose version is lower than that of any package of this tree.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
-h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
'' | -*) echo "scripts/old_package.sh: the package of which commit? (--help says what it takes)" >&2; exit 2 ;;
esac
commit=$(git rev-parse --verify --quiet "$1^{commit}") ||
    { echo "scripts/old_package.sh: there is no commit $1 here" >&2; exit 1; }
date=$(git log -1 --format=%cd --date=format:%Y%m%d "$commit")
folder=${2:-build/old/${commit:0:12}}
[ -e "$folder/.git" ] || git clone --quiet . "$folder"
git -C "$folder" checkout --quiet "$commit"
here=$PWD
cd "$folder"
CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 scripts/build.sh release >&2
scripts/package.sh build/release >&2
# Commits before a release have the version of that release.
deb=$(ls -t build/continuo_*.deb | head -n 1)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
dpkg-deb -R "$deb" "$tree/tree"
sed -i "s/^Version: .*/&~$date/" "$tree/tree/DEBIAN/control"
mkdir -p "$here/build/old"
dpkg-deb --root-owner-group -b "$tree/tree" "$here/build/old/continuo-${commit:0:12}.deb" >&2
echo "build/old/continuo-${commit:0:12}.deb"
