"""Rows that depend on each other are found when a TorchScript model is registered. Then each row runs alone, or the
model is refused. tests/support/torching.py says when these tests are skipped."""

import subprocess

import numpy as np
import pytest

from models import BIN
from torching import model, pytorch, registered, saved, step, together, told

torch = pytorch()
torch.set_num_threads(1)


class Lstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.lstm = torch.nn.LSTM(16, 32, 1, batch_first=True)
        self.out = torch.nn.Linear(32, 4)

    def forward(self, x, h, c):
        y, state = self.lstm(x.unsqueeze(1), (h, c))
        return self.out(y[:, 0]), state[0], state[1]


LSTM_YAML = """
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
inputs: [{{name: x, dataType: FP32, dims: [16]}}]
outputs: [{{name: y, dataType: FP32, dims: [4]}}]
state:
  tensors:
    - {{name: h, dataType: FP32, dims: [1, 32], batchAxis: 1}}
    - {{name: c, dataType: FP32, dims: [1, 32], batchAxis: 1}}
torch: {torch}
"""


def quantized(name, torch_="{}"):
    """A model that scales its activations over the whole batch, in int8."""
    module = torch.ao.quantization.quantize_dynamic(Lstm().eval(), {torch.nn.LSTM, torch.nn.Linear}, torch.qint8)
    return model(torch, name, saved(torch, module), LSTM_YAML.format(torch=torch_))


class Ages(torch.nn.Module):
    """A model that uses the age of the first row for all rows, as torchaudio's Emformer does."""

    def forward(self, x, age, total):
        first = int(age[0, 0].item())
        weight = 1.0 / (1.0 + first)
        total = total + x * weight
        return total, age + 1, total


AGES_YAML = """
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
inputs: [{{name: x, dataType: FP32, dims: [2]}}]
outputs: [{{name: y, dataType: FP32, dims: [2]}}]
state:
  tensors:
    - {{name: age, dataType: INT64, dims: [1]}}
    - {{name: total, dataType: FP32, dims: [2]}}
torch: {torch}
"""


class Hidden(torch.nn.Module):
    """A model that adds to a buffer which the YAML does not name."""

    def __init__(self):
        super().__init__()
        self.register_buffer("acc", torch.zeros(1))

    def forward(self, x):
        self.acc.add_(x.sum())
        return x + self.acc


