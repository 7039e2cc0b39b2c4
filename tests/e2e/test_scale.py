"""Workers come and go under load, and sequences are not affected."""

import json

import pytest

from models import counter
from waiting import expect, limit


def finish(bench):
    out, err = bench.communicate(timeout=limit(60))
    result = json.loads(out)
    assert bench.returncode == 0, f"{out} {err}"
    assert result["errors"] == 0 and result["mismatches"] == 0 and result["steps"] > 0
    return result


@pytest.mark.load
def test_scaling_up_and_down_under_load_fails_no_request(server):
    """32 verified sequences continue while the number of workers goes from 1 to 3 and back."""
    s = server(counter(maxWorkers=4, batchSize=8))
    bench = s.bench("--connections", 32, "--duration", 3, "--warmup", 0)
    for count in (3, 1, 2, 4, 1):
        answer = s.admin().put(f"/models/counter?min_worker={count}&max_worker={count}&synchronous=true")
        assert answer.status == 200, answer
        s.expect_ready("counter", count)
    finish(bench)


def test_a_sequence_moves_to_another_worker_when_its_own_is_retired(server):
    """Any worker can continue a sequence from the store."""
    s = server(counter(minWorkers=3, maxWorkers=3))
    client = s.client()
    for i in range(9):
        assert client.step("counter", f"s{i}", i).text == str(i)
    assert s.admin().put("/models/counter?min_worker=1&max_worker=1&synchronous=true").status == 200
    assert len(s.expect_ready("counter", 1)) == 1
    for i in range(9):
        assert client.step("counter", f"s{i}", 100).text == str(100 + i)


def test_without_workers_requests_are_refused_and_later_go_on(server):
    """An operator may scale to 0: requests are refused with a clear message, and no sequence is lost."""
    s = server(counter(maxWorkers=2))
    client = s.client()
    assert client.step("counter", "z", 4).text == "4"
    assert s.admin().put("/models/counter?min_worker=0&max_worker=0&synchronous=true").status == 200
    refused = client.step("counter", "z", 1)
    assert (refused.status, refused.error) == (503, "no_worker")
    assert 'Model "counter" has no worker to serve inference request' in refused.message
    assert s.admin().put("/models/counter?min_worker=1&max_worker=2&synchronous=true").status == 200
    assert client.step("counter", "z", 1).text == "5"


def test_asynchronous_scaling_answers_at_once(server):
    """The answer is 202, and the workers come soon."""
    s = server(counter(maxWorkers=2))
    answer = s.admin().put("/models/counter?min_worker=2&max_worker=2")
    assert (answer.status, answer.json) == (202, {"status": "Processing worker updates..."})
    s.expect_ready("counter", 2)


def test_impossible_numbers_are_refused(server):
    """The model stays as it was."""
    s = server(counter())
    answer = s.admin().put("/models/counter?min_worker=3&max_worker=2")
    assert answer.status == 400
    assert answer.message.startswith("max_worker cannot be less than min_worker")
    for query in ("min_worker=-1", "min_worker=many", "min_worker=99999999999"):
        assert s.admin().put(f"/models/counter?{query}").status == 400, query
    assert expect(lambda: s.ready_pids("counter"), "its worker") and len(s.workers("counter")) == 1
