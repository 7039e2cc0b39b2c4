"""The same models on all nodes of a shared store: --cluster-models (docs/more-nodes.md)."""

import hashlib
import json
import shutil
import signal
import socket
import threading
from urllib.parse import quote

import pytest

from models import ROOT, counter, pack
from shared_store import shared_store_in
from waiting import expect


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


@pytest.fixture
def archives(folder):
    """A model store that all nodes share."""
    (folder / "archives").mkdir()
    return folder / "archives"


@pytest.fixture
def nodes(server, store, archives, folder, transcript):
    """Starts nodes whose model store is one folder, or one of their own."""

    def start(name, *flags, own=False, run=True, **more):
        made = server(flags=["--state-store", store.url, "--cluster-models", "--cluster-timeout", "500",
                             "--node-name", name,
                             *([] if own else ["--model-store", archives]), *flags], start=run, name=name, **more)
        made.archives = made.store if own else archives
        return made

    return start


def put(model, where, name):
    """Packs a model into a folder."""
    work = where.parent / f"work-{where.name}-{name}"
    work.mkdir(exist_ok=True)
    return pack(model, where, work, None, name)


def model(**more):
    return counter(state={"storeTimeoutMSec": 500}, **more)


def cluster(node):
    answer = node.admin().get("/cluster")
    assert answer.status == 200, answer
    return answer.json


def expect_converged(*nodes):
    """Waits until all these nodes have the newest set."""
    def converged():
        all_of = cluster(nodes[0])
        reports = all_of["nodes"]
        return len(reports) == len(nodes) and all(
            report["converged"] and report["seen"] == all_of["generation"] for report in reports)
    expect(converged, "the nodes to have the same models")


def loaded(node):
    """(name, version) of the models of a node, with the default versions first."""
    found = []
    for each in node.admin().get("/models").json["models"]:
        found += [(one["modelName"], one["modelVersion"])
                  for one in node.admin().get(f"/models/{each['modelName']}/all").json]
    return found


def test_what_is_done_on_one_node_is_done_on_all(nodes, archives):
    put(model(), archives, "one.mar")
    put(model(version="2.0"), archives, "two.mar")
    a, b, c = nodes("a"), nodes("b"), nodes("c")
    assert a.register_url("one.mar", initial_workers=1).status == 200
    expect_converged(a, b, c)
    assert c.client().step("counter", "s", 2).text == "2"
    assert b.client().step("counter", "s", 3).text == "5"
    assert b.register_url("two.mar").status == 200
    expect_converged(a, b, c)
    assert loaded(a) == loaded(c) == [("counter", "1.0"), ("counter", "2.0")]

    assert c.admin().put("/models/counter?min_worker=2&synchronous=true").status == 200
    expect_converged(a, b, c)
    assert [node.describe("counter")["minWorkers"] for node in (a, b, c)] == [2, 2, 2]
    a.expect_ready("counter", 2)

    assert a.admin().put("/models/counter/2.0/set-default?swap_policy=migrate").status == 200
    expect_converged(a, b, c)
    for node in (a, b, c):
        about = node.describe("counter")
        assert (about["modelVersion"], about["swapPolicy"]) == ("2.0", "migrate")

    answer = b.admin().delete("/models/counter/2.0")
    assert (answer.status, answer.error) == (403, "version_in_use")
    assert b.admin().delete("/models/counter/1.0").json == {"status": 'Model "counter" unregistered'}
    expect_converged(a, b, c)
    assert loaded(a) == loaded(b) == loaded(c) == [("counter", "2.0")]


def test_a_description_shows_how_far_each_node_is(nodes, archives):
    put(model(), archives, "one.mar")
    a, b = nodes("a"), nodes("b")
    assert a.register_url("one.mar").status == 200
    expect_converged(a, b)
    shown = b.describe("counter")["cluster"]
    assert shown["generation"] == cluster(b)["generation"] == 1
    assert shown["storeError"] is None and len(shown["digest"]) == 64
    assert [(node["wantedGeneration"], node["seenGeneration"], node["converged"], node["error"])
            for node in shown["nodes"]] == [(1, 1, True, None)] * 2
    assert {node["node"] for node in shown["nodes"]} == {"a", "b"}
    b.stop()
    assert len(cluster(a)["nodes"]) == 1


