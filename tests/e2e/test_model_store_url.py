"""A model store that is a web server: --model-store http(s)://... (docs/operating.md)."""

import dataclasses
import hashlib
import json
import os
import shutil
import threading

import pytest

from models import counter
from waiting import expect

@pytest.fixture
def origin(server, source):
    """Gives the function that packs a model into the web server's folder. Returns the archive's path."""
    packer = server(start=False, name="packer")  # only its folders are used

    def put(model, name):
        made = packer.pack(model, file_name=name)
        target = source.folder / name
        shutil.move(made, target)
        return target

    return put


def node(server, source, *flags, start=True, **more):
    return server(flags=["--model-store", f"{source.base}/models", *flags], start=start, **more)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cached(s):
    cache = s.state_dir / "model-cache"
    return sorted(str(path.relative_to(cache)) for path in cache.glob("*/*"))


def test_a_name_is_fetched_from_the_store_and_kept_by_its_digest(server, source, origin):
    """A private address needs no rule, because the operator named it. The file of the cache outlives the model."""
    archive = origin(counter(), "counter 1.mar")
    s = node(server, source)
    answer = s.register_url("counter%201.mar")
    assert answer.json == {"status": 'Model "counter" Version: 1.0 registered with 1 initial workers'}
    assert source.requests == ["/models/counter%201.mar"]
    assert s.client().step("counter", "a", 2).text == "2"
    assert s.describe("counter")["modelUrl"] == "counter 1.mar"
    assert cached(s) == [f"{digest(archive)}/counter 1.mar"]
    assert s.admin().delete("/models/counter").status == 200
    assert cached(s) == [f"{digest(archive)}/counter 1.mar"]


@pytest.mark.parametrize("stamps", ["etag", "date"])
def test_an_archive_is_sent_again_only_if_it_has_changed(server, source, origin, stamps):
    source.stamps = stamps
    first = digest(origin(counter(), "counter.mar"))
    s = node(server, source, "--models", "counter=counter.mar")
    s.stop()
    s.restart()
    assert source.answers == [200, 304]
    assert s.client().step("counter", "a", 2).text == "2"
    s.stop()
    path = origin(counter(version="2.0"), "counter.mar")
    os.utime(path, (1, 1))  # another date, also within the same second
    s.restart()
    assert source.answers == [200, 304, 200]
    assert s.describe("counter")["modelVersion"] == "2.0"
    assert cached(s) == sorted([f"{first}/counter.mar", f"{digest(path)}/counter.mar"])


def test_a_digest_file_stands_in_for_stamps(server, source, origin):
    """A plain web server without ETag and Last-Modified: the file NAME.sha256 says whether the archive has changed."""
    archive = origin(counter(), "counter.mar")
    note = source.folder / "counter.mar.sha256"
    note.write_text(f"{digest(archive)}  counter.mar\n")
    s = node(server, source, "--models", "counter=counter.mar")
    s.stop()
    s.restart()
    assert source.requests == ["/models/counter.mar", "/models/counter.mar.sha256"]
    s.stop()
    note.write_text(digest(origin(counter(version="2.0"), "counter.mar")))
    s.restart()
    assert source.requests[2:] == ["/models/counter.mar.sha256", "/models/counter.mar"]
    assert s.describe("counter")["modelVersion"] == "2.0"


@pytest.mark.parametrize("how", ["closed", "broken"])
def test_a_model_loads_from_the_cache_while_its_web_server_is_away(server, source, origin, how):
    origin(counter(), "counter.mar")
    s = node(server, source, "--models", "counter=counter.mar")
    assert s.client().step("counter", "a", 2).text == "2"
    s.stop()
    if how == "closed":
        source.shutdown()
        source.server_close()
    else:
        source.broken = True
    s.restart()
    s.expect_log("event=model_cache_offline", "counter.mar", "the cached archive is used")
    assert s.client().step("counter", "a", 3).text == "5"
    answer = s.register_url("other.mar")
    assert (answer.status, answer.error) == (400, "download_failed")


def test_an_archive_that_its_web_server_no_longer_has_is_refused(server, source, origin):
    """404 is an answer: the operator took the archive away, so the cache does not bring it back."""
    path = origin(counter(), "counter.mar")
    s = node(server, source)
    assert s.register_url("counter.mar").status == 200
    assert s.admin().delete("/models/counter").status == 200
    path.unlink()
    answer = s.register_url("counter.mar")
    assert (answer.status, answer.error) == (400, "download_failed")
    assert "the server answered with status 404" in answer.message


def test_a_damaged_file_of_the_cache_is_downloaded_again(server, source, origin):
    source.stamps = "etag"
    archive = origin(counter(), "counter.mar")
    s = node(server, source)
    assert s.register_url("counter.mar").status == 200
    assert s.admin().delete("/models/counter").status == 200
    kept = s.state_dir / "model-cache" / digest(archive) / "counter.mar"
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    kept.write_bytes(data)
    assert s.register_url("counter.mar").status == 200
    s.expect_log("event=model_cache_damaged")
    assert source.answers == [200, 200]
    assert kept.read_bytes() == archive.read_bytes()


