"""Signed archives: --trusted-keys, continuo-archiver keygen, sign and verify (docs/operating.md)."""

import shutil
import subprocess

import pytest
import requests

from models import BIN, archiver, counter
from waiting import expect, limit


@pytest.fixture
def keys(folder):
    """Makes a pair of keys without a password; returns the secret and the public file."""
    def make(name):
        secret, public = folder / f"{name}.key", folder / f"{name}.pub"
        archiver("keygen", "--secret-key", secret, "--public-key", public, "--no-password")
        return secret, public
    return make


@pytest.fixture
def signing(server, keys):
    """A server that demands signatures of the key "ours", and a function that signs with any key."""
    secret, public = keys("ours")

    def start(*flags, run=True, **more):
        s = server(flags=["--trusted-keys", public, *flags], start=run, **more)
        s.secret, s.public = secret, public
        s.sign = lambda path, key=secret: archiver("sign", "--secret-key", key, path)
        return s
    return start


def refused(answer, why):
    assert (answer.status, answer.json["type"], answer.error) == (403, "ForbiddenException", "untrusted_archive"), answer
    assert why in answer.message, answer
    return True


def test_only_an_archive_that_a_trusted_key_signed_is_served(signing, keys):
    """The archive must have a signature, of a trusted key, that fits its bytes; then it is served."""
    s = signing()
    other = s.pack(counter(version="2.0"), file_name="other.mar")
    archive = s.pack(counter(), "counter.mar")
    refused(s.register_url("counter.mar"), "counter.mar.minisig is missing")
    stranger, _ = keys("stranger")
    s.sign(archive, stranger)
    refused(s.register_url("counter.mar"), "which is not among the trusted keys")
    s.sign(archive)
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused(s.register_url("counter.mar"), "was altered")
    archive.write_bytes(b"this is no archive at all")  # it is refused before anything in it is read
    refused(s.register_url("counter.mar"), "was altered")
    archive.write_bytes(whole)
    signature = archive.with_name("counter.mar.minisig")
    shutil.copy(signature, other.with_name("other.mar.minisig"))
    refused(s.register_url("other.mar"), "belongs to another archive")
    signature.write_bytes(b"untrusted comment: x\nRUQ=\n")
    refused(s.register_url("counter.mar"), "is not a signature of minisign")
    signature.write_bytes(b"x" * 20000)
    refused(s.register_url("counter.mar"), "larger than 16384 bytes")
    s.sign(archive)
    assert s.register_url("counter.mar").status == 200
    s.expect_log("event=archive_signature_verified", "file:counter.mar")
    assert s.client().step("counter", "a", 2).text == "2"


def test_folders_and_other_ways_are_refused_too(signing):
    """A folder has no signature, so a server with trusted keys serves none, wherever it lies."""
    s = signing("--model-control-mode", "explicit", "--allow-local-models")
    made = s.pack(counter(), "counter.mar")
    folder = s.store / "bare"
    folder.mkdir()
    (folder / "handler.lua").write_text("return {}")
    refused(s.register_url("bare"), "is a folder")
    refused(s.register_url(str(folder)), "is a folder")
    outside = s.folder / "outside.mar"
    shutil.copy(made, outside)
    refused(s.register_url(str(outside)), "outside.mar.minisig is missing")
    answer = requests.post(f"{s.inference}/v2/repository/models/counter/load", timeout=limit(20))
    assert answer.status_code >= 400 and "counter.mar.minisig is missing" in answer.text
    s.sign(made)
    answer = requests.post(f"{s.inference}/v2/repository/models/counter/load", timeout=limit(20))
    assert answer.status_code == 200, answer.text


def test_a_start_and_a_restart_verify_again(signing):
    """A model of the start is verified; so is one that an earlier start unpacked without trusted keys."""
    s = signing(run=False)
    archive = s.pack(counter(), "counter.mar")
    flags, s.flags = s.flags, [flag for flag in s.flags if flag not in ("--trusted-keys", s.public)]
    s.models = ["counter=counter.mar"]
    s.start()
    assert s.client().step("counter", "a", 2).text == "2"
    s.stop()
    s.flags = flags
    s.launch()
    assert s.exit_code() != 0
    s.expect_log("counter.mar.minisig is missing")
    s.sign(archive)
    s.restart()
    assert s.client().step("counter", "a", 3).text == "5"