class Cache(torch.nn.Module):
    """A model that changes a buffer on which no answer depends."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x * 2


class Draws(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand(x.size(0), 2)


PLAIN_YAML = """
batchSize: 8
maxBatchSize: 8
inputs: [{{name: x, dataType: FP32, dims: [2]}}]
outputs: [{{name: y, dataType: FP32, dims: [2]}}]
torch: {torch}
"""


def plain(name, module, torch_="{}"):
    return model(torch, name, module, PLAIN_YAML.format(torch=torch_), stateful=False)


def test_a_model_whose_rows_are_independent_keeps_its_buckets(server):
    s = server(model(torch, "lstm", Lstm(), LSTM_YAML.format(torch="{}")))
    about = told(s, "lstm")
    assert about["probe"]["result"] == "alike", about
    assert about["probe"]["largestBucket"] == 8 and about["probe"].get("by", 0) < about["probe"]["tolerance"]
    assert [bucket["rows"] for bucket in about["buckets"]] == [1, 2, 4, 8]
    assert "warning" not in s.workers("lstm")[0]


@pytest.mark.parametrize("torch_", ["{}", "{deterministic: true}"])
def test_int8_activations_do_not_mix_rows(server, torch_):
    """Among seven louder sequences, each step gives what PyTorch gives for its sequence alone, to the last bit."""
    given = quantized("int8", torch_)
    s = server(given)
    about = told(s, "int8")
    assert about["probe"]["result"] == "apart" and about["probe"]["by"] > about["probe"]["tolerance"], about
    assert [bucket["rows"] for bucket in about["buckets"]] == [1]
    module = torch.ao.quantization.quantize_dynamic(Lstm().eval(), {torch.nn.LSTM, torch.nn.Linear}, torch.qint8)
    h = c = torch.zeros(1, 1, 32)
    for i in range(5):
        rows = np.random.default_rng(i).standard_normal((8, 16), np.float32) * np.arange(1, 9, dtype=np.float32)[:, None]
        got = together(s, "int8", [(f"s{k}", {"x": rows[k]}) for k in range(8)])[0]["y"]
        with torch.inference_mode():
            want, h, c = module(torch.from_numpy(rows[:1]), h, c)
        assert got.astype(np.float32).tobytes() == want[0].numpy().tobytes()


def test_a_model_that_reads_the_first_row_for_all(server):
    """Sequences of different ages together give what each gives alone. Log, description and doctor say why they run
    alone."""
    s = server(model(torch, "ages", Ages(), AGES_YAML.format(torch="{}")))
    sums = np.zeros((4, 2))
    for k in range(4):
        for i in range(k):  # of another age each
            sums[k] += np.full(2, 1.0) / (1 + i)
            step(s, "ages", f"s{k}", {"x": [1, 1]})
    got = together(s, "ages", [(f"s{k}", {"x": [3, 3]}) for k in range(4)])
    for k in range(4):
        np.testing.assert_allclose(got[k]["y"], sums[k] + 3 / (1 + k), rtol=1e-6)
    warning = s.workers("ages")[0]["warning"]
    assert warning.startswith("each row is run alone (buckets: [1]): ") and "differs by" in warning, warning
    s.expect_log("event=torch_rows_depend", "differs by")
    doctor = subprocess.run([BIN / "continuo-ctl", "--server", s.management, "doctor"], capture_output=True, text=True,
                            check=False).stdout
    assert "model ages 1.0: its runtime gave a warning when it loaded the model" in doctor, doctor
    assert warning in doctor and warning.endswith("the answers are right, and slower than batches would be"), doctor


def test_strict_batching_refuses_such_a_model(server):
    s = server()
    answer = registered(s, model(torch, "ages", Ages(), AGES_YAML.format(torch="{strictBatching: true}")))
    assert answer.status_code >= 400
    message = answer.json()["message"]
    assert "differs by" in message and "torch.strictBatching is true" in message, message


def test_a_tolerance_lets_rows_be_run_together(server):
    s = server(model(torch, "ages", Ages(), AGES_YAML.format(torch="{probe: {tolerance: 10}}")),
               model(torch, "blind", Ages(), AGES_YAML.format(torch="{probe: false}")))
    assert told(s, "ages")["probe"]["result"] == "alike" and told(s, "blind")["probe"] == {"result": "off"}


@pytest.mark.parametrize("buckets", ["{}", "{buckets: [1]}"])
def test_a_buffer_that_is_changed_in_place_is_refused(server, buckets):
    """The model is refused even if each row would run alone, because its answer depends on earlier rows. The message
    names the buffer."""
    s = server()
    answer = registered(s, plain("hidden", Hidden(), buckets))
    assert answer.status_code >= 400
    message = answer.json()["message"]
    assert "between two runs" in message and "it changes acc" in message and "torch.attributes" in message, message
    assert registered(s, plain("meant", Hidden(), "{probe: false}")).status_code == 200


def test_a_buffer_that_matters_to_no_answer_is_told_of(server):
    s = server(plain("cache", Cache()))
    assert told(s, "cache")["probe"]["result"] == "alike"
    assert told(s, "cache")["probe"]["changedAttributes"] == "calls"
    warning = s.workers("cache")[0]["warning"]
    assert warning.startswith("runs change calls of the module") and "nothing is known to be wrong" in warning, warning
    doctor = subprocess.run([BIN / "continuo-ctl", "--server", s.management, "doctor"], capture_output=True, text=True,
                            check=False)
    assert doctor.returncode == 0 and warning in doctor.stdout, doctor.stdout
    assert "slower" not in doctor.stdout and "depend on each other\n" not in doctor.stdout, doctor.stdout


def test_a_model_that_draws_random_numbers_is_not_taken_for_one_that_mixes_rows(server):
    s = server(plain("draws", Draws()))
    about = told(s, "draws")
    assert about["probe"]["result"] == "random" and len(about["buckets"]) == 4, about


# --- random numbers ---


def draws(s, count):
    return [tuple(step(s, "draws", f"s{i}", {"x": [0, 0]})["y"]) for i in range(count)]


def seeded(torch_):
    given = plain("draws", Draws(), torch_)
    given.yaml = "minWorkers: 2\nmaxWorkers: 2\n" + given.yaml
    return given


def test_workers_and_their_successors_draw_other_numbers(server):
    """Forked workers draw different random numbers, and a worker that replaces a dead one does not repeat its numbers.
    """
    s = server(seeded("{buckets: [1]}"))
    s.expect_ready("draws", 2)
    seen = []
    for _ in range(3):
        seen += draws(s, 20)
        s.kill_worker("draws")
        s.expect_ready("draws", 2)
    assert len(set(seen)) == 60


def test_a_seed_repeats_what_a_worker_draws(server):
    given = plain("draws", Draws(), "{buckets: [1], seed: 42}")
    s = server(given)
    first = draws(s, 10)
    s.kill_worker("draws")
    s.expect_ready("draws")
    assert draws(s, 10) == first and len(set(first)) == 10
