#!/usr/bin/env bash
# Builds the Debian package: scripts/package.sh [folder of a release build]
# The default build is build/release, made first by scripts/build.sh. The package lies in build/, and beside it wheels
# of the packages for Python handlers and for Python clients. Each has a list of the libraries that it links, with their
# versions and licences, in a file with the same name and .cdx.json behind it (CycloneDX). Times in all these files are
# that of SOURCE_DATE_EPOCH, or of the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
-h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
'') scripts/build.sh release; build=build/release ;;
*) build=$1 ;;
esac
[ -f "$build/CPackConfig.cmake" ] || { echo "scripts/package.sh: no build in $build" >&2; exit 2; }
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
echo "package: cpack, from $build"
cpack --config "$build/CPackConfig.cmake" -B "$build/package" >"$build/cpack.log" 2>&1 ||
  { cat "$build/cpack.log" >&2; exit 1; }
mkdir -p build
made=()
for deb in "$build"/package/continuo_*.deb; do
  mv "$deb" build/
  deb=build/${deb##*/}
  echo "package: $deb, $(du -k "$deb" | cut -f1) kB, $(dpkg-deb -f "$deb" Installed-Size) kB installed"
  echo "package: install it with: apt-get install ./$deb"
  made+=("$deb")
done

# Prints what wheel.py says, and notes the wheel.
wheel() {
  local said
  said=$(python3 scripts/wheel.py "$@")
  echo "$said"
  said=${said#wheel: }
  made+=("${said%%,*}")
}

if [ -e "$build/bin/python/continuo/_worker.abi3.so" ]; then
  wheel "$build"
fi
wheel --client
python3 scripts/sbom.py "${made[@]}"