def test_a_withdrawn_key_needs_no_restart(signing, keys):
    """The file of trusted keys is read for each archive."""
    s = signing()
    s.sign(s.pack(counter(), "counter.mar"))
    _, other = keys("other")
    ours = s.public.read_text()
    s.public.write_text(f"# ours is withdrawn\n{other.read_text()}")
    refused(s.register_url("counter.mar"), "which is not among the trusted keys")
    s.public.write_text("nonsense\n")
    answer = s.register_url("counter.mar")
    assert (answer.status, answer.error) == (400, "config") and "line 1" in answer.message
    s.public.write_text(f"{other.read_text()}\n{ours}")
    assert s.register_url("counter.mar").status == 200


@pytest.mark.parametrize("text, why", [("", "has no public key"), ("nonsense", "line 1"), (None, "cannot read")])
def test_bad_trusted_keys_stop_the_start(server, folder, text, why):
    """A server with a wrong file must not come up and serve anything."""
    path = folder / "keys"
    if text is not None:
        path.write_text(text)
    s = server(flags=["--trusted-keys", path], start=False)
    s.launch()
    assert s.exit_code() != 0
    s.expect_log("trusted-keys", why)


def test_a_downloaded_archive_brings_its_signature(signing, source):
    """The signature is fetched from the archive's URL with .minisig behind its path, and goes with the archive."""
    s = signing("--allowed-urls", f"{source.base}/.*")
    archive = s.pack(counter(), file_name="remote.mar").rename(source.folder / "remote.mar")
    answer = s.register_url(f"{source.base}/remote.mar%3Fv%3D1")
    refused(answer, "remote.mar.minisig?v=1: the server answered with status 404")
    assert source.requests == ["/remote.mar?v=1", "/remote.mar.minisig?v=1"]
    assert list(s.store.iterdir()) == []
    s.sign(archive)
    archive.write_bytes(archive.read_bytes() + b"x")
    refused(s.register_url(f"{source.base}/remote.mar"), "was altered")
    assert list(s.store.iterdir()) == []
    s.sign(archive)
    assert s.register_url(f"{source.base}/remote.mar").status == 200
    assert sorted(path.name for path in s.store.iterdir()) == ["remote.mar", "remote.mar.minisig"]
    assert s.admin().delete("/models/counter").status == 200
    assert list(s.store.iterdir()) == []


def test_the_model_cache_keeps_signatures(signing, source):
    """An archive of a web server that is away is served if its signature is in the cache as well."""
    s = signing("--model-store", f"{source.base}/models")
    packed = s.pack(counter(), file_name="counter.mar")
    archive = packed.rename(source.folder / "counter.mar")
    refused(s.register_url("counter.mar"), "status 404")
    s.sign(archive)
    assert s.register_url("counter.mar").status == 200
    s.admin().delete("/models/counter")
    source.broken = True
    assert s.register_url("counter.mar").status == 200
    assert s.client().step("counter", "a", 2).text == "2"


def test_a_polled_archive_is_tried_again_when_its_signature_comes(signing):
    """An archive is often copied before its signature."""
    s = signing("--model-control-mode", "poll", "--repository-poll", "50")
    archive = s.pack(counter(), "counter.mar")
    s.expect_log("counter.mar.minisig is missing")
    s.sign(archive)
    expect(lambda: s.admin().get("/models/counter").status == 200, "the model to be loaded")


def test_the_triton_repository_and_trusted_keys_exclude_each_other(signing, folder):
    (folder / "repository").mkdir()
    s = signing("--model-repository", folder / "repository", run=False)
    s.launch()
    assert s.exit_code() != 0
    s.expect_log("trusted-keys demands signed archives")


def test_verify_takes_trusted_keys(keys, server):
    """An operator sees before the roll-out what a server would say."""
    s = server(start=False)
    archive = s.pack(counter(), "counter.mar")
    secret, public = keys("ours")
    bad = archiver("verify", "--trusted-keys", public, archive, check=False)
    assert bad.returncode == 1 and "counter.mar.minisig is missing" in bad.stderr
    archiver("sign", "--secret-key", secret, "--comment", "release 7", archive)
    good = archiver("verify", "--trusted-keys", public, archive)
    assert "signed by a trusted key" in good.stdout
    assert "trusted comment: release 7\n" in archive.with_name("counter.mar.minisig").read_text()


def test_keys_are_private_and_never_overwritten(keys, folder):
    secret, public = keys("ours")
    assert secret.stat().st_mode & 0o777 == 0o600
    before = secret.read_text()
    again = archiver("keygen", "--secret-key", secret, "--public-key", public, "--no-password", check=False)
    assert again.returncode == 1 and "File exists" in again.stderr and secret.read_text() == before
    other = archiver("keygen", "--secret-key", folder / "new.key", "--public-key", public, "--no-password", check=False)
    assert other.returncode == 1 and not (folder / "new.key").exists()


