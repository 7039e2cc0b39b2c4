"""The usual first mistakes, and the text that each of them gets before a client meets it."""

import re
import socket
import subprocess
import urllib.parse
import zipfile

import pytest

from models import BIN, Model, archiver
from waiting import limit

STEP = "function M.step(state, req)\n    return { text = 'x' }\nend\n"


def lua(name, body, **settings):
    return Model(name, lua=f"local M = {{}}\n{body}return M\n", yaml=settings)


def pack(folder, name, text, *more, check=True, transcript=None, yaml="sequenceBatching: true\n"):
    (folder / name).write_text(text)
    (folder / "model-config.yaml").write_text(yaml)
    return archiver("--model-name", "m", "--version", "1.0", "--handler", folder / name, "--config-file",
                    folder / "model-config.yaml", "--export-path", folder, "--force", *more, check=check,
                    transcript=transcript)


def test_a_global_in_a_step_is_an_error_with_its_name_its_line_and_what_to_do(server):
    """With two clients the answers would be wrong, and nobody would know why."""
    body = "function M.step(state, req)\n    total = (total or 0) + 1\n    return { text = tostring(total) }\nend\n"
    s = server(lua("strict", body), lua("loose", body, handler={"strict": False}))
    answer = s.client().step("strict", "a", 1)
    assert answer.status >= 500, answer
    assert re.search(r"handler.lua:3: the global 'total' is assigned outside of load: .*Write 'local total' .*"
                     r"'handler: \{strict: false\}' in the model's YAML allows globals", answer.message), answer
    assert [s.client().step("loose", "a", 1).body for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize("body, text", [
    ("function M.step(state, req)\n    io.open('x')\nend\n",
     "handler.lua:3: attempt to index a nil value (global 'io'): handlers run in a sandbox without it"),
    ("function M.step(state, req)\n    os.execute('ls')\nend\n",
     "handler.lua:3: attempt to call a nil value (field 'execute'): handlers run in a sandbox that has only"),
], ids=["io", "os"])
def test_the_sandbox_explains_what_it_lacks(server, body, text):
    s = server(lua("m", body))
    answer = s.client().step("m", "a", 1)
    assert answer.status >= 500 and text in answer.message, answer


def test_a_model_without_sequences_says_that_it_has_no_state(server):
    s = server(Model("m", lua="return { step = function(state, req)\n  state.n = 1\nend }\n", stateful=False))
    answer = s.client().post("/predictions/m", b"1")
    assert "handler.lua:2: " in answer.message and "(local 'state'): this model is not stateful" in answer.message
    assert "sequenceBatching: true" in answer.message, answer


def test_a_function_that_is_never_called_is_told_when_the_model_loads(server):
    s = server(lua("near", STEP + "function M.clsoe(seq) end\n"))
    s.expect_log("event=handler_warning", "model=near",
                 "handler.lua: clsoe is never called: the server calls close(seq, state, reason)")


SYNTAX = [
    ("handler.lua", "local M = {}\nfunction M.step(state, req\n    return 1\nend\nreturn M\n",
     "handler.lua:3: ')' expected near 'return'"),
    ("handler.py", "def step(state, req):\n    return (1 +\n", r"handler.py:2: SyntaxError: "),
    ("handler.py", "def step(state, req):\nreturn 1\n", r"handler.py:2: IndentationError: "),
]


@pytest.mark.parametrize("name, text, told", SYNTAX, ids=["lua", "python", "indentation"])
def test_the_archiver_finds_syntax_errors(folder, transcript, name, text, told):
    """The archive would be on the server already when a worker finds them."""
    done = pack(folder, name, text, check=False, transcript=transcript)
    assert done.returncode == 1 and told in done.stderr, done
    assert not (folder / "m.mar").exists()
    assert pack(folder, name, text, "--no-check", transcript=transcript).returncode == 0


@pytest.mark.parametrize("name, text, told", [
    ("handler.lua", "local M = {}\n" + STEP + "function M.on_close(seq) end\nreturn M\n",
     "handler.lua:5: on_close is never called: the server calls close(seq, state, reason)"),
    ("handler.py", "def step(state, req):\n    return 1\n\n\ndef on_init(req):\n    return {}\n",
     "handler.py:5: on_init is never called: the server calls init(req)"),
], ids=["lua", "python"])
def test_the_archiver_finds_functions_that_are_never_called(folder, transcript, name, text, told):
    done = pack(folder, name, text, transcript=transcript)
    assert f"warning: {told}" in done.stderr, done
    helper = pack(folder, name, text.replace("on_close", "close").replace("on_init", "init"), transcript=transcript)
    assert "never called" not in helper.stderr, helper


def test_torchserves_handlers_are_not_measured_by_our_names(folder, transcript):
    """Their functions have names of their own, such as initialize."""
    text = "class H:\n    def initialize(self, context): pass\n    def on_close(self): pass\n"
    done = pack(folder, "handler.py", text, transcript=transcript)
    assert done.stderr == "", done


def test_half_a_key_is_a_misspelt_key(folder, transcript):
    done = pack(folder, "handler.lua", "return { step = print }\n", transcript=transcript,
                yaml="sequenceBatch: true\n")
    assert "unknown key sequenceBatch (did you mean sequenceBatching?)" in done.stderr, done


@pytest.mark.parametrize("yaml, told", [
    ("inputs: [{name: x, dataType: FLOAT32, dims: [2]}]\noutputs: [{name: y, dataType: FP32, dims: [2]}]\n",
     "model-config.yaml:1:30: dataType: expected BOOL, UINT8 to UINT64, INT8 to INT64, FP16, BF16, FP32, FP64 or BYTES, "
     "found a string FLOAT32"),
    ("inputs: [{name: x, dataType: FP32, dims: 2}]\n", "model-config.yaml:1:42: dims: expected a list of up to 15 sizes"),
    ("inputs: [{name: x, dataType: FP32, dims: [2]}]\n", "a model with inputs needs outputs: a list of tensors"),
    ("dynamic_batching: {}\n", "need declared inputs and outputs, which are missing"),
    ("\tbatchSize: 4\n", "model-config.yaml:1:1: found character that cannot start any token, while scanning for the "
     "next token; write spaces instead of a tab"),
    ("batchSize: 4\n minWorkers: 1\n", "model-config.yaml:2:12: mapping values are not allowed in this context; the "
     "keys of one map must begin in the same column"),
], ids=["datatype", "dims", "outputs", "batching", "tab", "indentation"])
def test_the_archiver_reads_the_yaml_as_the_server_will(folder, transcript, yaml, told):
    done = pack(folder, "handler.lua", "return { step = print }\n", check=False, transcript=transcript, yaml=yaml)
    assert done.returncode == 1 and told in done.stderr, done
    assert not (folder / "m.mar").exists()


@pytest.mark.parametrize("name, told", [
    ("handler.c", "handler.c cannot be a handler: the name of one ends with .py, .lua or .so (one in C is compiled first)"),
    ("source", "source is a folder; name a file in it, such as "),
])
def test_what_cannot_be_a_handler_is_told_under_its_own_name(folder, transcript, name, told):
    """TorchServe's tool adds .py to the name, and then says that the file does not exist."""
    (folder / "source").mkdir()
    (folder / "handler.c").write_text("int x;\n")
    done = archiver("--model-name", "m", "--version", "1.0", "--handler", folder / name, "--export-path", folder,
                    check=False, transcript=transcript)
    assert done.returncode == 1 and f"--handler: {folder}/{told}" in done.stderr, done


def torchscript(folder, signature, returned="(y, h0)"):
    """A file as torch.jit.save writes it, as far as suggest reads it."""
    code = f"class M(Module):\n  training : bool\n  def forward(self: __torch__.m.M,\n{signature}:\n    return {returned}\n"
    with zipfile.ZipFile(folder / "model.pt", "w") as file:
        file.writestr("model/data.pkl", b"\x80\x02c__torch__.m\nM\n)\x81.")
        file.writestr("model/code/__torch__/m.py", code)
    return folder / "model.pt"


def test_a_torchscript_file_gets_a_suggestion_without_pytorch(folder):
    """What cannot be guessed is marked, because a YAML that looks finished would be registered as it is."""
    text = archiver("suggest", torchscript(folder, "    x: Tensor,\n    flag: bool=False,\n    words: List[str],\n"
                                                   "    h: Tuple[Tensor, Optional[Tensor]]) -> "
                                                   "Tuple[Tensor, Tuple[Tensor, Tensor], int]",
                                           "(y, (h_00, h_1), 3)")).stdout
    assert "state:\n  tensors:\n    - {name: h_0, dataType: FP32, dims: [1]} # check:" in text
    assert "  arguments: [x, false, 0, h_0, h_1]\n  results: [output0, h_0, h_1, output3]\n" in text
    assert "# check: argument 3 has the type List[str], which is not served\n" in text
    assert "# check: argument 2 is a number, which is the same in each step\n" in text


@pytest.mark.parametrize("signature, said", [
    ("    x: Tensor", "the signature of its method forward cannot be read"),
    ("    x) -> Tensor", "the signature of its method forward cannot be read"),
    (", ".join(f"a{i}: Tensor" for i in range(257)) + ") -> Tensor", "more than 256 arguments")])
def test_a_torchscript_file_with_a_strange_signature_is_refused(folder, signature, said):
    done = archiver("suggest", torchscript(folder, signature), check=False)
    assert done.returncode == 1 and said in done.stderr, done


@pytest.mark.parametrize("content, said", [
    ({"model/data.pkl": b"\x80\x02}q\x00."}, "it is not TorchScript: save it with torch.jit.script(model).save()"),
    ({"model/words.txt": b"x"}, "neither TorchScript (.pt) nor a package of AOTInductor (.pt2)"),
    ({"model/data.pkl": b"\x80\x02c__torch__.m\nM\n."}, "its code has no class of the name that data.pkl says"),
    ({"model/models/model.json": b'{"graph_module": 3}'}, "the JSON of its exported program cannot be read"),
    ({"model/data/aotinductor/model/x.wrapper.cpp": b"int x;"}, "does not say what its inputs and outputs are")])
def test_a_zip_file_of_another_kind_is_refused(folder, content, said):
    with zipfile.ZipFile(folder / "model.pt", "w") as file:
        for name, data in content.items():
            file.writestr(name, data)
    done = archiver("suggest", folder / "model.pt", check=False)
    assert done.returncode == 1 and said in done.stderr, done
    (folder / "model.pt").write_bytes((folder / "model.pt").read_bytes()[:-5])
    assert archiver("suggest", folder / "model.pt", check=False).returncode == 1


def test_the_archiver_says_what_it_wrote_and_how_it_is_served(folder, transcript):
    done = pack(folder, "handler.lua", "return { step = print }\n", transcript=transcript)
    first, about, serve = done.stdout.splitlines()
    size = (folder / "m.mar").stat().st_size
    assert re.fullmatch(rf"{folder}/m\.mar: {size} bytes, sha256 [0-9a-f]{{64}}", first), done
    assert about == "model m, version 1.0; handler handler.lua; settings: model-config.yaml"
    assert serve == f"serve it: continuo --model-store {folder} --models m=m.mar"


def said(address, request):
    """Sends bytes to a port. Returns everything that comes back until the connection ends."""
    with socket.create_connection(address, timeout=limit(10)) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def test_a_client_of_another_protocol_is_told_where_it_is(server):
    """HTTP at the gRPC port, TLS and gRPC at the HTTP port: clients only say that the connection broke."""
    s = server(lua("m", STEP))
    host, _, port = s.grpc.rpartition(":")
    answer = said((host, int(port)), b"POST /predictions/m HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n4")
    head, body = answer.split("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 ") and f"Content-Length: {len(body)}\r\n" in head + "\r\n"
    assert body == "This port speaks gRPC. HTTP requests go to port 8080, or to the port of --inference-address.\n"
    http = urllib.parse.urlsplit(s.inference)
    for first, told in [(b"\x16\x03\x01\x02\x00\x01\x00", "this port speaks HTTP: begin the URL with http://"),
                        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "this port speaks HTTP/1.1: gRPC has a port of its own")]:
        assert told in said((http.hostname, http.port), first), first