def test_the_set_of_models_survives_restarts_of_nodes_and_store(nodes, store, archives):
    """The models of the command line count only until the nodes have a set."""
    put(model(), archives, "one.mar")
    put(model(name="other"), archives, "other.mar")
    a = nodes("a", "--models", "counter=one.mar")
    assert loaded(a) == [("counter", "1.0")]
    assert a.register_url("other.mar").status == 200
    assert a.admin().put("/models/other?min_worker=2").status == 202
    assert a.admin().delete("/models/counter").status == 200
    a.kill()
    store.kill()
    store.start()
    a.restart()
    a.expect_log("event=cluster_models_first")
    assert loaded(a) == [("other", "1.0")]
    assert a.describe("other")["minWorkers"] == 2
    assert a.describe("other")["loadedAtStartup"] is False


def test_two_nodes_that_start_with_the_same_models_agree(nodes, archives):
    put(model(), archives, "one.mar")
    started = [nodes(name, "--models", "counter=one.mar", run=False) for name in ("a", "b", "c")]
    for node in started:
        node.launch()
    for node in started:
        expect(lambda n=node: n._ready.is_set(), "the node to start")
    expect_converged(*started)
    assert cluster(started[0])["generation"] == 1


def test_of_two_contradicting_registrations_one_wins(nodes, folder):
    """Both nodes have an archive of this name and version, but not the same one."""
    a, b = nodes("a", own=True), nodes("b", own=True)
    put(model(), a.archives, "one.mar")
    put(model(batchSize=2), b.archives, "one.mar")
    answers = {}
    threads = [threading.Thread(target=lambda n=node: answers.update({n.name: n.register_url("one.mar")}))
               for node in (a, b)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answer.status for answer in answers.values()) == [200, 409], answers
    winner, loser = (a, b) if answers["a"].status == 200 else (b, a)
    assert answers[loser.name].error == "conflict"
    # The loser has another archive under this name. It says so, and serves nothing under the name.
    def error():
        reports = winner.describe("counter")["cluster"]["nodes"]
        return next((node["error"] for node in reports if node["error"]), None)
    assert "copy that archive to this node" in expect(error, "the loser's error to show")
    shown = loser.describe("counter")
    assert (shown["modelVersion"], shown["workers"]) == ("1.0", [])
    assert [node["converged"] for node in shown["cluster"]["nodes"]].count(False) == 1
    # When it has the right archive, it loads it by itself.
    shutil.copy(winner.archives / "one.mar", loser.archives / "one.mar")
    expect_converged(a, b)
    assert loser.client().step("counter", "s", 2).text == "2"
    assert winner.client().step("counter", "s", 2).text == "4"


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_node_that_cannot_load_a_model_says_so_and_tries_again(nodes, how):
    a, b = nodes("a", own=True), nodes("b", own=True)
    good = put(model(), a.archives, "one.mar")
    if how == "damaged":
        (b.archives / "one.mar").write_bytes(good.read_bytes()[:-100])
    assert a.register_url("one.mar").status == 200
    b.expect_log("event=cluster_model_failed", "model=counter")

    def error():
        reports = a.describe("counter")["cluster"]["nodes"]
        return next((node["error"] for node in reports if node["error"]), None)
    found = expect(error, "the error of node b to show")
    assert ("Model not found at: one.mar" if how == "missing" else "has the SHA-256") in found
    assert b.client().step("counter", "s", 1).status == 404
    # It can be unregistered there, too; but here it is mended.
    shutil.copy(good, b.archives / "one.mar")
    expect_converged(a, b)
    assert b.client().step("counter", "s", 1).text == "1"


def test_a_long_error_is_not_cut_within_a_character(nodes):
    """Such an error is not JSON text, and the report of the node lacked it."""
    a, b = nodes("a", own=True), nodes("b", own=True)
    where = a.archives / ("x" + 119 * "é") / (100 * "é")
    where.mkdir(parents=True)
    put(model(), where, "one.mar")
    name = quote(f"{where.relative_to(a.archives)}/one.mar")
    assert a.register_url(name).status == 200
    b.expect_log("event=cluster_model_failed", "model=counter")
    found = expect(lambda: [error for node in cluster(a)["nodes"] for error in node["errors"]], "the error to show")
    assert found[0]["error"].startswith("Model not found at: x" + 119 * "é" + "/é")


def test_a_model_that_fails_on_one_node_can_be_unregistered_on_it(nodes):
    a, b = nodes("a", own=True), nodes("b", own=True)
    put(model(), a.archives, "one.mar")
    assert a.register_url("one.mar").status == 200
    b.expect_log("event=cluster_model_failed", "model=counter")
    assert b.admin().delete("/models/counter").status == 200
    expect_converged(a, b)
    assert loaded(a) == []


def test_a_broken_archive_never_reaches_the_other_nodes(nodes, archives):
    (archives / "bad.mar").write_bytes(b"this is no archive")
    (archives / "folder").mkdir()
    a, b = nodes("a"), nodes("b")
    assert a.register_url("bad.mar").status == 400
    answer = a.register_url("folder")
    assert answer.status == 400 and "with cluster-models a model must be an archive" in answer.message
    assert cluster(b)["generation"] == 0