def test_wrong_command_lines_get_usage(folder):
    for args in (["keygen"], ["keygen", "--secret-key", "a"], ["sign", "x"], ["sign", "--secret-key", "a"],
                 ["sign", "--secret-key", "a", "--comment", "two\nlines", "x"],
                 ["sign", "--secret-key", "a", "--comment", "\x1b[31mred", "x"], ["verify", "--trusted-keys", "a"]):
        run = archiver(*args, check=False, cwd=folder)
        assert run.returncode == 2 and "usage:" in run.stderr, args
    missing = archiver("sign", "--secret-key", "missing", "x", check=False, cwd=folder)
    assert missing.returncode == 1 and "cannot read missing" in missing.stderr


def test_no_signature_is_written_that_nobody_takes(keys, folder):
    """The archive's name goes into the trusted comment, which is one line."""
    secret, _ = keys("ours")
    odd = folder / "two\nlines.mar"
    odd.write_bytes(b"archive")
    run = archiver("sign", "--secret-key", secret, odd, check=False)
    assert run.returncode == 1 and "control characters" in run.stderr
    assert not list(folder.glob("*.minisig"))


@pytest.mark.parametrize(("password", "good"), [("x" * 1100 + "\n", False), ("\n", False), ("secret", True)],
                         ids=["long", "none", "no line end"])
def test_a_password_from_a_script_is_whole(folder, password, good):
    """A part of it would open the key with no other program. `printf secret` writes no line end."""
    args = [BIN / "continuo-archiver", "keygen", "--secret-key", folder / "a.key", "--public-key", folder / "a.pub"]
    run = subprocess.run(args, input=password, capture_output=True, text=True, timeout=limit(60), check=False)
    assert run.returncode == (0 if good else 1) and ("1022 bytes" in run.stderr) != good, run
    assert (folder / "a.key").exists() == good


def minisign(*args, stdin=""):
    return subprocess.run(["minisign", *map(str, args)], input=stdin, capture_output=True, text=True,
                          timeout=limit(60), check=False)


@pytest.mark.skipif(not shutil.which("minisign"), reason="minisign is not installed")
def test_minisign_and_the_archiver_verify_each_other(folder, keys):
    """The formats are minisign's: each program reads the keys and signatures of the other."""
    file = folder / "f.mar"
    shutil.copy(BIN / "continuo-archiver", file)  # any bytes: only signatures are looked at
    secret, public = keys("ours")
    archiver("sign", "--secret-key", secret, file)
    assert minisign("-V", "-p", public, "-m", file).returncode == 0
    minisign("-S", "-s", secret, "-m", file)
    assert minisign("-V", "-p", public, "-m", file).returncode == 0
    theirs, theirs_public = folder / "theirs.key", folder / "theirs.pub"
    assert minisign("-G", "-W", "-s", theirs, "-p", theirs_public).returncode == 0
    assert minisign("-S", "-s", theirs, "-m", file, "-t", "theirs").returncode == 0
    seen = archiver("verify", "--trusted-keys", theirs_public, file, check=False)
    assert "not a readable zip" in seen.stderr  # the signature was good, so the archive was read
    assert minisign("-S", "-l", "-s", theirs, "-m", file).returncode == 0
    seen = archiver("verify", "--trusted-keys", theirs_public, file, check=False)
    assert "old form" in seen.stderr


@pytest.mark.skipif(not shutil.which("minisign"), reason="minisign is not installed")
def test_minisign_reads_a_key_with_a_password(folder):
    """The password's key is derived as minisign does it."""
    secret, public, file = folder / "p.key", folder / "p.pub", folder / "file"
    file.write_text("hello")
    made = subprocess.run([BIN / "continuo-archiver", "keygen", "--secret-key", secret, "--public-key", public],
                          input="swordfish\n", text=True, capture_output=True, check=False, timeout=limit(60))
    assert made.returncode == 0, made.stderr
    signed = minisign("-S", "-s", secret, "-m", file, stdin="swordfish\n")
    assert signed.returncode == 0, signed.stderr
    assert minisign("-V", "-p", public, "-m", file).returncode == 0
    wrong = subprocess.run([BIN / "continuo-archiver", "sign", "--secret-key", secret, file], input="swordfisH\n",
                           text=True, capture_output=True, check=False, timeout=limit(60))
    assert wrong.returncode == 1 and "wrong password" in wrong.stderr
