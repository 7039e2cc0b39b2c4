"""Packages of AOTInductor keep states as TorchScript models do, and continuo-archiver suggests the YAML of both.

tests/support/torching.py says when these tests are skipped."""

import fcntl
import hashlib
import inspect
import io
import pathlib
import re
import shutil
import zipfile

import numpy as np
import pytest

from models import Model, ROOT, archiver
from test_torch import Lstm, inputs, reference, register, saved, step, together
import torching
from torching import pytorch

torch = pytorch()

torch.set_num_threads(1)


class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.cell = torch.nn.GRUCell(4, 16)
        self.out = torch.nn.Linear(16, 3)

    def forward(self, x, h):
        h = self.cell(x, h)
        return self.out(h), h


CELL_YAML = """
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
inputs: [{name: x, dataType: FP32, dims: [4]}]
outputs: [{name: y, dataType: FP32, dims: [3]}]
state: {tensors: [{name: h, dataType: FP32, dims: [16]}]}
"""


def compiled(path):
    rows = torch.export.Dim("rows", min=1, max=64)
    example = (torch.zeros(8, 4), torch.zeros(8, 16))
    with torch.no_grad():
        program = torch.export.export(Cell().eval(), example, dynamic_shapes=({0: rows}, {0: rows}))
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))  # pylint: disable=protected-access


