#!/usr/bin/env bash
# Installs what building and testing on Debian 12 needs, and says each step first.
# Running it again costs nothing: what is there already is left alone.
#   scripts/setup.sh               packages, and .venv with the tests' Python packages
#   scripts/setup.sh --no-python   packages only
#   scripts/setup.sh --build       packages for building only, without those that only tests need
#   scripts/setup.sh --cluster     the same, and what scripts/demo.sh --cluster needs
#   scripts/setup.sh --missing     names the packages that it would install, and installs nothing
#   scripts/setup.sh --dev         also clang, clang-tidy and libFuzzer
#   scripts/setup.sh --onnx        also onnxruntime and onnx, about 30 MB, for tests and examples of ONNX models
#   scripts/setup.sh --torch       also PyTorch for the CPU, about 200 MB, for TorchScript models;
#                                  CONTINUO_TORCH=torch==2.13.0 names another build, such as one for CUDA.
#                                  And TorchServe's own handlers, about 80 MB, in .venv-torchserve, for their tests
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  build-essential cmake ninja-build pkg-config ccache git ca-certificates curl procps
  libarchive-dev libcmocka-dev libcurl4-gnutls-dev libgnutls28-dev libhiredis-dev libjansson-dev libjemalloc-dev
  liblmdb-dev liblua5.4-dev libmsgpack-dev libnghttp2-dev libprotobuf-c-dev libprotobuf-dev libsodium-dev
  libwslay-dev libxxhash-dev libyaml-dev protobuf-c-compiler protobuf-compiler zlib1g-dev
  libgrpc-dev # bench/grpc-bench, the load tool and the bare echo; no program that is installed needs gRPC's library
  libmicrohttpd-dev # bench/echo-mhd, the bare echo over HTTP; no program that is installed needs it
  file        # scripts/package.sh: CPack asks it which files are programs
  patchelf    # scripts/package.sh wheels: it tells programs where the wheel has their libraries
  python3     # CMake asks for it: the lint tests run in it
  python3-dev # the headers for the worker of Python models; without them the rest is built
)
test_packages=(
  alsa-utils      # its spoken WAV files are the data of examples/speech
  clang-format-14 # lint.format; other versions decide details differently
  iproute2        # tests/cluster: machines with a network of their own
  redis-server    # the shared state store of the tests; no test uses one that runs already
  minisign        # its program verifies our signatures, and ours its own; skipped where it is missing
  python3-venv    # for .venv, where the Python packages of the end-to-end tests go
)
# Debian 13 has another name for one package, and no clang-format 14, without which its lint test is skipped.
if [ "$(. /etc/os-release 2>/dev/null && echo "$ID ${VERSION_ID%%.*}")" = "debian 13" ]; then
  packages=("${packages[@]/#libmsgpack-dev/libmsgpack-c-dev}")
  test_packages=(${test_packages[@]/clang-format-14/}) # names have no blanks; the empty one is gone
fi
dev_packages=(clang clang-tidy libclang-rt-14-dev)
# A CPU build: others bring gigabytes of CUDA packages. Where the package index has no such version,
# CONTINUO_TORCH names another one: a version, or the path of a wheel.
torch_package=${CONTINUO_TORCH:-torch==2.13.0+cpu}
torch_needs=(filelock fsspec jinja2 mpmath networkx setuptools sympy typing-extensions)
# TorchServe's handlers, for the tests of archives that name one of them. They use only transforms of torchvision.
# Later wheels of torchvision than this one need CUDA's libraries as soon as they are imported.
torchserve_packages=(torchserve==0.12.0 torchvision==0.15.2 captum==0.9.0)
torchserve_needs=(matplotlib numpy packaging pillow psutil tqdm)
python=1 onnx= torch= tests=1 missing_only=
for arg in "$@"; do
  case $arg in
  --no-python) python= ;;
  --build) python= tests= ;;
  --cluster) python= tests= packages+=(python3-venv redis-server) ;;
  --missing) missing_only=1 ;;
  --dev) packages+=("${dev_packages[@]}") ;;
  --onnx) onnx=1 ;;
  --torch) torch=1 ;;
  -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "scripts/setup.sh: unknown argument $arg (--help lists the options)" >&2; exit 2 ;;
  esac
