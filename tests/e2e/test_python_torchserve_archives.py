"""Archives with Python handlers in every form that the pip package torch-model-archiver makes, in a bare store."""

import sys

from test_python_torchserve import EXAMPLE, pytestmark, step  # noqa: F401 - the reason to skip
from torchserve import TorchServe

READS = """
import helper
from deep.inner import WORD


class Handler:
    def initialize(self, context):
        self.manifest = context.manifest["model"]
        self.serialized = open(self.manifest["serializedFile"]).read()

    def handle(self, data, context):
        return [" ".join([helper.WORD, WORD, self.serialized, self.manifest["modelFile"]])] * len(data)
"""
FORMATS = ("default", "zip-store", "tgz", "no-archive")


def write_sources(folder):
    source = folder / "source"
    (source / "extra" / "deep").mkdir(parents=True)
    (source / "reads.py").write_text(READS)
    (source / "weights.txt").write_text("weights")
    (source / "network.py").write_text("class Network:\n    pass\n")
    (source / "extra" / "helper.py").write_text("WORD = 'beside'\n")
    (source / "extra" / "deep" / "__init__.py").write_text("")
    (source / "extra" / "deep" / "inner.py").write_text("WORD = 'below'\n")
    return source


def test_a_bare_store_of_archives_in_every_format_starts_with_models_all(folder, transcript):
    """Somebody who has such a store changes one thing: the program that serves it."""
    ts = TorchServe(folder, transcript)
    source = write_sources(folder)
    try:
        for form in FORMATS:
            ts.pack_with_theirs(f"reads-{form}", source / "reads.py", "--archive-format", form, "--serialized-file",
                                source / "weights.txt", "--model-file", source / "network.py", "--extra-files",
                                source / "extra")
            ts.pack_with_theirs(f"sum-{form}", EXAMPLE / "running_sum.py", "--archive-format", form, "--config-file",
                                EXAMPLE / "running_sum.yaml")
        (ts.store / "README.txt").write_text("no model")
        (ts.store / ".hidden").mkdir()
        config = ts.properties(f"continuo.python={sys.executable}\ndefault_workers_per_model=1\n")
        ts.start("--model-store", ts.store, "--ts-config", config, "--models", "all", "--ncs")
        listed = {model["modelName"] for model in ts.admin().get("/models").json["models"]}
        assert listed == {f"{name}-{form}" for name in ("reads", "sum") for form in FORMATS}
        for form in FORMATS:
            answer = ts.client().request("POST", f"/predictions/reads-{form}", b"x")
            assert (answer.status, answer.text) == (200, "beside below weights network.py"), form
            assert [step(ts, f"sum-{form}", "a", number).text for number in (3, 4)] == ["3", "7"], form
    finally:
        ts.destroy()
