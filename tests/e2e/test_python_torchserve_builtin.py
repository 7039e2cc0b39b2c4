"""TorchServe's own handlers, which an archive names instead of bringing one, with tiny models.

They are in the pip package torchserve, and they need torch, torchvision and captum. scripts/setup.sh --torch installs
them into .venv-torchserve; CONTINUO_TORCHSERVE_PYTHON names another interpreter that has them. tests/differential/torchserve_handlers.py compares the answers with TorchServe's.
"""

import json
import os
import sys

import pytest

import torchserve_builtin as builtin
from models import BUILD, ROOT
from torchserve import TorchServe

THEIRS = ROOT / ".venv-torchserve" / "bin" / "python"
PYTHON = os.environ.get("CONTINUO_TORCHSERVE_PYTHON", str(THEIRS) if THEIRS.exists() else sys.executable)
WORKER = BUILD / "bin" / "python" / "continuo" / "_worker.abi3.so"
pytestmark = [
    pytest.mark.skipif(not WORKER.exists(), reason="this build has no Python (python3-dev)"),
    pytest.mark.skipif(WORKER.exists() and b"__asan_init" in WORKER.read_bytes(),
                       reason="the other builds test it: PyTorch takes minutes with a sanitizer")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    if lacks := builtin.missing(PYTHON):
        pytest.skip(f"{PYTHON} lacks a package of TorchServe's handlers: {lacks}")
    folder = tmp_path_factory.mktemp("builtin")
    builtin.make(folder, PYTHON)
    return folder


def test_archives_that_name_torchserves_handlers_answer(folder, transcript, files):
    ts = TorchServe(folder, transcript)
    try:
        for name, (model, extra) in builtin.MODELS.items():
            ts.pack_with_theirs(name, name, "--serialized-file", files / model,
                                *(["--extra-files", ",".join(str(files / each) for each in extra)] if extra else []))
        config = ts.properties(f"continuo.python={PYTHON}\ndefault_workers_per_model=1\n")
        ts.start("--model-store", ts.store, "--ts-config", config, "--models", "all", "--ncs")
        answers = {}
        for case, name, path, body, kind in builtin.requests(files):
            answer = ts.client().request("POST", f"/{path}/{name}", body, {"Content-Type": kind} if kind else {})
            answers[name, case] = answer
        check(answers)
    finally:
        ts.destroy()


def check(answers):
    """Facts of the models that torchserve_builtin.py makes."""
    wrong = {key for key, answer in answers.items() if answer.status != 200}
    assert wrong == {("image_classifier", "no picture"), ("object_detector", "no picture"),
                     ("text_classifier", "an unknown word")}, {key: answers[key] for key in wrong}
    assert all(answers[key].status == 503 for key in wrong)
    classes = json.loads(answers["image_classifier", "a picture"].text)
    assert len(classes) == 5 and set(classes) <= {"cat", "dog", "bird", "fish", "ant", "bee"}
    (found,) = json.loads(answers["object_detector", "a picture"].text)
    assert found["bird"] == [0.0, 1.0, 2.0, 3.0] and found["score"] > 0.5
    pixels = json.loads(answers["image_segmenter", "a picture"].text)
    assert (len(pixels), len(pixels[0]), len(pixels[0][0])) == (224, 224, 2)
    said = json.loads(answers["text_classifier", "text"].text)
    assert len(said) == 3 and sum(said.values()) == pytest.approx(1)
    for name in ("image_classifier", "object_detector"):
        assert answers[name, "a picture"].text == answers[name, "a picture of a type"].text == \
            answers[name, "a picture in base64"].text
    assert answers["text_classifier", "text"].text == answers["text_classifier", "bytes"].text
