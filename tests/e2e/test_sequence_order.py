"""Steps of a sequence run one by one and in order, whatever else happens."""

import threading

from models import counter


def in_threads(count, work):
    """Runs work(i) in `count` threads and raises the first failure."""
    failures = []

    def guarded(i):
        try:
            work(i)
        except BaseException as e:  # handed to the test's thread
            failures.append(e)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_64_concurrent_clients_each_see_their_own_running_sum(server):
    """The promise of a stateful server: no client gets the state of another, or its own steps out of order."""
    s = server(counter(batchSize=16, minWorkers=2, maxWorkers=2))

    def scenario(i):
        client, total = s.client(f"c{i}"), 0
        for step in range(30):
            number = 1 + (i * 7 + step) % 97
            total += number
            answer = client.step("counter", f"seq-{i}", number)
            assert (answer.status, answer.text) == (200, str(total)), f"client {i} step {step}: {answer}"
        client.close()

    in_threads(64, scenario)
    assert len(s.expect_ready("counter", 2)) == 2


def test_steps_from_many_connections_are_each_applied_once(server):
    """Two connections may share a sequence. Their steps mix in some order, but none is lost or doubled."""
    s = server(counter(batchSize=8, minWorkers=2, maxWorkers=2))
    seen, lock = [], threading.Lock()

    def scenario(i):
        client = s.client(f"c{i}")
        for _ in range(20):
            answer = client.step("counter", "shared", 1)
            assert answer.status == 200, answer
            with lock:
                seen.append(int(answer.text))
        client.close()

    in_threads(8, scenario)
    assert sorted(seen) == list(range(1, 161))


def test_steps_that_wait_run_in_the_order_of_their_arrival(server):
    """While the worker is busy, steps of one sequence queue up and keep their order."""
    s = server(counter())
    first = s.client()
    assert first.step("counter", "q", 1).text == "1"
    answers = {}

    def send(i, client):
        answers[i] = client.step("counter", "q", 10 ** i).text

    threads = []
    with s.hold():
        for i in range(1, 6):
            threads.append(threading.Thread(target=send, args=(i, s.client(f"c{i}"))))
            threads[-1].start()
            # The next one leaves only when this one has arrived.
            s.expect_outstanding("counter", i)
    for thread in threads:
        thread.join()
    assert answers == {1: "11", 2: "111", 3: "1111", 4: "11111", 5: "111111"}


def test_pipelined_steps_are_answered_in_order(server):
    """A client may send its next steps before it has read the last answer."""
    s = server(counter())
    raw = s.raw()
    request = ("POST /predictions/counter HTTP/1.1\r\nHost: test\r\nts_request_sequence_id: p\r\n"
               "Content-Length: 1\r\n\r\n")
    raw.send("".join(request + str(digit) for digit in range(1, 6)))
    assert [raw.answer().text for _ in range(5)] == ["1", "3", "6", "10", "15"]
    raw.close()


def test_the_same_id_at_two_models_is_two_sequences(server):
    """The model and the id together identify a sequence."""
    s = server(counter("left"), counter("right"))
    client = s.client()
    assert client.step("left", "same", 5).text == "5"
    assert client.step("right", "same", 7).text == "7"
    assert client.step("left", "same", 1).text == "6"
