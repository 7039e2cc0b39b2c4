"""A model is unregistered while it is in use."""

import threading

from models import counter
from waiting import expect


def test_unregister_with_live_sequences_answers_everybody(server):
    """Steps in flight are answered or refused, and none hangs. Afterwards the model is unknown."""
    s = server(counter(minWorkers=2, maxWorkers=2))
    outcomes, lock = [], threading.Lock()
    running = threading.Barrier(17)

    def scenario(i):
        client, total = s.client(f"c{i}"), 0
        for step in range(10_000):
            answer = client.step("counter", f"u{i}", 1)
            if answer.status != 200:
                with lock:
                    outcomes.append(answer)
                client.close()
                return
            total += 1
            assert answer.text == str(total)
            if step == 5:
                running.wait()

    threads = [threading.Thread(target=scenario, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    running.wait()
    gone = s.admin().delete("/models/counter")
    assert (gone.status, gone.json) == (200, {"status": 'Model "counter" unregistered'})
    for thread in threads:
        thread.join()
    assert len(outcomes) == 16
    assert {answer.status for answer in outcomes} <= {404, 503}, outcomes
    assert s.client().step("counter", "u1", 1).error == "model_not_found"


def test_workers_of_an_unregistered_model_end(server):
    """No process and no entry in the list remains."""
    s = server(counter(minWorkers=2, maxWorkers=2), counter("other"))
    s.expect_ready("counter", 2)
    s.expect_ready("other", 1)
    before = set(s.session_members())
    assert s.admin().delete("/models/counter").status == 200
    expect(lambda: len(s.session_members()) == len(before) - 2, "two processes fewer")
    assert [m["modelName"] for m in s.admin().get("/models").json["models"]] == ["other"]


def test_a_model_registered_again_does_not_resume_old_sequences(server):
    """Unregistering closes the model's sequences, so that a new model of that name does not inherit their state."""
    s = server(counter())
    client = s.client()
    assert client.step("counter", "old", 41).text == "41"
    assert s.admin().delete("/models/counter").status == 200
    assert s.register(counter()).status == 200
    answer = client.step("counter", "old", 1)
    assert answer.status == 410 or answer.text == "1", answer
    assert client.step("counter", "new", 1).text == "1"


def test_unregistering_an_unknown_model_is_an_error(server):
    """The answer is 404 with TorchServe's message."""
    s = server(counter())
    answer = s.admin().delete("/models/nobody")
    assert (answer.status, answer.json["type"]) == (404, "ModelNotFoundException")
    assert answer.message == "Model not found: nobody"
    answer = s.admin().delete("/models/counter/7.0")
    assert (answer.status, answer.json["type"]) == (404, "ModelVersionNotFoundException")
