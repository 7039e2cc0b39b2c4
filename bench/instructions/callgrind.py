"""A server and its workers under valgrind's callgrind: how many instructions they ran between two moments, by function."""

import collections
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = {"continuo", "continuo-worker"}  # the objects that hold our own code


class Unavailable(Exception):
    """Says why instructions cannot be counted on this machine."""


def version():
    try:
        found = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as why:
        raise Unavailable(f"valgrind is missing: install the package valgrind ({why})") from why
    return found.strip()


class Callgrind:
    """`command` and `env` are what a server must be started with. Then counts() tells what a call cost."""

    def __init__(self):
        version()
        self._folder = tempfile.TemporaryDirectory(prefix="continuo-callgrind-")
        self.folder = pathlib.Path(self._folder.name)
        library = self.folder / "preloaded.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library, ROOT / "tests/valgrind/pidfd.c",
                        ROOT / "bench/instructions/slow_clock.c", "-lpthread"], check=True)
        self.command = ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes", "--fair-sched=yes",
                        f"--callgrind-out-file={self.folder}/out.%p", f"--log-file={self.folder}/log.%p",
                        f"--vgdb-prefix={self.folder}/vgdb"]
        self.env = {"LD_PRELOAD": str(library)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._folder.cleanup()

    def _dump(self, pid):
        """Writes what the process ran since the last dump into a file, and returns the file."""
        before = set(self.folder.glob(f"out.{pid}*"))
        told = subprocess.run(["vgdb", f"--vgdb-prefix={self.folder}/vgdb", f"--pid={pid}", "dump"], capture_output=True,
                              text=True, check=False)
        made = set(self.folder.glob(f"out.{pid}*")) - before
        if told.returncode != 0 or len(made) != 1:
            raise Unavailable(f"vgdb cannot make callgrind write its counts (may this process trace others?): "
                              f"{told.stdout}{told.stderr}")
        return made.pop()

    def counts(self, pids, call):
        """Calls `call` and returns a Counts of what these processes ran meanwhile."""
        for pid in pids:
            self._dump(pid).unlink()
        call()
        counts = Counts()
        for pid in pids:
            path = self._dump(pid)
            counts.read(path)
            path.unlink()
        return counts


class Counts:
    """Instructions by (object, function), and calls from our objects into libraries by (function, library's function)."""

    def __init__(self):
        self.instructions = collections.Counter()
        self.calls = collections.Counter()

    def read(self, path):
        """Adds the counts of a file that callgrind wrote."""
        names = {"ob": {}, "fn": {}}

        def name_of(kind, text):
            # "(7) name" defines a name, and "(7)" stands for it afterwards.
            number, _, name = text.partition(" ")
            if name:
                names[kind][number] = name
            return names[kind].get(number, number)

        here = there = ("", "")
        skip = False
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line[0] in "0123456789+-*":
                    if skip:  # the inclusive cost of a call
                        skip = False
                    else:
                        self.instructions[here] += int(line.split()[1])
                    continue
                key, equals, text = line.rstrip("\n").partition("=")
                if not equals:
                    continue
                if key == "ob":
                    here = there = (pathlib.PurePath(name_of("ob", text)).name, here[1])
                elif key == "fn":
                    here = (here[0], name_of("fn", text))
                    there = here
                elif key == "cob":
                    there = (pathlib.PurePath(name_of("ob", text)).name, there[1])
                elif key == "cfn":
                    there = (there[0], name_of("fn", text))
                elif key == "calls":
                    if here[0] in OURS and there[0] not in OURS:
                        self.calls[(here[1], there[1])] += int(text.split()[0])
                    there = here
                    skip = True

    def own(self):
        return sum(count for (which, _), count in self.instructions.items() if which in OURS)

    def all(self):
        return sum(self.instructions.values())

    def calls_out(self):
        return sum(self.calls.values())
