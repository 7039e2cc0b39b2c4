"""tests/gpu/run.sh: packs the bundle for machines with a GPU and runs it on the CPU, as far as that is possible."""

import os
import shutil
import subprocess
import sys

import pytest

from models import ROOT
from torching import pytorch
from waiting import limit

CHECKS = ("gru_equals_pytorch", "python_handler_equals_pytorch", "torchserve_handler_gets_the_device", "workers_take_devices_in_turns", "killed_workers_lose_no_step",
          "killed_server_loses_no_step", "missing_driver_is_told", "memory_of_the_device_is_used_up")


@pytest.mark.load  # it compiles
@pytest.mark.skipif("release" not in os.environ.get("CONTINUO_BUILD", "release"), reason="it has a build of its own")
def test_bundle_runs_where_it_was_not_built(tmp_path):
    """The bundle's programs find their libraries beside them, its library is compiled against the installed PyTorch,
    and each check that needs no GPU passes."""
    pytorch()
    packed = tmp_path / "packed"
    subprocess.run([ROOT / "tests/gpu/run.sh", "pack", packed], check=True, timeout=limit(300))
    bundle = packed.rename(tmp_path / "elsewhere")
    foreign = [line for line in subprocess.run(["ldd", bundle / "bin/continuo"], capture_output=True, text=True,
                                               check=True).stdout.splitlines()
               if "=> /" in line and str(bundle) not in line]
    assert {line.split()[0].partition(".so")[0] for line in foreign} <= {"libc", "libm", "libstdc++", "libgcc_s",
                                                                         "libresolv", "libpthread", "libdl"}, foreign
    environment = os.environ | ({"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {})
    run = subprocess.run([bundle / "run.sh", "--device", "cpu", "--python", sys.executable, "--only", *CHECKS],
                         env=environment, capture_output=True, text=True, timeout=limit(400), check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\n7 passed, 0 failed, 1 skipped\n" in run.stdout, run.stdout


@pytest.mark.parametrize("getconf, has", [("echo glibc 2.31", "glibc 2.31"), ("echo glibc 2.4", "glibc 2.4"),
                                          ("exit 1", "another C library")])
def test_an_older_c_library_is_refused_in_one_sentence(tmp_path, getconf, has):
    """The refusal comes before anything is compiled or started, because the loader's message would only name the
    version of a symbol."""
    shutil.copy(ROOT / "tests/gpu/run.sh", tmp_path)
    for name, text in (("bin/continuo", "exit 99"), ("path/getconf", getconf)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    run = subprocess.run([tmp_path / "run.sh"], env=os.environ | {"PATH": f"{tmp_path}/path:{os.environ['PATH']}"},
                         capture_output=True, text=True, timeout=limit(60), check=False)
    assert (run.returncode, run.stdout) == (1, ""), run.stdout + run.stderr
    assert run.stderr == ("tests/gpu/run.sh: the programs of this bundle need glibc 2.36 or newer, as Debian 12 and "
                          f"Ubuntu 24.04 have it, and this machine has {has}\n")
