"""TorchScript models for tests: saving them, their archives, and steps of many sequences at once."""

import concurrent.futures
import io
import os

import numpy as np
import pytest
import requests

from models import BIN, BUILD, Model

LIBRARY = BIN / "libcontinuo_torch.so"
SANITIZED = BUILD.name in ("asan", "tsan")


def pytorch(under_tsan=False):
    """Returns the module torch, for tests that compare with it. If something is missing, the file or the test is
    skipped. With CONTINUO_REQUIRE_TORCH=1, which the continuous integration sets, it fails instead.

    Under the thread sanitizer these tests are skipped, because libtorch would take minutes and nothing would be found.
    """
    if BUILD.name == "tsan" and not under_tsan:
        pytest.skip("under the thread sanitizer only test_torch_chaos.py runs with PyTorch: a worker, which alone "
                    "loads libtorch, runs our code in one thread", allow_module_level=True)
    missing = None
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError as why:
        missing = f"the Python package torch is not installed ({why})"
    if not missing and not LIBRARY.exists():
        missing = f"{LIBRARY.name} was not built"
    if not missing:
        return torch
    missing += ": run scripts/setup.sh --torch and build again"
    if os.environ.get("CONTINUO_REQUIRE_TORCH") == "1":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing, allow_module_level=True)


def saved(torch, module):
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(module.eval()), buffer)
    return buffer.getvalue()


def model(torch, name, module, yaml, **more):
    return Model(name, None, yaml, torchscript=module if isinstance(module, bytes) else saved(torch, module), **more)


def step(s, name, sequence, inputs, status=200):
    """Returns the outputs of one step of one row by name, or the error's message if another status is expected."""
    body = {key: [np.asarray(value).tolist()] for key, value in inputs.items()}
    answer = requests.post(f"{s.inference}/predictions/{name}", json=body, timeout=60,
                           headers={"ts-request-sequence-id": sequence})
    assert answer.status_code == status, answer.text
    if status != 200:
        return answer.json()["message"]
    return {key: np.asarray(value[0]) for key, value in answer.json().items()}


def together(s, name, jobs):
    """Sends all (sequence, inputs) while the workers are held, so that they run as one batch."""
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool, s.hold():
        futures = [pool.submit(step, s, name, sequence, inputs) for sequence, inputs in jobs]
        s.expect_outstanding(name, len(jobs))
    return [future.result() for future in futures]


def told(s, name):
    """Returns the runtime's description of the model."""
    answer = requests.get(f"{s.management}/models/{name}", params={"customized": "true"}, timeout=20)
    return answer.json()[0]["customizedMetadata"]


def registered(s, given):
    """Returns the answer to the registration of an archive."""
    return requests.post(f"{s.management}/models", timeout=120, params={
        "url": s.pack(given).name, "initial_workers": 1, "synchronous": "true"})