@pytest.fixture(scope="session")
def package():
    """A package that one of the test processes compiles for this PyTorch and this CPU, and keeps in build/."""
    if not shutil.which("g++"):
        pytest.skip("AOTInductor needs g++")
    flags = re.search(r"^flags.*$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    made_of = f"{torch.__version__} {flags and flags.group()} {inspect.getsource(Cell)} {inspect.getsource(compiled)}"
    path = ROOT / "build" / f"aoti-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.pt2"
    with open(path.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            made = path.with_name(f"making-{path.name}")
            compiled(made)
            made.rename(path)
    return path.read_bytes()


def packaged(name, data):
    return Model(name, None, CELL_YAML, torchscript=data, torchscript_name="model.pt2")


@torch.inference_mode()
def cell_reference(steps):
    h, given, module = torch.zeros(1, 16), [], Cell().eval()
    for x in steps:
        y, h = module(torch.from_numpy(x)[None], h)
        given.append(y[0].numpy())
    return given


def test_a_package_keeps_state_as_torchscript_does(package, server):
    """Many sequences make steps in batches of any size, and workers are killed between them."""
    s = server(packaged("cell", package))
    data = {f"s{i}": inputs(5, 40 + i) for i in range(8)}
    want = {name: cell_reference(steps) for name, steps in data.items()}
    for i in range(5):
        got = together(s, "cell", [(name, data[name][i]) for name in data])
        for name, row in zip(data, got):
            np.testing.assert_allclose(row, want[name][i], atol=1e-5)
        s.kill_worker("cell")
        s.expect_ready("cell")


def changed(package, old, new):
    """Returns the package with other words in its description of itself."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as archive, zipfile.ZipFile(buffer, "w") as out:
        for name in archive.namelist():
            data = archive.read(name)
            out.writestr(name, re.sub(old, new, data) if name.endswith(".json") else data)
    return buffer.getvalue()


def test_a_package_for_another_machine_is_refused_before_it_is_loaded(package, server):
    """The package's code would end the worker with SIGILL. The message names exactly what the CPU lacks."""
    s = server()
    for old, new, words in ((rb'"x86_64"', b'"riscv9"', "for riscv9"),
                            (rb'(ISA": ")[^"]*', rb'\1AVX2 ZVX9', "for CPUs with AVX2 ZVX9, and this one has no ZVX9:"),
                            (rb'(ISA": ")[^"]*', rb'\1ZVX512 ZVX512_VNNI', "this one has no ZVX512 ZVX512_VNNI:")):
        message = register(s, packaged("other", changed(package, old, new)))
        assert words in message, message


@pytest.mark.skipif("avx2" not in pathlib.Path("/proc/cpuinfo").read_text(), reason="a CPU without AVX2")
def test_a_list_of_instruction_sets_is_a_list(package, server):
    """Sets that this CPU has are allowed in any number and order. The code itself is unchanged."""
    s = server()
    s.register(packaged("cell", changed(package, rb'(ISA": ")[^"]*', rb'\1SSE4_2 AVX2 FMA')), synchronous="true",
               initial_workers=1)
    x = inputs(1, 9)[0]
    np.testing.assert_allclose(step(s, "cell", "a", x), cell_reference([x])[0], atol=1e-5)


def test_what_is_no_package_is_refused(server):
    s = server()
    message = register(s, packaged("none", b"PK no zip"))
    assert "as a package of AOTInductor" in message, message


# --- continuo-archiver suggest ---

CHECK = " # check: type and sizes without the batch dimension"


def suggested(folder, name, data):
    (folder / name).write_bytes(data)
    return archiver("suggest", folder / name).stdout


def test_the_suggested_yaml_of_torchscript_lacks_only_sizes(server, folder):
    """TorchScript has no sizes; names, order and states come from the signature."""
    text = suggested(folder, "lstm.pt", saved(Lstm()))
    for line, sizes in (("- {name: x, dataType: FP32, dims: [1]}" + CHECK, "- {name: x, dataType: FP32, dims: [4]}"),
                        ("- {name: output0, dataType: FP32, dims: [1]}" + CHECK,
                         "- {name: output0, dataType: FP32, dims: [3]}"),
                        *((f"- {{name: {name}, dataType: FP32, dims: [1]}}{CHECK}, batchAxis",
                           f"- {{name: {name}, dataType: FP32, dims: [2, 16], batchAxis: 1}}") for name in "hc")):
        assert f"{line}\n" in text, text
        text = text.replace(f"{line}\n", f"{sizes}\n")
    assert "sequenceBatching: true" in text and "check" not in text
    s = server(Model("lstm", None, text, torchscript=saved(Lstm())))
    data = inputs(3, 70)
    got = [torching.step(s, "lstm", "a", {"x": x})["output0"] for x in data]
    np.testing.assert_allclose(got, reference(Lstm().eval(), data), atol=1e-5)


def test_the_suggested_yaml_of_a_package_lacks_only_the_size_of_its_output(package, server, folder):
    """A package has sizes, but not the names that its module had."""
    text = suggested(folder, "cell.pt2", package)
    assert "- {name: input0, dataType: FP32, dims: [4]}\n" in text
    assert "- {name: state1, dataType: FP32, dims: [16]} # check: is it a state?\n" in text
    text = text.replace("name: output0, dataType: FP32, dims: [1]", "name: output0, dataType: FP32, dims: [3]")
    s = server(Model("cell", None, text, torchscript=package, torchscript_name="model.pt2"))
    data = inputs(3, 71)
    got = [torching.step(s, "cell", "a", {"input0": x})["output0"] for x in data]
    np.testing.assert_allclose(got, cell_reference(data), atol=1e-5)


def test_an_exported_program_tells_types_sizes_and_the_axis_of_rows(folder):
    class Counts(torch.nn.Module):
        def forward(self, x, seen):
            return x.to(torch.float64) + 1, seen + x.sum(1).to(torch.int64)

    rows, buffer = torch.export.Dim("rows", min=1, max=64), io.BytesIO()
    example = (torch.zeros(8, 4), torch.zeros(2, 8, dtype=torch.int64))
    torch.export.save(torch.export.export(Counts(), example, dynamic_shapes=({0: rows}, {1: rows})), buffer)
    text = suggested(folder, "counts.pt2", buffer.getvalue())
    assert "inputs:\n  - {name: x, dataType: FP32, dims: [4]}\n" in text
    assert "outputs:\n  - {name: output0, dataType: FP64, dims: [4]}\n" in text
    assert "    - {name: seen, dataType: INT64, dims: [2], batchAxis: 1} # check: is it a state?\n" in text
    assert "aoti_compile_and_package" in text
