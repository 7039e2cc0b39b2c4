"""Models from http(s) URLs: where they may come from, how their progress is shown, and what is left after a failure."""

import threading

from models import counter
from waiting import expect


def trusting(server, source, *flags, **more):
    """Starts a server that may load from the source, which has a model that the server does not have."""
    s = server(flags=["--allowed-urls", f"{source.base}/.*", *flags], **more)
    s.pack(counter(), file_name="remote.mar").rename(source.folder / "remote.mar")
    return s


def refused(answer, source, path, why):
    assert (answer.status, answer.json["type"], answer.error) == (400, "DownloadArchiveException", "download_failed")
    assert answer.message.startswith(f"Failed to download archive from: {source.base}{path}: "), answer
    assert why in answer.message, answer
    return True


def left_in_store(s):
    return sorted(path.name for path in s.store.iterdir())


def test_a_model_comes_from_a_url_and_its_file_goes_with_it(server, source):
    """The archive lies in the model store as long as the model is registered."""
    s = trusting(server, source)
    url = f"{source.base}/models/remote.mar?signature=abc"
    answer = s.register_url(url.replace("?", "%3F").replace("=", "%3D"))
    assert answer.json == {"status": 'Model "counter" Version: 1.0 registered with 1 initial workers'}
    assert source.requests == ["/models/remote.mar?signature=abc"]
    assert s.client().step("counter", "a", 2).text == "2"
    assert s.describe("counter")["modelUrl"] == url
    assert left_in_store(s) == ["remote.mar"]
    answer = s.register_url(f"{source.base}/remote.mar", model_name="other")
    assert (answer.status, answer.json["type"], answer.message) == (
        500, "InternalServerException", "Model file already exists remote.mar")
    assert s.admin().delete("/models/counter").status == 200
    assert left_in_store(s) == []
    assert s.register_url(f"{source.base}/unsized/remote.mar", synchronous="false").status == 202


def test_a_version_that_goes_at_its_deadline_takes_its_archive_with_it(server, source):
    """The archive goes, as if a call had unregistered the version."""
    s = trusting(server, source, clock=True)
    assert s.register_url(f"{source.base}/remote.mar").status == 200
    assert s.register(counter(version="2.0")).status == 200
    assert s.admin().put("/models/counter/2.0/set-default?swap_deadline=60").status == 200
    s.clock.advance(61_000)
    s.expect_log("event=version_retired", "version=1.0")
    assert "remote.mar" in left_in_store(s)
    s.clock.advance(601_000)
    s.expect_log("event=model_closed", "version=1.0")
    assert "remote.mar" not in left_in_store(s)


def test_a_stop_keeps_the_downloaded_archive(server, source):
    """The next server finds the archive."""
    s = trusting(server, source)
    assert s.register_url(f"{source.base}/remote.mar").status == 200
    s.stop()
    assert left_in_store(s) == ["remote.mar"]
    s.models = ["remote.mar"]
    s.restart()
    assert s.client().step("counter", "a", 2).text == "2"


def test_models_of_the_command_line_may_be_urls(server, source):
    """--models NAME=URL."""
    s = trusting(server, source, start=False)
    s.models = [f"mine={source.base}/remote.mar"]
    s.start()
    assert s.client().step("mine", "a", 2).text == "2"


def test_what_cannot_be_downloaded_is_said_and_leaves_nothing(server, source):
    """Wrong statuses, sizes and names, and a source that is silent. The message has TorchServe's type and first words,
    then the reason."""
    s = trusting(server, source, "--max-download-size", "2000", "--download-timeout", "1500")
    (source.folder / "bad.mar").write_bytes(b"this is no archive")
    (source.folder / "large.mar").write_bytes(bytes(2001))
    (source.folder / "drop.mar").write_bytes(bytes(1500))
    for path, why in (("/none.mar", "the server answered with status 404"),
                      ("/large.mar", "it is larger than 2000 bytes (max-download-size)"),
                      ("/unsized/large.mar", "it is larger than 2000 bytes (max-download-size)"),
                      ("/models/", "its path must end in the name of an archive"),
                      ("/passwd", "its path must end in the name of an archive"),
                      ("/.mar", "its path must end in the name of an archive"),
                      ("/a%252Fb.mar", "its path must end in the name of an archive"),
                      ("/slow/drop.mar", "imed out")):
        assert refused(s.register_url(source.base + path), source, path.replace("%25", "%"), why)
        assert left_in_store(s) == [], path
    answer = s.register_url(f"{source.base}/bad.mar")
    assert (answer.status, answer.error) == (400, "invalid_model"), answer
    assert left_in_store(s) == []
    # and what was registered is not disturbed by a second one of its name
    assert s.register_url(f"{source.base}/remote.mar").status == 200
    (source.folder / "again.mar").write_bytes((source.folder / "remote.mar").read_bytes())
    assert s.register_url(f"{source.base}/again.mar").status == 409
    assert left_in_store(s) == ["remote.mar"]
    assert s.client().step("counter", "a", 2).text == "2"


