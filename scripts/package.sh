#!/usr/bin/env bash
# Builds the Debian package: scripts/package.sh [folder of a release build]
# or the wheels:             scripts/package.sh wheels [folder of a release build]
# The default build is build/release, made first by scripts/build.sh. All files are put into build/. The first form also
# makes the wheels of the packages for Python handlers and for Python clients. The second form makes a wheel with the whole
# server and all its libraries, for pip install, one for Python clients, one with the command torchserve, and one with the
# library for TorchScript models, if the build has it. Each file but the last two has a list of the libraries that it links,
# with their versions and licences, in a file with the same name and .cdx.json behind it (CycloneDX). Times in all these
# files are that of SOURCE_DATE_EPOCH, or of the last commit; equal builds give equal wheels, byte for byte.
set -euo pipefail
cd "$(dirname "$0")/.."

wheels=
[ "${1:-}" != wheels ] || { wheels=1; shift; }
case ${1:-} in
-h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
'') scripts/build.sh release; build=build/release ;;
*) build=$1 ;;
esac
[ -f "$build/CPackConfig.cmake" ] || { echo "scripts/package.sh: no build in $build" >&2; exit 2; }
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
mkdir -p build
made=()

# Prints what a script says that makes a wheel, and notes the wheel.
wheel() { # script, its arguments
  local said
  said=$(python3 "scripts/$1" "${@:2}")
  echo "$said"
  said=${said#wheel: }
  made+=("${said%%,*}")
}

if [ -n "$wheels" ]; then
  wheel server_wheel.py "$build"
  echo "package: install it with: pip install ./${made[0]}"
  wheel wheel.py --client
  python3 scripts/sbom.py "${made[@]}"
  wheel server_wheel.py --torchserve "$build"
  # It links PyTorch, which belongs to no Debian package; its metadata name the version.
  [ ! -e "$build/bin/libcontinuo_torch.so" ] || wheel server_wheel.py --torch "$build"
  exit
fi
echo "package: cpack, from $build"
cpack --config "$build/CPackConfig.cmake" -B "$build/package" >"$build/cpack.log" 2>&1 ||
  { cat "$build/cpack.log" >&2; exit 1; }
for deb in "$build"/package/continuo_*.deb; do
  mv "$deb" build/
  deb=build/${deb##*/}
  echo "package: $deb, $(du -k "$deb" | cut -f1) kB, $(dpkg-deb -f "$deb" Installed-Size) kB installed"
  echo "package: install it with: apt-get install ./$deb"
  made+=("$deb")
done

if [ -e "$build/bin/python/continuo/_worker.abi3.so" ]; then
  wheel wheel.py "$build"
fi
wheel wheel.py --client
python3 scripts/sbom.py "${made[@]}"