@pytest.mark.parametrize("models, told", [
    (["m=mm.mar"], "Model not found at: mm.mar (did you mean m.mar?)"),
    (["elsewhere/m.mar"], "Model not found at: elsewhere/m.mar (did you mean m.mar?)"),
    (["other"], "Model not found at: other; the model store {store} has m.mar"),
], ids=["misspelt", "path", "unknown"])
def test_a_model_that_the_store_lacks_is_told_with_what_there_is(folder, tmp_path, transcript, models, told):
    pack(folder, "handler.lua", "return { step = print }\n", transcript=transcript)
    flags = [f"--{api}-address={'none' if 'grpc' in api else 'http://127.0.0.1:0'}"
             for api in ("inference", "management", "metrics", "grpc-inference", "grpc-management")]
    done = subprocess.run([BIN / "continuo", "--model-store", folder, "--models", *models, *flags], cwd=tmp_path,
                          capture_output=True, text=True, check=False, timeout=limit(30))
    assert done.returncode == 1 and told.format(store=folder) in done.stderr, done


def test_a_model_that_wants_names_says_where_they_are_written(server):
    s = server(lua("m", STEP, sequence={"implicitStart": False}))
    answer = s.client().post("/predictions/m", b"1")
    assert answer.status == 400 and "send one in the header Continuo-Sequence" in answer.message, answer
