"""A restart uses the files again that the last start has unpacked, if they are complete and from the same archive."""

import shutil

import pytest

from models import counter
from waiting import expect


def with_weights(name="counter"):
    model = counter(name)
    model.extra = {"weights.bin": b"\0" * 1_000_000}
    return model


def unpacked(s):
    """Returns the inode of a file in the model's folder, from which a test sees whether the file was made anew."""
    return sorted(path.stat().st_ino for path in (s.state_dir / "unpacked").glob("*/weights.bin"))


def folder_of(s):
    return next((s.state_dir / "unpacked").glob("*/weights.bin")).parent


@pytest.fixture(params=["stop", "kill"])
def stopped(server, request):
    """Returns a stopped server that has unpacked a model."""
    s = server("counter=counter.mar", start=False)
    s.pack(with_weights(), "counter.mar")
    s.start()
    assert s.client().step("counter", "a", 1).text == "1"
    s.inodes = unpacked(s)
    assert len(s.inodes) == 1
    if request.param == "stop":
        s.stop()
    else:
        s.kill()
        expect(lambda: not s.session_members(), "the workers have ended")
    return s


def goes_on(s):
    s.restart()
    assert s.client().step("counter", "a", 1).text == "2"
    assert len(unpacked(s)) == 1 and len(list((s.state_dir / "unpacked").iterdir())) == 2


def test_it_is_taken_over(stopped):
    goes_on(stopped)
    assert unpacked(stopped) == stopped.inodes
    stopped.stop()
    stopped.restart()
    assert unpacked(stopped) == stopped.inodes


def cut(s):
    with open(folder_of(s) / "weights.bin", "r+b") as file:
        file.truncate(10)


def change(s):
    with open(folder_of(s) / "handler.lua", "a", encoding="utf-8") as file:
        file.write("error('not the archive\\'s handler')\n")


def add(s):
    (folder_of(s) / "more.lua").write_text("")


def lose(s):
    (folder_of(s) / "handler.lua").unlink()


def forget_note(s):
    folder_of(s).with_name(folder_of(s).name + ".whole").unlink()


def break_note(s):
    folder_of(s).with_name(folder_of(s).name + ".whole").write_bytes(b"\0 not a note")


def half_done(s):
    forget_note(s)
    shutil.copytree(folder_of(s), folder_of(s).with_name("0123456789abcdef.tmp-1"))


def another_boot(s):
    note = folder_of(s).with_name(folder_of(s).name + ".whole")
    note.write_text("11111111" + note.read_text()[8:])


def new_archive(s):
    (s.store / "counter.mar").unlink()
    s.pack(with_weights(), "counter.mar")


@pytest.mark.parametrize("damage", [cut, change, add, lose, forget_note, break_note, half_done, another_boot,
                                    new_archive])
def test_what_is_not_as_it_was_is_made_anew(stopped, damage):
    """What was left is removed: there is one folder with its note."""
    (folder_of(stopped) / "MAR-INF" / "MANIFEST.json").read_text()
    damage(stopped)
    before = set(unpacked(stopped))
    goes_on(stopped)
    handler = (folder_of(stopped) / "handler.lua").read_text()
    assert "not the archive" not in handler and (folder_of(stopped) / "weights.bin").stat().st_size == 1_000_000
    assert not (folder_of(stopped) / "more.lua").exists() and before


def test_what_nobody_asks_for_is_removed(stopped):
    stopped.models = []
    stopped.restart()
    expect(lambda: not list((stopped.state_dir / "unpacked").iterdir()), "the folder is gone")
    assert stopped.register_url("counter.mar").status == 200
    assert stopped.client().step("counter", "a", 1).text == "2"
    assert stopped.admin().delete("/models/counter").status == 200
    expect(lambda: not list((stopped.state_dir / "unpacked").iterdir()), "it goes with its model")