def test_the_cache_is_bounded_and_the_least_recently_used_archive_goes(server, source, origin):
    names = ["a.mar", "b.mar", "c.mar"]
    archives = [origin(dataclasses.replace(counter(name=name[0]), extra={"filler.bin": os.urandom(4000)}), name)
                for name in names]
    size = max(path.stat().st_size for path in archives)
    s = node(server, source, "--model-cache-size", max(1024, 2 * size + 10))
    for name in names:
        assert s.register_url(name).status == 200
    assert cached(s) == sorted(f"{digest(path)}/{path.name}" for path in archives[1:])
    s.expect_log("event=model_cache_evicted", digest(archives[0]))
    (source.folder / "large.mar").write_bytes(b"x" * (2 * size + 11))
    answer = s.register_url("large.mar")
    assert (answer.status, answer.error) == (400, "download_failed")
    assert f"it is larger than {2 * size + 10} bytes" in answer.message


@pytest.mark.parametrize("digests", [False, True])
def test_all_models_of_the_index_are_loaded(server, source, origin, digests):
    paths = [origin(counter(name=name), f"{name}.mar") for name in ("one", "two")]
    models = [{"file": path.name, "sha256": digest(path)} if digests else path.name for path in paths]
    (source.folder / "index.json").write_text(json.dumps({"models": models}))
    s = node(server, source, "--models", "all")
    assert s.client().step("one", "a", 1).text == "1"
    assert s.client().step("two", "a", 2).text == "2"
    s.stop()
    source.shutdown()
    source.server_close()
    s.restart()
    assert s.client().step("two", "a", 2).text == "4"


@pytest.mark.parametrize(("index", "why"), [
    (None, "the server answered with status 404"),
    ("[1", "it is not JSON: line 1"),
    ('{"models": 3}', 'it must be an object with the array \\"models\\"'),
    ('{"models": ["../x.mar"]}', 'entry 1 names \\"../x.mar\\", which is not a path below the index'),
    ('{"models": ["x.mar", "y.txt"]}', 'entry 2 names \\"y.txt\\", which is not the name of an archive'),
    ('{"models": [{"file": "x.mar", "sha256": "12"}]}', "a sha256 that is not 64 hexadecimal digits"),
])
def test_all_models_need_an_index(server, source, index, why):
    if index is not None:
        (source.folder / "index.json").write_text(index)
    s = node(server, source, "--models", "all", start=False).launch()
    assert s.exit_code() == 1
    line = next(line for line in s.lines if "event=model_failed" in line)
    assert f"--models all: the list of the archives in {source.base}/models/index.json" in line
    assert why in line, line


def test_an_archive_with_another_digest_than_the_index_says_is_refused(server, source, origin):
    origin(counter(), "counter.mar")
    (source.folder / "index.json").write_text(json.dumps({"models": [{"file": "counter.mar", "sha256": "0" * 64}]}))
    s = node(server, source, "--models", "all", start=False).launch()
    assert s.exit_code() == 1
    assert any("is wanted; the web server has another archive under this name" in line for line in s.lines)


def test_the_store_s_url_opens_no_other_door(server, source, origin):
    """Only what lies below the store's URL is trusted; names cannot leave it, and redirects stay in it."""
    origin(counter(), "counter.mar")
    source.redirects = {"/models/moved.mar": f"{source.base}/models/counter.mar",
                        "/models/out.mar": f"{source.base}/elsewhere/counter.mar"}
    s = node(server, source)
    answer = s.register_url("..%2Fcounter.mar")
    assert (answer.status, answer.error) == (404, "model_not_found")
    answer = s.register_url(f"{source.base}/counter.mar")
    assert answer.status == 400 and "it leads to a private address" in answer.message, answer
    answer = s.register_url("out.mar")
    assert answer.status == 400 and "does not match any allowed URL(s)" in answer.message, answer
    assert s.register_url("moved.mar").status == 200
    assert "/elsewhere/counter.mar" not in source.requests


def test_a_model_of_this_machine_can_still_be_named_by_its_path(server, source, origin):
    path = origin(counter(), "counter.mar")
    s = node(server, source, "--allow-local-models")
    assert s.register_url(str(path)).status == 200
    assert source.requests == []


def test_a_repository_needs_a_folder(server, source):
    s = node(server, source, "--model-control-mode", "explicit", start=False).launch()
    assert s.exit_code() == 1
    assert any("model-control-mode must be none if the model store is a URL" in line for line in s.lines)


def test_a_download_shows_its_progress_and_ends_with_the_server(server, source, origin):
    origin(counter(), "counter.mar")
    s = server(flags=["--model-store", f"{source.base}/slow"])
    client = s.admin()
    waiting = threading.Thread(target=lambda: s.register_url("counter.mar"))
    waiting.start()

    def progress():
        answer = client.get("/models/counter")
        return answer.json[0]["download"]["bytes"] if answer.status == 200 else None
    expect(lambda: progress() == 100, "the first 100 bytes to show")
    s.stop(timeout=15)
    waiting.join(10)
    assert cached(s) == []