def test_only_allowed_urls_are_asked(server, source):
    """allowed-urls is a list of patterns for whole URLs, including file://. The server does not even connect to others.
    """
    s = trusting(server, source)
    for url in ("http://localhost:1/remote.mar", f"{source.base}@evil/remote.mar", "file:///etc/remote.mar",
                "https://127.0.0.1/remote.mar"):
        answer = s.register_url(url)
        assert (answer.status, answer.json["type"], answer.message) == (
            404, "ModelNotFoundException", f"Given URL {url} does not match any allowed URL(s)")
    assert source.requests == []
    answer = s.register_url("s3://bucket/remote.mar")
    assert answer.status == 404 and "register a signed https URL" in answer.message
    answer = s.register_url(f"{source.base}/../remote.mar")
    assert answer.message == f"Relative path is not allowed in url: {source.base}/../remote.mar"


def test_private_addresses_and_redirects_need_a_rule(server, source):
    """Without allowed-urls no registration reaches a service of this machine, in whichever spelling of the address."""
    s = server()
    for host in ("127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", "169.254.169.254"):
        answer = s.register_url(f"http://{host}:{source.server_port}/remote.mar")
        assert answer.status == 400 and "it leads to a private address" in answer.message, answer
    assert source.requests == []


def test_redirects_go_only_where_urls_may(server, source):
    """Each target is checked against the rules, and a circle of redirects ends."""
    s = trusting(server, source)
    source.redirects = {"/moved.mar": "/remote.mar", "/out.mar": "http://localhost:1/remote.mar",
                        "/file.mar": "file:///etc/passwd", "/circle.mar": "/circle.mar"}
    assert refused(s.register_url(f"{source.base}/out.mar"), source, "/out.mar", "does not match any allowed URL(s)")
    assert refused(s.register_url(f"{source.base}/file.mar"), source, "/file.mar", "does not match any allowed URL(s)")
    assert refused(s.register_url(f"{source.base}/circle.mar"), source, "/circle.mar", "it redirects too often")
    assert s.register_url(f"{source.base}/moved.mar").status == 200
    assert left_in_store(s) == ["moved.mar"]


def test_progress_shows_while_a_model_is_downloaded(server, source):
    """The description shows the progress. Other models can be registered and used meanwhile, and a slow source delays
    no other download."""
    s = trusting(server, source)
    size = (source.folder / "remote.mar").stat().st_size
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(
        s.register_url(f"{source.base}/slow/remote.mar", model_name="big")))
    waiting.start()

    def progress():
        answer = s.admin().get("/models/big")
        return answer.json[0].get("download") if answer.status == 200 else None
    expect(lambda: progress() == {"bytes": 100, "totalBytes": size}, "the first 100 bytes to show")
    model = s.admin().get("/models/big").json[0]
    assert (model["modelName"], model["modelUrl"], model["workers"]) == (
        "big", f"{source.base}/slow/remote.mar", [])
    assert s.client().step("big", "a", 1).status == 404
    (source.folder / "second.mar").write_bytes((source.folder / "remote.mar").read_bytes())
    assert s.register_url(f"{source.base}/second.mar").status == 200
    assert s.client().step("counter", "a", 3).text == "3"
    assert not answers
    source.go_on.set()
    waiting.join(30)
    assert answers[0].status == 200
    assert s.client().step("big", "a", 1).text == "1"


def test_a_stopping_server_gives_up_a_download(server, source):
    """SIGTERM does not wait for a slow source, and no partial file is left."""
    s = trusting(server, source)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(
        s.register_url(f"{source.base}/slow/remote.mar", model_name="big")))
    waiting.start()
    expect(lambda: s.admin().get("/models/big").status == 200, "the download to begin")
    s.stop(timeout=15)
    waiting.join(10)
    assert (answers[0].status, answers[0].error) == (503, "draining")
    assert left_in_store(s) == []


def test_a_bad_pattern_stops_the_start(server):
    """A server with a rule that has no effect would be worse than one that does not start."""
    s = server(flags=["--allowed-urls", "http://(a"], start=False).launch()
    assert s.exit_code() == 1
    assert any('"http://(a" is not a valid regular expression' in line for line in s.lines)
