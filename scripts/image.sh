#!/usr/bin/env bash
# Makes a container image from the Debian package, without podman, docker or a daemon: a tree of Debian 12 with mmdebstrap,
# and around it an OCI image (scripts/oci_image.py) with the settings of packaging/Containerfile.
#   scripts/image.sh [PACKAGE.deb]        the image build/continuo-VERSION-slim.tar, of the newest package in build/
#   scripts/image.sh --python [PACKAGE]   build/continuo-VERSION-python.tar, which also has Python for models in Python
#   scripts/image.sh --torch [PACKAGE]    build/continuo-VERSION-torch.tar, which also has Python, and PyTorch for models in
#                                         Python and in TorchScript: that of .venv, with the newest wheel continuo_torch
# Manual pages and most documentation are left out; licences stay. Times are those of SOURCE_DATE_EPOCH, or of the last
# commit: the same package and the same versions of Debian's packages give the same digest. Needs root's rights or user
# namespaces, and the package registry that apt is configured with. scripts/try_image.sh tries an image.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian-root.sh

fail() {
  echo "scripts/image.sh: $*" >&2
  exit 1
}

variant=slim more=
case ${1:-} in
-h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
--python) variant=python more=,python3; shift ;;
--torch) variant=torch more=,python3; shift ;;
-*) fail "unknown argument $1 (--help lists the options)" ;;
esac

work=$(mktemp -d "${TMPDIR:-/tmp}/continuo-image-XXXXXX")
trap 'grep -q " $work/" /proc/self/mountinfo || rm -rf --one-file-system "$work"' EXIT

command -v mmdebstrap >/dev/null || fail "there is no mmdebstrap here: install the package mmdebstrap"
package=${1:-$(ls -t build/continuo_*.deb 2>/dev/null | head -n 1 || true)}
[ -f "$package" ] || fail "there is no package ${package:-in build/}; scripts/package.sh makes it"
version=$(dpkg-deb -f "$package" Version)
out=build/continuo-$version-$variant.tar
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

debian_sources >"$work/sources.list"
[ -s "$work/sources.list" ] || fail "apt of this machine has no Debian 12 (bookworm) among its sources"
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
write_apt_configuration "$certificates" "$certificates" >"$work/apt.conf"
# apt in the tree takes the package from a repository, as any other one. It lies on this machine only.
mkdir -p "$work/own" "$work/tmp" build
cp "$package" "$work/own/continuo.deb"
(cd "$work/own" && dpkg-scanpackages --multiversion . >Packages 2>/dev/null)
cp "$work/sources.list" "$work/sources-in-image.list"
sed -i 's/ \[signed-by=[^]]*\]//' "$work/sources-in-image.list"
echo "deb [trusted=yes] copy:$work/own ./" >>"$work/sources.list"
chmod 755 "$work" "$work/own"

# What the image of the variant torch has beside the others, as files in $work/more: PyTorch's package, whose folder Python of
# Debian is told by a .pth file, and the libraries that the worker looks for beside itself, which look for PyTorch there.
# Left out are files that name a folder of this machine or the time, and those for compiling against PyTorch.
add_torch() {
  local pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-warn-script-location
    --ignore-installed --no-compile --no-index --prefix "$work/prefix") ours=$1 torch site python
  python=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  [ "$python" = 3.11 ] ||
    fail "Python of .venv is $python, and pip installs PyTorch for it, but the image has Debian 12's 3.11: make .venv with 3.11"
  torch=$(.venv/bin/python -c 'import torch; print(torch.__version__)' 2>/dev/null) ||
    fail "there is no PyTorch in .venv; scripts/setup.sh --torch installs it"
  ls build/continuo_torch-"$ours"-*.whl >/dev/null 2>&1 ||
    fail "there is no wheel continuo_torch of version $ours in build/; scripts/package.sh wheels makes it"
  if ! ls build/torch-wheels/"$torch"/torch-*.whl >/dev/null 2>&1; then
    echo "image: pip download torch==$torch" # kept, so that an image that is made later has the same files
    .venv/bin/python -m pip download --quiet --dest "build/torch-wheels/$torch" --only-binary :all: "torch==$torch"
  fi
  echo "image: pip install torch==$torch"
  "${pip[@]}" --no-deps --find-links build "continuo-torch==$ours"
  "${pip[@]}" --find-links "build/torch-wheels/$torch" "torch==$torch"
  site=$(ls -d "$work"/prefix/lib/python3.*/site-packages)
  rm -rf "$site"/torch/{include,share,test} "$site"/torch/lib/*.a
  find "$site"/torch/bin -type f ! -name torch_shm_manager -delete # without that one, torch cannot be imported
  sed -i -e '\#^torch/bin/torch_shm_manager,#b' -e '\#^\.\./\.\./\.\./#d' \
    -e '\#^torch/\(include\|share\|test\|bin\)/#d' "$site"/*.dist-info/RECORD
  mkdir -p "$work/more/usr/lib/continuo" "$work/more/usr/lib/python3/dist-packages"
  cp "$work"/prefix/libexec/continuo/libcontinuo_torch*.so "$work/more/usr/lib/continuo/"
  mv "${site%/*}" "$work/more/usr/lib/"
  echo "/usr${site#"$work/prefix"}" >"$work/more/usr/lib/python3/dist-packages/continuo-torch.pth"
  chmod -R u=rwX,go=rX "$work/more"
}
mkdir -p "$work/more"
[ $variant != torch ] || add_torch "$version"

echo "image: mmdebstrap makes a tree with $package"
TMPDIR=$work/tmp mmdebstrap --quiet --variant=minbase --format=tar --skip=output/dev --aptopt="$work/apt.conf" \
  --include="continuo,libhiredis0.14$more" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook='chroot "$1" useradd --system --create-home --home-dir /state continuo' \
  --customize-hook="cp -r '$work/more/.' \"\$1/\"" \
  --customize-hook='rm -rf "$1/etc/apt/apt.conf.d/99mmdebstrap" "$1/var/lib/apt/lists"/* "$1/var/log"/*.log "$1/var/log/apt"/*' \
  --customize-hook="rm -f \"\$1\"/etc/apt/sources.list.d/*; cp '$work/sources-in-image.list' \"\$1/etc/apt/sources.list\"" \
  bookworm "$work/tree.tar" "$work/sources.list" || fail "mmdebstrap could not make the tree; its messages are above"
mkdir "$work/dev" # the folder alone: container engines make the devices
tar -rf "$work/tree.tar" -C "$work" --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=755 ./dev
scripts/oci_image.py "$work/tree.tar" "$out" "localhost/continuo:$version-$variant"
echo "image: load it with: podman load -i $out"
