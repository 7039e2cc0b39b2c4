"""tests/gpu/run.sh: the bundle for machines with a GPU is packed and run, on the CPU as far as that goes."""

import os
import shutil
import subprocess
import sys

import pytest

from models import ROOT
from waiting import limit

pytest.importorskip("torch", reason="the Python package torch is not installed")

CHECKS = ("gru_equals_pytorch", "workers_take_devices_in_turns", "killed_workers_lose_no_step",
          "killed_server_loses_no_step", "missing_driver_is_told", "memory_of_the_device_is_used_up")


@pytest.mark.load  # it compiles
@pytest.mark.skipif("release" not in os.environ.get("CONTINUO_BUILD", "release"), reason="it has a build of its own")
def test_bundle_runs_where_it_was_not_built(tmp_path):
    """Its programs find their libraries beside them, its library is compiled against the PyTorch at hand, and
    each check that needs no GPU holds."""
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
    assert "\n5 passed, 0 failed, 1 skipped\n" in run.stdout, run.stdout
