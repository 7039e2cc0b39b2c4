"""--redirect-sequences: a v2 step that names its sequence in the body alone is sent to the node that has it warm, with
307 and the node's address. Real clients follow it."""

import contextlib
import json
import shutil
import subprocess

import pytest
import requests

from models import BIN, counter
from shared_store import shared_store_in
from test_v2_http import accumulator
from waiting import expect, limit

PATH = "/v2/models/accumulator/infer"
SEQUENCES = [f"s{i}" for i in range(16)]


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


def node(server, store, name, *flags):
    return server(counter(), accumulator(), name=name,
                  flags=["--state-store", store.url, "--redirect-sequences", "--node-name", name, *flags])


def body(sequence, start=False, value=1):
    return json.dumps({"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [value]}],
                       "parameters": {"sequence_id": sequence, "sequence_start": start}})


def total(answer):
    return answer["outputs"][0]["data"][0]


def steps(s):
    return int(s.metric("continuo_jobs_total"))


@pytest.fixture
def nodes(server, store):
    """Two nodes that know each other."""
    both = [node(server, store, name) for name in "ab"]
    for each in both:
        def knows_the_other(each=each):
            with contextlib.closing(each.client()) as client:
                return 307 in [client.post(PATH, body(sequence)).status for sequence in SEQUENCES]
        expect(knows_the_other, f"{each.name} knows the other node", 40)
    return both


def test_real_clients_follow_to_the_node_that_has_the_sequence(nodes):
    """Whichever node is asked, all steps of a sequence run on one node, and both nodes get sequences."""
    a, b = nodes
    before = [steps(each) for each in nodes]
    session = requests.Session()
    for sequence in SEQUENCES:
        homes = set()
        for step, asked in enumerate([a, b, a, b], 1):
            answer = session.post(asked.inference + PATH, data=body(sequence, step == 1), timeout=limit(30))
            assert answer.status_code == 200, answer.text
            assert total(answer.json()) == step
            homes.add(answer.url.partition("/v2/")[0])
        assert len(homes) == 1, "one node has the sequence"
    after = [steps(each) for each in nodes]
    done = [now - was for was, now in zip(before, after, strict=True)]
    assert min(done) >= 4 and all(each % 4 == 0 for each in done) and sum(done) == 4 * len(SEQUENCES), done
    if curl := shutil.which("curl"):
        for asked in nodes:
            said = subprocess.run([curl, "-sSL", asked.inference + PATH, "-d", body("s0")], capture_output=True,
                                  text=True, timeout=limit(30), check=True)
            assert "outputs" in said.stdout, said


def test_a_redirection_names_the_node_and_changes_nothing(nodes):
    """It says where to go, and a request that was redirected is served in any case: there are no circles."""
    a, b = nodes
    client = a.client()
    away = next(sequence for sequence in SEQUENCES if client.post(PATH, body(sequence, True)).status == 307)
    before = steps(a), steps(b)
    answer = client.post(PATH, body(away, True))
    assert answer.headers["Location"] == b.inference + PATH + "?continuo-redirected=true"
    assert "another node" in answer.json["error"]
    assert (steps(a), steps(b)) == before, "neither node has done anything"
    forced = client.post(PATH + "?continuo-redirected=true", body(away, True))
    assert forced.status == 200 and total(forced.json) == 1
    follow = b.client().post(PATH, body(away))
    assert follow.status == 200 and total(follow.json) == 2, "the store has the state for every node"


def test_what_a_proxy_has_routed_is_served_where_it_arrives(nodes):
    """A header names the sequence, or the model has no sequences: no redirection."""
    for each in nodes:
        client = each.client()
        for sequence in SEQUENCES:
            named = client.post(PATH, body(sequence, True), headers={"continuo-sequence-id": sequence})
            assert named.status == 200, named
            assert client.step("counter", sequence, 0).status == 200


def test_a_node_that_leaves_gets_no_more_redirections(server, store):
    a = node(server, store, "a", "--node-ttl", 1000)
    b = node(server, store, "b", "--node-ttl", 1000)
    client = a.client()

    def statuses():
        return {client.post(PATH, body(sequence, True)).status for sequence in SEQUENCES}

    expect(lambda: statuses() == {200, 307}, "a sends some sequences to b", 40)
    b.stop()
    expect(lambda: statuses() == {200}, "a serves all sequences again", 40)


def test_redirections_need_a_shared_store(server, folder):
    done = subprocess.run([BIN / "continuo", "--redirect-sequences", "--state-dir", folder / "x", "--model-store", folder,
                           "--inference-address", "http://127.0.0.1:0"], capture_output=True, text=True,
                          timeout=limit(30), check=False)
    assert done.returncode == 1 and "--redirect-sequences needs a store" in done.stderr, done