def test_while_the_store_is_away_models_stay_and_cannot_be_changed(nodes, store, archives):
    put(model(), archives, "one.mar")
    put(counter(name="other", state={"durability": "none"}), archives, "other.mar")
    a, b = nodes("a"), nodes("b")
    assert a.register_url("one.mar").status == 200
    expect_converged(a, b)
    store.pause()
    a.expect_log("event=cluster_store_away")
    for answer in (a.register_url("other.mar"), a.admin().delete("/models/counter"),
                   a.admin().put("/models/counter?min_worker=3")):
        assert (answer.status, answer.error) == (503, "store_unreachable"), answer
    assert "did not answer" in a.describe("counter")["cluster"]["storeError"]
    assert loaded(a) == loaded(b) == [("counter", "1.0")]
    assert a.describe("counter")["minWorkers"] == 1
    store.go_on()
    a.expect_log("event=cluster_store_back")
    assert a.register_url("other.mar").status in (200, 409)  # the paused store may have taken the first call
    expect_converged(a, b)
    assert ("other", "1.0") in loaded(b)


def test_a_node_that_starts_while_the_store_is_away_waits(nodes, store, archives):
    put(model(), archives, "one.mar")
    a = nodes("a", "--models", "counter=one.mar")
    a.stop()
    store.kill()
    a.lines.clear()
    a._ready.clear()
    a.launch()
    a.expect_log("event=cluster_store_away")
    assert not a._ready.is_set()
    store.start()
    expect(a._ready.is_set, "the node to start")
    assert loaded(a) == [("counter", "1.0")]


def test_a_store_that_lost_its_data_gets_the_set_back(nodes, store, archives):
    put(model(), archives, "one.mar")
    a, b = nodes("a"), nodes("b")
    assert a.register_url("one.mar").status == 200
    expect_converged(a, b)
    store.say("FLUSHALL")
    expect(lambda: cluster(a)["generation"] == 2, "the set to be written back")
    expect_converged(a, b)
    assert loaded(a) == loaded(b) == [("counter", "1.0")]


def test_sets_that_parted_at_a_failover_become_one(nodes, store, archives, folder):
    """The store comes back without the last change of node a. Node b, which never saw that change, makes two others, so
    the generation does not tell that one is missing."""
    for version in ("1.0", "2.0", "3.0"):
        put(model(version=version), archives, f"{version}.mar")
    a, b = nodes("a"), nodes("b")
    assert a.register_url("1.0.mar").status == 200
    expect_converged(a, b)
    shutil.copytree(store.folder, folder / "older")
    b.process.send_signal(signal.SIGSTOP)
    assert a.register_url("2.0.mar").status == 200
    a.process.send_signal(signal.SIGSTOP)
    store.kill()
    shutil.rmtree(store.folder)
    shutil.copytree(folder / "older", store.folder)
    store.start()
    b.process.send_signal(signal.SIGCONT)
    expect(lambda: cluster(b)["storeError"] is None and b.register_url("3.0.mar").status in (200, 409),
           "node b to register a version")
    assert b.admin().put("/models/counter?min_worker=2").status == 202
    assert loaded(b) == [("counter", "1.0"), ("counter", "3.0")]
    a.process.send_signal(signal.SIGCONT)
    a.expect_log("event=cluster_models_restored")
    expect_converged(a, b)
    assert sorted(loaded(a)) == sorted(loaded(b)) == [("counter", "1.0"), ("counter", "2.0"), ("counter", "3.0")]
    assert [node.describe("counter")["minWorkers"] for node in (a, b)] == [2, 2]


def test_a_damaged_set_is_refused_and_changes_nothing(nodes, store, archives):
    put(model(), archives, "one.mar")
    a = nodes("a")
    assert a.register_url("one.mar").status == 200
    store.say("HSET", "{test/models}", "token", "9-x", "text", '{"layout": 1, "models": [{"name": 3}]}')
    a.expect_log("event=cluster_store_away", "the set of models in the shared store is damaged")
    assert loaded(a) == [("counter", "1.0")]


