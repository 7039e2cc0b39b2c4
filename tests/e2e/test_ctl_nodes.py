"""continuo-ctl for several nodes: --all and --nodes (docs/operating.md)."""

import json
import subprocess

import pytest

from models import counter
from server import BIN
from shared_store import shared_store_in
from waiting import expect, limit

TTL_MS = 3000


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


@pytest.fixture
def ctl(transcript):
    def run(*words):
        done = subprocess.run([BIN / "continuo-ctl", *words], capture_output=True, text=True, timeout=limit(60), check=False)
        transcript.log("ctl", f"{' '.join(map(str, words))} -> {done.returncode}\n{done.stdout}{done.stderr}")
        return done
    return run


def node(server, store, name, *flags, more=None):
    return server(counter(), name=more or name, flags=["--state-store", store.url, "--node-ttl", TTL_MS, "--node-name", name,
                                                       *flags])


def facts(done):
    return json.loads(done.stdout)


def all_ready(ctl, s, names):
    def ready():
        said = facts(ctl("--server", s.management, "--all", "--json", "status"))
        return [(each["name"], each["state"]) for each in said["nodes"]] == [(name, "ready") for name in names]
    return ready


def test_status_shows_every_node_and_a_dead_one_is_no_error(server, store, ctl):
    """One node that is gone must not hide the others."""
    a, b, c = (node(server, store, name) for name in "abc")
    for _ in range(3):
        a.client().step("counter", "s", 1)
    expect(all_ready(ctl, b, "abc"), "three nodes to be ready")
    done = ctl("--server", c.management, "--all", "status")
    assert done.returncode == 0
    assert all(any(line.startswith(f"{name}  ") for line in done.stdout.splitlines()) for name in "abc")
    assert "replicas 0" in done.stdout and "hunter" not in done.stdout
    said = facts(ctl("--server", c.management, "--all", "--json", "status"))
    assert said["healthy"] and said["nodes"][0]["steps"] == 3 and said["store"]["appendOnly"]
    assert said["store"]["appendFsync"] == "no"
    c.kill()
    done = ctl("--server", a.management, "--all", "status")
    assert done.returncode == 1 and "no answer" in done.stdout and f"no answer from {c.management}" in done.stdout, done
    assert facts(ctl("--server", a.management, "--all", "--json", "status"))["nodes"][2]["error"]
    doctor = ctl("--server", a.management, "--all", "doctor")
    assert doctor.returncode == 1 and "PROBLEM  node c does not answer" in doctor.stdout, doctor
    assert "2 of 3 nodes answered" in doctor.stdout


def test_top_shows_what_each_node_does(server, store, ctl):
    a, b = node(server, store, "a"), node(server, store, "b")
    expect(all_ready(ctl, a, "ab"), "two nodes to be ready")
    frame = facts(ctl("--server", b.management, "--all", "--json", "--once", "top"))
    assert [each["name"] for each in frame["nodes"]] == ["a", "b"]
    assert all(each["stepsPerSecond"] == 0 for each in frame["nodes"])
    shown = ctl("--nodes", f"{a.management},{b.management}", "--once", "top")
    assert shown.returncode == 0 and "STEPS/S" in shown.stdout and shown.stdout.startswith("2 nodes  healthy"), shown


def test_the_doctor_finds_two_nodes_with_one_name(server, store, ctl):
    """With --all, and also at each of the two alone."""
    a = node(server, store, "a")
    twin = node(server, store, "a", more="twin")
    twin.expect_log("event=node_name_taken")
    a.expect_log("event=node_name_taken")
    for words in (("--server", a.management, "--all"), ("--server", twin.management, "--metrics", twin.metrics)):
        done = ctl(*words, "doctor")
        assert done.returncode == 1 and "another node is also called a" in done.stdout, done


def test_the_doctor_finds_a_node_that_another_node_answers_for(server, store, ctl):
    """A node that advertises an address of its own machine only would otherwise be shown as a second copy of another
    one."""
    a = node(server, store, "a")
    node(server, store, "b", "--advertise-management", a.management)
    expect(lambda: "node a answers at" in ctl("--server", a.management, "--all", "doctor").stdout, "the mistake to be told")


def test_the_doctor_finds_replicas_that_lag_and_a_store_without_a_file(server, store, ctl):
    a = node(server, store, "a")
    expect(all_ready(ctl, a, "a"), "the node to be ready")
    done = ctl("--server", a.management, "--all", "doctor")
    assert done.returncode == 0 and "nothing wrong" in done.stdout, done
    store.say("CONFIG", "SET", "appendfsync", "everysec")
    expect(lambda: "syncs its file once a second" in ctl("--server", a.management, "--all", "doctor").stdout,
           "the store's setting to be noticed")
    store.say("CONFIG", "SET", "appendonly", "no")
    expect(lambda: "keeps no append-only file" in ctl("--server", a.management, "--all", "doctor").stdout,
           "the store's setting to be noticed")
    store.say("CONFIG", "SET", "maxmemory", "1mb")
    expect(lambda: "PROBLEM  the store uses" in ctl("--server", a.management, "--all", "doctor").stdout,
           "the store's memory to be noticed")


def test_sequences_are_found_from_any_node(server, store, ctl, tmp_path):
    """seq ls, show and export work on any node, and with --nodes on the first that answers."""
    a, b = node(server, store, "a"), node(server, store, "b")
    assert a.client().step("counter", "s", 5).text == "5"
    nodes = ("--nodes", f"http://127.0.0.1:1,{b.management}")
    listed = facts(ctl(*nodes, "--json", "--state", "open", "seq", "ls", "counter"))
    assert [each["sequence"] for each in listed] == ["s"], listed
    assert facts(ctl(*nodes, "--json", "seq", "show", "counter", "s"))["step"] == 1
    assert ctl(*nodes, "seq", "export", "counter", "s", tmp_path / "s.cnseq").returncode == 0
    assert (tmp_path / "s.cnseq").stat().st_size > 0


def test_nodes_may_be_named_without_a_shared_store(server, ctl):
    s = server(counter())
    said = ctl("--server", s.management, "--all", "status")
    assert said.returncode == 1 and "--nodes host1:8081" in said.stderr, said
    done = ctl("--nodes", s.management.removeprefix("http://"), "status")
    assert done.returncode == 0 and "ready" in done.stdout, done


@pytest.mark.parametrize("words, reason", [
    (("--all", "models"), "--all works only with"),
    (("--nodes", "a:1", "store", "ls"), "--nodes works only with"),
    (("--all", "--nodes", "a:1", "status"), "either --all or --nodes"),
    (("--nodes", "a:1,,b:2", "status"), "--nodes"),
    (("--nodes", "", "status"), "--nodes"),
])
def test_wrong_command_lines(ctl, words, reason):
    done = ctl(*words)
    assert done.returncode in (1, 2) and reason in done.stderr, done
