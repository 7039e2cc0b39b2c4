"""The server ends and starts again, and sequences continue after their last answered step."""

import threading
from urllib.parse import quote

import pytest

from models import counter
from waiting import expect

pytestmark = pytest.mark.usefixtures("any_loops")

COUNT = 20


@pytest.fixture(params=["on", "off"])
def journal(request):
    """state.journal: runs the test with a journal and without one."""
    return request.param


def opened(server, journal="on", **more):
    s = server(counter(minWorkers=2, maxWorkers=2, batchSize=8, state={"journal": journal}), **more)
    client = s.client()
    for i in range(COUNT):
        assert client.step("counter", f"s{i}", i).text == str(i)
        assert client.step("counter", f"s{i}", 1).text == str(i + 1)
    return s


def goes_on(s):
    client = s.client()
    for i in range(COUNT):
        assert client.step("counter", f"s{i}", 10).text == str(i + 11)


def test_sequences_go_on_after_a_clean_restart(server, journal):
    """SIGTERM, start again, next step."""
    s = opened(server, journal)
    s.stop()
    s.restart()
    goes_on(s)


def test_the_longest_name_has_a_store_like_any_other(server):
    """A name may have 128 bytes. As a folder's name it may need three times as many, which is more than file systems
    allow."""
    name = "\u00e4" * 64
    model = counter()
    s = server(start=False)
    s.models = [f"{name}={s.pack(model).name}"]
    s.start()
    path = quote(name)
    assert s.client().step(path, "a", 5).text == "5"
    s.stop()
    s.restart()
    assert s.client().step(path, "a", 5).text == "10"


def test_sequences_go_on_after_kill_9_of_the_server(server, journal):
    """A crash of the server is only a pause, because answered steps were committed."""
    s = opened(server, journal)
    s.kill()
    s.restart()
    goes_on(s)


def test_workers_of_a_killed_server_end_by_themselves(server):
    """Nobody else would end these workers, and they hold the store."""
    s = opened(server)
    assert len(s.session_members()) == 3
    s.kill()
    expect(lambda: not s.session_members(), "the workers have ended")


def test_the_journal_can_be_switched_at_any_start(server):
    """What was written with a journal is there without one, and the other way round, also after kill -9. The model's
    key and the server's switch have the same effect. Without a journal nothing is written to its files."""
    s = server(counter(minWorkers=2, maxWorkers=2, batchSize=8, state={"journalMaxBytes": 65536}))
    total = 0
    for turn, (word, flags) in enumerate([("on", []), ("off", []), ("on", []), ("on", ["--tuning=-journal"]),
                                          ("on", []), ("off", ["--tuning=none"])]):
        if turn:
            (s.kill if turn % 2 else s.stop)()
            s.models = [counter(minWorkers=2, maxWorkers=2, batchSize=8,
                                state={"journalMaxBytes": 65536, "journal": word})]
            s.flags = flags
            s.restart()
        client = s.client()
        if turn:  # the workers have opened the store, and moved what was to be moved
            assert [client.step("counter", f"s{i}", 0).text for i in range(COUNT)] == [str(total)] * COUNT
        else:
            client.step("counter", "first", 1)
        stores = list(s.state_dir.glob("**/data.mdb"))
        assert len(stores) == 1, stores
        before = [(stores[0].parent / file).read_bytes() for file in ("journal.0", "journal.1")]
        for number in range(30):
            for i in range(COUNT):
                assert client.step("counter", f"s{i}", 1).text == str(total + number + 1)
        total += 30
        written = before != [(stores[0].parent / file).read_bytes() for file in ("journal.0", "journal.1")]
        assert written == (word == "on" and not flags), (turn, word, flags)


def test_no_answered_step_is_lost_when_the_server_is_killed_under_load(server, journal):
    """A step in flight may be done or not. An answered step is done exactly once."""
    s = server(counter(minWorkers=2, maxWorkers=2, batchSize=8, state={"journal": journal}))
    answered = [0] * 16
    warm = threading.Barrier(17)

    def scenario(i):
        client = s.client(f"c{i}")
        try:
            for step in range(1_000_000):
                answer = client.step("counter", f"k{i}", 1)
                assert answer.text == str(step + 1)
                answered[i] = step + 1
                if step == 10:
                    warm.wait()
        except (OSError, ConnectionError, Exception) as e:
            if isinstance(e, AssertionError):
                answered[i] = -1
        finally:
            client.close()

    threads = [threading.Thread(target=scenario, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    warm.wait()
    s.kill()
    for thread in threads:
        thread.join()
    s.restart()
    client = s.client()
    for i, steps in enumerate(answered):
        assert steps > 0
        total = int(client.step("counter", f"k{i}", 1).text)
        assert total in (steps + 1, steps + 2), f"sequence {i}: {steps} answered, then {total}"


def test_steps_in_flight_finish_before_a_clean_stop(server):
    """SIGTERM drains the server: an accepted step is answered, and a new one is refused."""
    s = server(counter())
    s.client().step("counter", "d", 1)
    raw = s.raw()
    hold = s.hold()
    raw.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: d\r\n"
             "Content-Length: 1\r\n\r\n5")
    s.expect_outstanding("counter", 1)
    s.process.terminate()
    s.expect_log("drain")
    hold.release()
    answer = raw.answer()
    assert (answer.status, answer.text) == (200, "6"), answer
    assert answer.headers["Connection"] == "close"
    raw.close()
    s.stop()


def test_idle_connections_do_not_delay_a_stop(server):
    """Connections without a request are closed."""
    s = server(counter())
    clients = [s.client(f"c{i}") for i in range(5)]
    for i, client in enumerate(clients):
        client.step("counter", f"i{i}", 1)
    silent = s.raw("silent")
    s.stop(timeout=5)
    assert silent.is_closed_by_server()
    silent.close()