def test_models_that_fail_slowly_leave_places_for_the_others(nodes, store, archives):
    """Eight archives lie on a web server that accepts connections and never answers. Each attempt takes longer than the
    pause after it, and four run at once."""
    put(model(), archives, "good.mar")
    digest = hashlib.sha256((archives / "good.mar").read_bytes()).hexdigest()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/bad.mar"
        models = [{"name": f"bad{i}", "version": "1.0", "url": url, "digest": "0" * 64, "id": f"{i}", "default": True}
                  for i in range(8)]
        models.append({"name": "counter", "version": "1.0", "url": "good.mar", "digest": digest, "id": "8",
                       "default": True})
        store.say("HSET", "{test/models}", "token", "9-x", "text", json.dumps({"layout": 1, "models": models}))
        a = nodes("a", "--download-timeout", "1500", "--allowed-urls", "http://127.0.0.1.*")
    assert loaded(a) == [("counter", "1.0")]
    wanted = [line.split("model=")[1].split()[0] for line in list(a.lines) if "event=cluster_model_wanted" in line]
    assert sorted(wanted[:9]) == sorted(each["name"] for each in models), "each is tried before one is tried again"


def test_an_unregistered_version_closes_its_live_sequences_on_all_nodes(nodes, archives):
    put(model(), archives, "one.mar")
    a, b = nodes("a"), nodes("b")
    assert a.register_url("one.mar").status == 200
    expect_converged(a, b)
    assert a.client().step("counter", "on-a", 1).text == "1"
    assert b.client().step("counter", "on-b", 1).text == "1"
    assert a.admin().delete("/models/counter").status == 200
    expect_converged(a, b)
    assert b.client().step("counter", "on-b", 1).status == 404
    assert a.register_url("one.mar").status == 200
    expect_converged(a, b)
    assert a.client().step("counter", "on-b", 5).text == "5"  # a new sequence; the old one would have 6
    assert b.client().step("counter", "on-a", 5).text == "5"


def test_a_version_that_is_registered_anew_is_loaded_anew(nodes, archives):
    """The other node may have slept over both calls; then it sees only their result."""
    put(model(), archives, "one.mar")
    put(model(batchSize=7), archives, "other.mar")
    a, b = nodes("a"), nodes("b")
    assert a.register_url("one.mar").status == 200
    expect_converged(a, b)
    b.process.send_signal(signal.SIGSTOP)
    assert a.admin().delete("/models/counter").status == 200
    assert a.register_url("other.mar").status == 200
    b.process.send_signal(signal.SIGCONT)
    expect_converged(a, b)
    assert b.describe("counter")["batchSize"] == 7


def test_a_swap_with_a_deadline_ends_on_all_nodes(nodes, archives):
    put(model(), archives, "one.mar")
    put(model(version="2.0"), archives, "two.mar")
    a, b = nodes("a", clock=True), nodes("b", clock=True)
    assert a.register_url("one.mar").status == 200
    assert a.register_url("two.mar").status == 200
    expect_converged(a, b)
    assert a.admin().put("/models/counter/2.0/set-default?swap_deadline=60").status == 200
    expect(lambda: b.describe("counter", "1.0").get("swap", {}).get("deadline"), "node b to know the deadline")
    for node in (a, b):
        node.clock.advance(61_000)
        node.expect_log("event=version_retired", "version=1.0")
    for node in (a, b):
        node.clock.advance(601_000)
    expect(lambda: loaded(a) == loaded(b) == [("counter", "2.0")], "the old version to go")


def test_archives_come_from_a_web_server(nodes, source):
    """The model store is a web server, and one model is registered by a whole URL. Each node downloads each archive."""
    put(model(), source.folder, "one.mar")
    put(model(name="other"), source.folder, "other.mar")
    flags = ["--model-store", f"{source.base}/models", "--allowed-urls", f"{source.base}/.*"]
    a, b = nodes("a", *flags, own=True), nodes("b", *flags, own=True)
    assert a.register_url("one.mar").status == 200
    assert b.register_url(f"{source.base}/elsewhere/other.mar").status == 200
    expect_converged(a, b)
    assert sorted(source.requests) == ["/elsewhere/other.mar"] * 2 + ["/models/one.mar"] * 2
    assert a.client().step("other", "s", 2).text == "2"
    assert b.client().step("counter", "s", 2).text == "2"


@pytest.mark.parametrize(("flags", "why"), [
    (["--state-store", "embedded"], "cluster-models needs a store that the nodes share"),
    (["--model-control-mode", "explicit"], "cluster-models needs model-control-mode none"),
])
def test_options_that_contradict_it_are_refused(nodes, flags, why):
    a = nodes("a", *flags, run=False).launch()
    assert a.exit_code() == 1
    assert any(why in line for line in a.lines)


def test_a_server_without_a_shared_store_loads_nothing_for_it(server):
    """Neither hiredis nor LMDB is in the server's process."""
    s = server(model())
    maps = (ROOT / "/proc" / str(s.process.pid) / "maps").read_text()
    assert "hiredis" not in maps and "lmdb" not in maps
    answer = s.admin().get("/cluster")
    assert answer.status == 400 and "without --cluster-models" in answer.message
