"""Runs the two servers of the comparison: Triton's, from pip's nvidia-pytriton, and Continuo.

The wheel has Triton's binary, its libraries, the Python backend and, for each version of Python, the program that runs
a model. That program takes its packages from the python3 on PATH and needs numpy below 2: with a later one, every
output is empty."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import requests

import common

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
REQUIREMENTS = [["--no-deps", "nvidia-pytriton==0.7.0"], ["numpy>=1.26,<2"]]
SHARED_PREFIX = f"continuo-diff-{os.getpid()}-"  # names of the shared memory between Triton and its models
READY = re.compile(r"^Model server started\. inference=\S+?//(\S+) .* grpc=(\S+) ", re.M)


class Side:
    """One of the two servers, as the cases see it."""

    def __init__(self, name, http, grpc, process):
        self.name, self.http, self.grpc, self.process = name, http, grpc, process
        self.channel = None

    def stop(self):
        """Stops the server first, so that it ends its own processes and removes what it shares with them."""
        if self.process.running():
            self.process.popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.popen.wait(40 * common.FACTOR)
        self.process.stop()
        for left in pathlib.Path("/dev/shm").glob(SHARED_PREFIX + "*"):
            left.unlink()


def free_ports(count):
    """Returns ports on which nobody listens now, because Triton does not accept port 0."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start_triton(folder, repository, names):
    python = common.python_peer("triton", REQUIREMENTS, "import numpy, os, sys; sys.exit(numpy.__version__[0] != '1')")
    home = pathlib.Path(python).parents[1]
    site = home / "lib" / f"python{PYTHON}" / "site-packages"
    server = site / "pytriton" / "tritonserver"
    runner = server / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"
    if not runner.exists():
        raise common.Unavailable(f"the wheel has no Python backend for Python {PYTHON}")
    folder = pathlib.Path(folder)
    shutil.copytree(server / "backends" / "python", folder / "backends" / "python")
    shutil.copy2(runner, folder / "backends" / "python")
    shutil.copy2(server / "bin" / "tritonserver", folder / "tritonserver")
    for program in (folder / "tritonserver", folder / "backends" / "python" / runner.name):
        program.chmod(0o755)
    http, grpc, metrics = free_ports(3)
    command = [folder / "tritonserver", "--backend-directory", folder / "backends", "--model-repository", repository,
               "--model-control-mode", "explicit", "--exit-on-error", "false", "--http-address", "127.0.0.1",
               "--grpc-address", "127.0.0.1", "--metrics-address", "127.0.0.1", "--http-port", http, "--grpc-port", grpc,
               "--metrics-port", metrics, "--backend-config", "python,shm-default-byte-size=1048576",
               "--backend-config", f"python,shm-region-prefix-name={SHARED_PREFIX}"]
    for name in names:
        command += ["--load-model", name]
    env = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(site / "nvidia_pytriton.libs"),
           "HOME": str(folder), "LANG": "C.UTF-8"}
    missing = [line.split()[0] for line in common.libraries_of(folder / "backends" / "python" / runner.name, env)
               if "not found" in line]
    if missing:
        raise common.Unavailable(f"Triton's Python backend needs {', '.join(missing)}: install Debian's libpython{PYTHON}")
    side = Side("triton", f"127.0.0.1:{http}", f"127.0.0.1:{grpc}",
                common.Process(command, folder / "triton.log", env, folder))

    def ready():
        if not side.process.running():
            last = " / ".join(side.process.text.splitlines()[-5:])
            raise common.Unavailable(f"tritonserver ended at its start: {last}")
        try:
            return requests.get(f"http://{side.http}/v2/health/ready", timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    try:
        common.wait_for(ready, "Triton is ready", 120)
    except BaseException:
        side.process.stop()
        raise
    return side


def start_ours(folder, repository, names):
    folder = pathlib.Path(folder)
    address = "http://127.0.0.1:0"
    command = [common.BIN / "continuo", "--model-repository", repository, "--state-dir", folder / "state",
               "--model-control-mode", "explicit", "--models", *names, "--allow-client-shm",
               "--python", sys.executable]
    for which in ("inference", "management", "metrics", "grpc-inference"):
        command += [f"--{which}-address", address]
    process = common.Process([*command, "--grpc-management-address", "none"], folder / "continuo.log", cwd=folder)

    def ready():
        if not process.running():
            raise RuntimeError("continuo ended at its start: " + " / ".join(process.text.splitlines()[-5:]))
        return READY.search(process.text)

    found = common.wait_for(ready, "Continuo is ready", 60)
    return Side("continuo", *found.group(1, 2), process)
