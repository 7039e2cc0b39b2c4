"""Types every command of docs/ as it is on its page, and then runs the client in Python that stands below it.

PAGES has a row for each block, which says what must exist before, or where else the block is tested. A block without a
row fails, so a new command needs one. Addresses are replaced by those of the test's own servers; nothing else is
changed."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from certificates import Authority
from models import BIN, ROOT, Model, archiver, counter, pack
from test_examples import FENCE, blocks
from test_tls import Identity
from test_v2_repository_folder import ADD_LUA, put
from torching import pytorch
from waiting import limit

DOCS = ROOT / "docs"
# Programs that wait for ever, or that show a screen, are told to end.
ADAPTED = {"continuo-ctl top": "continuo-ctl top --once"}
# Programs that ask for the password of a key read it from standard input.
ASKING = re.compile("continuo-archiver (keygen|sign) ")


class Elsewhere:
    """A block that is not typed here. `where` names what tests it instead, or says why nothing can."""

    def __init__(self, where):
        self.where = where


class Desk:
    """A folder in which a reader of the docs works, with Continuo's programs in the PATH."""

    def __init__(self, folder, server, page):
        self.make_server, self.page = server, page
        self.folder = folder / "desk"
        (self.folder / "model-store").mkdir(parents=True)
        self.programs = folder / "programs"
        self.programs.mkdir()
        for program in ("continuo-ctl", "continuo-archiver"):
            (self.programs / program).symlink_to(BIN / program)
        self.put("build/release").symlink_to(BIN.parent)
        curl = self.programs / "curl"  # a status of 400 or more is a failure
        curl.write_text(f'#!/bin/sh\nexec {shutil.which("curl")} --silent --show-error --fail-with-body "$@"\n')
        curl.chmod(0o755)
        self.s = self.other = None
        self.env, self.words = {}, {}  # words: what stands in the docs -> what it is here

    def put(self, name, text=None):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(text)
        return path

    def serve(self, *models, **more):
        self.s = self.make_server(*models, **more)
        return self.s

    def start(self, words):
        """Runs `continuo FLAGS` with the same flags, on free ports and with this desk's folders."""
        flags, models, words = [], [], words[1:]
        while words:
            word = words.pop(0)
            if word == "--models":
                while words and not words[0].startswith(("-", "&")):
                    models.append(words.pop(0))
            elif word == "--model-store":
                words.pop(0)
            elif word in ("--inference-address", "--management-address"):
                flags += [word, re.sub(r"//.*", "//127.0.0.1:0", words.pop(0))]
            elif word not in ("...", "&"):  # files that the command names lie on the desk
                flags.append(str(self.folder / word) if (self.folder / word).exists() else word)
        self.s = self.make_server(flags=flags, start=False)
        shutil.copytree(self.folder / "model-store", self.s.store, dirs_exist_ok=True)
        self.s.models = models
        self.s.start()
        if (self.s.folder / "key_file.json").exists():  # the server writes it where it was started
            self.put("key_file.json").symlink_to(self.s.folder / "key_file.json")

    def adapt(self, command):
        command = ADAPTED.get(command, command)
        if ASKING.match(command):
            command = f"echo a-password | {command}"
        for old, new in self.words.items():
            command = command.replace(old, new)
        for host, s in (("localhost", self.s), ("otherhost", self.other)):
            if s is not None:
                for port, url in ((8080, s.inference), (8081, s.management)):
                    command = command.replace(f"http://{host}:{port}", url)
                command = command.replace(f"https://{host}:8443", s.inference)
        return command

    def run_client(self, text):
        """Runs a client in Python. Returns what it printed, errors included."""
        run = subprocess.run([sys.executable, "-c", self.adapt(text)], cwd=self.folder, capture_output=True, text=True,
                             timeout=limit(60), check=False,
                             env={**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python")})
        return run.stdout + run.stderr

    def type(self, command):
        env = {**os.environ, **self.env, "PATH": f"{self.programs}:{ROOT / '.venv/bin'}:{os.environ['PATH']}"}
        if self.s:
            env |= {"CONTINUO_MANAGEMENT": self.s.management, "CONTINUO_METRICS": self.s.metrics}
        run = subprocess.run(["bash", "-c", self.adapt(command)], cwd=self.folder, capture_output=True, text=True,
                             timeout=limit(90), check=False, env=env)
        return run.returncode, run.stdout + run.stderr


def lines_of(block):
    """Yields (command, comment, output below it) for each command of a block."""
    found = []
    for line in block.replace("\\\n", " ").splitlines():
        if found and found[-1][0].count("'") % 2:  # the text of an argument goes on
            found[-1][0] += "\n" + line
        elif line.startswith(("data:", "{")):
            found[-1][2].append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            command, _, comment = line.partition("   # ")
            found.append([command.strip(), comment.strip(), []])
    return [(re.sub(r"    # .*", "", command).strip(), comment, shown) for command, comment, shown in found]


AVERAGE_YAML = "sequenceBatching: true\nbatchSize: 16\n"


def average():
    return Model("average", blocks(DOCS / "handlers-lua.md", "lua")[0], AVERAGE_YAML)


def put_average(desk):
    desk.put("average/handler.lua", blocks(DOCS / "handlers-lua.md", "lua")[0])
    desk.put("average/model-config.yaml", blocks(DOCS / "handlers-lua.md", "yaml")[0])


def put_average_in_python(desk):
    if not (BIN / "python" / "continuo" / "_worker.abi3.so").exists():
        pytest.skip("this build has no Python (python3-dev)")
    desk.put("average/handler.py", blocks(DOCS / "handlers-python.md", "python")[0])
    desk.put("average/model-config.yaml", blocks(DOCS / "handlers-python.md", "yaml")[0])


def put_average_in_c(desk):
    put_average(desk)
    desk.put("average.c", blocks(DOCS / "handlers-c.md", "c")[0])
    desk.put("include").symlink_to(ROOT / "include")


def triton_repository(desk):
    repository = desk.put("repository")
    put(repository, "sums", {1: ADD_LUA % 1})
    return repository


def triton_model_with_a_handler_apart(desk):
    shutil.rmtree(triton_repository(desk) / "sums" / "1")
    desk.put("repository/sums/1/model.py", "")
    desk.put("handler.lua", ADD_LUA % 1)


def counter_with_a_sequence(desk):
    s = desk.serve(counter())
    s.client().step("counter", "seq_0", 5)
    desk.words["seq ls M"] = "seq ls counter"


def an_older_speech(desk):
    s = desk.serve(counter("speech", "1.0"))
    s.pack(counter("speech", "2.0")).rename(s.store / "speech-2.mar")


def a_damaged_counter(desk):
    """Makes a store without a registered model, and a model whose damaged store waits for an operator's decision."""
    s = desk.serve(counter(), counter("gone", "2.0"))
    for name in ("counter", "gone"):
        s.client().step(name, "a", 5)
    s.stop()
    (s.state_dir / "models/counter/1.0/journal.0").unlink()
    s.models = [counter()]
    s.start()
    desk.words |= {"MODEL/VERSION": "gone/2.0", "MODEL": "counter"}


def with_named_keys(desk):
    pack(counter(), desk.folder / "model-store", desk.put("work"))
    desk.words["2027-01-31"] = "2999-01-31"  # the key of the page expires


def with_keys(desk):
    desk.put("model-store")
    made = desk.make_server(start=False, name="packs")
    shutil.copy(made.pack(counter()), desk.folder / "model-store" / "counter.mar")


def an_archive_to_sign(desk):
    pack(counter(), desk.folder / "model-store", desk.folder / "sources", file_name="counter.mar")


def with_certificates(desk):
    identity = Identity(desk.folder, "own")
    identity.cert.rename(desk.folder / "chain.pem")
    identity.key.rename(desk.folder / "key.pem")


def with_client_certificates(desk):
    with_named_keys(desk)
    with_certificates(desk)
    authority = Authority(desk.folder)
    shop = authority.issue("shop", ["subjectAltName=DNS:shop.example"])
    for made, name in ((authority.cert, "clients-ca.pem"), (shop.cert, "shop.pem"), (shop.key, "shop.key")):
        shutil.copy(made, desk.folder / name)


def served_average(desk):
    desk.serve(average())


def served_average_of_users(desk):
    s = desk.serve(average())
    for user in ("user-7", "user-8"):
        s.client().step("average", user, 4)
    desk.other = desk.make_server(average(), name="other")


def served_counter(desk):
    desk.serve(counter())


def a_gru(desk):
    torch = pytorch()
    torch.jit.script(torch.nn.Linear(2, 2)).save(desk.folder / "gru.pt")
    desk.put("gru.yaml", "inputs: [{name: x, datatype: FP32, dims: [2]}]\n"
                         "outputs: [{name: y, datatype: FP32, dims: [2]}]\n")


def an_onnx_gru(desk):
    desk.put("gru.onnx", "a graph; the archiver does not look into it")
    desk.put("gru.yaml", "inputs: [{name: x, datatype: FP32, dims: [2]}]\n"
                         "outputs: [{name: y, datatype: FP32, dims: [2]}]\n")


def lua_with_modules(desk):
    desk.put("handler.lua", blocks(DOCS / "torch.md", "lua")[0])
    desk.put("model-config.yaml", "sequenceBatching: true\n")
    for name in ("encoder.pt", "decoder.pt"):
        desk.put(name, "a module")


def v2_accumulator(desk):
    desk.put("examples").symlink_to(ROOT / "examples")


def served_example(name):
    def arrange(desk):
        example = ROOT / "examples" / "v2" / name
        desk.serve(Model(name, (example / "handler.lua").read_text(), (example / "model-config.yaml").read_text()))
    return arrange


def protos(desk):
    shutil.copytree(ROOT / "proto", desk.folder / "proto")


def put_ear(desk):
    desk.put("ear/handler.lua", blocks(DOCS / "audio.md", "lua")[0])
    desk.put("ear/model-config.yaml", blocks(DOCS / "audio.md", "yaml")[0])


TUTORIAL = Elsewhere("tests/e2e/test_newcomer.py does the whole page, block by block")

PAGES = {
    ("audio", 0): put_ear,
    ("events", 0): Elsewhere("tests/e2e/test_events.py reads such streams"),
    ("events", 1): Elsewhere("tests/e2e/test_events.py reads such streams"),
    ("from-triton", 0): triton_repository,
    ("from-triton", 1): triton_model_with_a_handler_apart,
    ("from-triton", 2): Elsewhere("tests/e2e/test_python_triton.py does this with its own interpreter"),
    ("grpc", 0): protos,
    ("handlers-c", 0): put_average_in_c,
    ("handlers-lua", 0): put_average,
    ("handlers-python", 0): put_average_in_python,
    ("handlers-python", 1): Elsewhere("tests/e2e/test_environments.py does this with a wheel that it makes"),
    ("handlers-python", 2): Elsewhere("tests/e2e/test_environments.py packs wheels; pip download needs a package index"),
    ("install", 0): Elsewhere("tests/e2e/test_install.py makes the package and unpacks it"),
    ("install", 1): Elsewhere("tests/e2e/test_wheel.py does this with environments of its own"),
    ("install", 2): Elsewhere("tests/e2e/test_apt_repository.py does this with a key and packages of its own"),
    ("install", 3): Elsewhere("tests/e2e/test_apt_repository.py does this with an apt that has folders of its own"),
    ("install", 4): Elsewhere("systemd does not run where tests run"),
    ("install", 5): Elsewhere("building an image needs podman or docker"),
    ("install", 6): Elsewhere("building an image needs podman or docker"),
    ("install", 7): Elsewhere("tests/e2e/test_image.py makes an image of a small tree; a whole one takes minutes"),
    ("install", 8): Elsewhere("an empty Debian takes root's rights, a registry and minutes"),
    ("keys", 0): with_named_keys,
    ("keys", 1): with_client_certificates,
    ("onnx", 0): an_onnx_gru,
    ("operating", 0): counter_with_a_sequence,
    ("operating", 1): Elsewhere("tests/e2e/test_ctl_verbs.py runs each of these commands"),
    ("operating", 2): an_older_speech,
    ("operating", 3): a_damaged_counter,
    ("operating", 4): served_average_of_users,
    ("operating", 5): with_keys,
    ("operating", 6): an_archive_to_sign,
    ("operating", 7): with_certificates,
    ("reliability", 0): Elsewhere("tests/chaos/test_chaos.py runs the same for seconds"),
    ("reliability", 1): Elsewhere("tests/cluster/test_cluster.py runs the same for seconds"),
    ("reliability", 2): Elsewhere("scripts/build.sh fuzz and tests/fuzz; it needs clang and minutes"),
    ("page", 0): Elsewhere("tests/e2e/test_page_feed.py reads this stream, which has no end"),
    ("page", 1): Elsewhere("tests/e2e/test_page_feed.py kills a worker and sends the next step"),
    ("sequences", 0): served_average,
    ("sequences", 1): served_average,
    ("sequences", 2): served_average_of_users,
    ("sequences", 3): served_average_of_users,
    ("sessions", 0): served_counter,
    ("sessions", 1): counter_with_a_sequence,
    ("sessions", 2): served_counter,
    ("more-nodes", 0): Elsewhere("tests/e2e/test_cluster_models.py starts a store and nodes at ports of their own"),
    ("shared-store", 0): Elsewhere("tests/e2e/test_shared_store.py starts redis-server at a port of its own"),
    ("shared-store", 1): Elsewhere("tests/e2e/test_shared_store_tls.py starts a store with TLS and makes its certificates"),
    ("shared-store", 2): Elsewhere("tests/e2e/test_shared_store_sentinel.py starts Sentinels at ports of its own"),
    ("shared-store", 3): Elsewhere("tests/e2e/test_shared_store_cluster.py starts a cluster at ports of its own"),
    ("shared-store", 4): Elsewhere("tests/e2e/test_shared_states.py unregisters a version and deletes its states"),
    ("tracing", 0): Elsewhere("tests/e2e/test_tracing.py has a collector at a port of its own"),
    ("tracing", 1): Elsewhere("tests/e2e/test_tracing_phoenix.py, where Arize Phoenix is installed"),
    ("torch", 0): a_gru,
    ("torch", 1): Elsewhere("scripts/try_packages.sh installs the wheels that these commands make"),
    ("torch", 2): lua_with_modules,
    ("torch", 3): Elsewhere("tests/e2e/test_gpu_bundle.py"),
    ("tutorial", 0): TUTORIAL,
    ("tutorial", 1): TUTORIAL,
    ("tutorial", 2): TUTORIAL,
    ("tutorial", 3): TUTORIAL,
    ("tutorial", 4): TUTORIAL,
    ("tutorial", 5): TUTORIAL,
    ("tutorial", 6): TUTORIAL,
    ("tutorial", 7): TUTORIAL,
    ("tutorial", 8): TUTORIAL,
    ("tutorial", 9): TUTORIAL,
    ("tutorial", 10): TUTORIAL,
    ("tutorial", 11): TUTORIAL,
    ("tutorial", 12): TUTORIAL,
    ("tutorial", 13): TUTORIAL,
    ("tutorial", 14): TUTORIAL,
    ("tutorial", 15): TUTORIAL,
    ("v2", 0): v2_accumulator,
    ("v2", 1): served_example("repeat"),
    ("v2", 2): served_example("accumulator"),
}


def shell_blocks():
    return [(page.stem, i) for page in sorted(DOCS.glob("*.md")) for i in range(len(blocks(page, "sh")))]


def clients_below(page):
    """Yields (i, text) for each client in Python on a page, where i is the block of commands before it."""
    i = -1
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.M | re.S):
        i += kind == "sh"
        if kind == "python" and "import Client\n" in text:
            yield i, text


def test_every_client_in_python_is_run():
    """Those of clients.md are run by test_client_python.py."""
    for page in {path.stem for path in DOCS.glob("*.md")} - {"clients"}:
        for i, text in clients_below(page):
            assert not isinstance(PAGES[page, i], Elsewhere), f"{page}: no commands are typed before this:\n{text}"
            assert "    # " in text, f"{page}: the client does not say what it prints:\n{text}"


def test_every_block_of_commands_has_a_row_and_every_row_a_block():
    assert set(shell_blocks()) == set(PAGES)
    for row in PAGES.values():
        if isinstance(row, Elsewhere) and (named := re.match(r"tests/\S+\.py", row.where)):
            assert (ROOT / named.group()).exists(), row.where


@pytest.mark.parametrize("page,i", [key for key, row in PAGES.items() if not isinstance(row, Elsewhere)])
def test_the_commands_of_a_page_work_as_they_stand_there(folder, server, transcript, page, i):
    desk = Desk(folder, server, page)
    PAGES[page, i](desk)
    for command, comment, shown in lines_of(blocks(DOCS / f"{page}.md", "sh")[i]):
        words = command.split()
        if words[0].split("/")[-1] == "continuo":
            desk.start(words)
            continue
        sets_key = command.startswith("KEY=")  # each command has a shell of its own here
        code, output = desk.type(f'{command}; printf %s "$KEY"' if sets_key else command)
        transcript.log("reader", f"$ {command}\n{output}")
        refused = re.search(r"\b(4\d\d)\b", comment)
        assert code == (22 if refused else 0), f"{page}: {command}: {output}"
        for line in shown:
            assert line in output.splitlines() or line in output, f"{page}: {command}: {output}"
        if found := re.search(r"(?i)new-session-id: ([^\s;]+)", output):
            desk.words["ts-seq-0c1e..."] = found.group(1)
        if sets_key:
            desk.env["KEY"] = output
    for text in (text for at, text in clients_below(page) if at == i):
        output = desk.run_client(text)
        transcript.log("reader", f"{text}\n{output}")
        assert output.splitlines() == re.findall(r"^ +print\(.*    # (.*)$", text, re.M), f"{page}: {output}"