done
[ -z "$tests" ] || packages+=("${test_packages[@]}")

say() { echo "setup: $*"; }

find_missing() {
  local package
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      missing+=("$package")
  done
}

say_missing() {
  if [ ${#missing[@]} = 0 ]; then
    echo "All ${#packages[@]} Debian packages that this needs are installed."
  else
    echo "This installs ${#missing[@]} Debian packages with apt-get, which are missing here:"
    echo "${missing[*]}" | fold -s -w 96 | sed 's/^/    /'
  fi
}

install_packages() {
  local as_root=()
  if [ ${#missing[@]} = 0 ]; then
    say "all ${#packages[@]} Debian packages are installed"
    return
  fi
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "scripts/setup.sh: install these as root (there is no sudo): ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  say "apt-get update"
  ${as_root[@]+"${as_root[@]}"} apt-get update -qq
  say "apt-get install ${missing[*]}"
  ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install_python() {
  local want=tests/requirements.txt have=.venv/installed-requirements.txt
  if .venv/bin/python -c '' 2>/dev/null && cmp -s "$want" "$have"; then
    say ".venv has what $want lists"
    return
  fi
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    say "python3 -m venv .venv"
    rm -rf .venv
    python3 -m venv .venv
  fi
  say ".venv/bin/python -m pip install -r $want"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$want"
  cp "$want" "$have"
}

# A CPU build is installed without its dependencies, since those of some indexes name CUDA's packages. A CUDA build
# does not open its libraries without them: cuDNN, cuBLAS and the runtime are packages of their own. silero-vad is
# data of an example.
install_torch() {
  if .venv/bin/python -c 'import torch' 2>/dev/null; then
    say ".venv has PyTorch $(.venv/bin/python -c 'import torch; print(torch.__version__)')"
  else
    say ".venv/bin/python -m pip install --no-deps $torch_package"
    if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$torch_package"; then
      echo "scripts/setup.sh: your package index has no $torch_package; name a CPU build of PyTorch" \
        "that it has, or a wheel's path, in CONTINUO_TORCH" >&2
      exit 1
    fi
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "${torch_needs[@]}"
    if compgen -G '.venv/lib/python3*/site-packages/torch/lib/libtorch_cuda.so' >/dev/null; then
      say "it is a build for CUDA: its libraries too, several gigabytes"
      .venv/bin/python -m pip install --quiet --disable-pip-version-check "$torch_package"
    fi
  fi
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps silero-vad
}

# In an environment of its own: where torchserve is installed, handlers import its package ts instead of ours. PyTorch
# comes from .venv. Without these packages only the tests of these handlers are skipped.
install_torchserve() {
  local python=.venv-torchserve/bin/python pip
  pip=("$python" -m pip install --quiet --disable-pip-version-check)
  if "$python" -c 'import torch, torchvision, captum, ts' 2>/dev/null; then
    say ".venv-torchserve has TorchServe's handlers"
    return
  fi
  say "python3 -m venv .venv-torchserve; pip install ${torchserve_packages[*]} ${torchserve_needs[*]}"
  rm -rf .venv-torchserve
  .venv/bin/python -m venv .venv-torchserve
  .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$python" -c \
    'import sysconfig; print(sysconfig.get_path("purelib"))')/torch-of-venv.pth"
  "${pip[@]}" "${torchserve_needs[@]}" && "${pip[@]}" --no-deps "${torchserve_packages[@]}" ||
    say "they cannot be installed here; the tests of TorchServe's own handlers will be skipped"
}

# silero-vad is data of an example; its dependencies are PyTorch.
install_onnx() {
  say ".venv/bin/python -m pip install onnxruntime onnx"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check onnxruntime onnx
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps silero-vad
}

if ! command -v dpkg-query >/dev/null; then
  echo "scripts/setup.sh: this is for Debian 12; install the like of: ${packages[*]}" >&2
  exit 1
fi
missing=()
find_missing
if [ -n "$missing_only" ]; then
  say_missing
  exit
fi
install_packages
[ -z "$python" ] || install_python
[ -z "$torch" ] || { install_torch; install_torchserve; }
[ -z "$onnx" ] || install_onnx
say "done"
