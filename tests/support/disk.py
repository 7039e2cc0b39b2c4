"""A small file system that may be filled without harm: a tmpfs, where mounting is allowed."""

import contextlib
import subprocess

import pytest

from waiting import limit

FILLER = "filler"


def fill(disk):
    """Fills the disk to the last byte, and to the last file that could be created. Files of the server keep their room.
    """
    with open(disk / FILLER, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    with contextlib.suppress(OSError):
        for i in range(100_000):
            (disk / f"{FILLER}-{i}").touch()
        raise AssertionError("the disk has room for 100,000 files")


def clear(disk):
    """Makes room again, as if somebody else had deleted files."""
    for path in disk.glob(f"{FILLER}*"):
        path.unlink()


def resize(disk, size):
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True, timeout=limit(10))


@contextlib.contextmanager
def mounted(path, size="6m", inodes=200):
    """Mounts a file system of that size at `path`. Skips the test if mounting is not allowed."""
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={inodes}", "tmpfs", path],
                          capture_output=True, timeout=limit(10), check=False)
    if made.returncode != 0:
        pytest.skip(f"may not mount a tmpfs here: {made.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True, timeout=limit(10))
