"""What the differential tests share: a peer is installed once, both servers get the same calls, and
what they answer is compared part by part.

A script makes a Comparison, gives it pairs of answers by name, and ends with its close(). An answer is
a dictionary from a part's name ("status", "body", "header content-type", "code", ...) to its text.
Texts that rightly differ (times, ports, process ids) are made equal by the script's one table of
rules. Differences that we want stand in a TOML file beside the script, each with its reason:

    [[difference]]
    cases = "register ?batch_size=*"       # a pattern of case names, or a list of patterns
    parts = ["status", "body"]             # patterns of parts; all of them when left out
    ours = '.*batch_size.*'                # optional: our value matches this whole expression
    theirs = '.*'                          # optional: so does theirs
    reason = "A sentence that says why."

Anything else that differs is a failure, and so is a row that no longer meets a difference.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / os.environ.get("CONTINUO_BUILD", "build/release") / "bin"
# This folder outlives the checkout, so that a fresh clone on the same machine finds the peers there.
HOME_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
CACHE = pathlib.Path(os.environ.get("CONTINUO_PEERS") or HOME_CACHE / "continuo" / "peers")
FACTOR = float(os.environ.get("CONTINUO_TEST_FACTOR", "1"))
TEXT_SHOWN = 600  # characters of a value in the report


class Unavailable(Exception):
    """The peer cannot be installed on this machine. The text says why."""


# --- installing peers


def say(text):
    print(text, flush=True)


def python_peer(name, requirements, probe):
    """Returns the interpreter of a virtual environment that has these requirements, and makes the environment if
    needed. A requirement is a list of pip's arguments. The environment's name has their hash, so changed requirements
    make a new one. `probe` is Python code that must run in it."""
    folder = CACHE / f"{name}-{_digest(requirements)}"
    python = folder / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists() and _runs([python, "-c", probe]):
            say(f"{name}: found in {folder}")
            return python
        shutil.rmtree(folder, ignore_errors=True)
        say(f"{name}: installing into {folder} ...")
        log = CACHE / f"{name}-install.log"
        steps = [[sys.executable, "-m", "venv", folder]]
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        steps += [[*pip, *arguments] for arguments in requirements]
        steps.append([python, "-c", probe])
        with open(log, "w") as file:
            for step in steps:
                if not _runs(step, 900, file):
                    shutil.rmtree(folder, ignore_errors=True)
                    last = log.read_text(errors="replace").strip().splitlines()[-1:]
                    command = " ".join(map(str, step[1:4]))
                    raise Unavailable(f"{command} ... failed ({log}): {''.join(last)}")
        (folder / "complete").write_text("\n".join(" ".join(each) for each in requirements) + "\n")
        say(f"{name}: installed {', '.join(each[-1] for each in requirements)}")
    return python


def _digest(requirements):
    text = repr((requirements, sys.version_info[:2], os.environ.get("CONTINUO_TORCH", "")))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _runs(command, seconds=120, output=subprocess.DEVNULL):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                              timeout=seconds, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def torch_requirement():
    """Returns the requirement for the CPU build that scripts/setup.sh --torch installs; other builds bring gigabytes of
    CUDA packages."""
    named = os.environ.get("CONTINUO_TORCH")
    if named:
        return named
    script = (ROOT / "scripts" / "setup.sh").read_text()
    return re.search(r"CONTINUO_TORCH:-([^}]+)}", script).group(1)


# --- processes


class Process:
    """Runs a command in a process group of its own, so that stop() ends all processes that it has started."""

    def __init__(self, command, log, env=None, cwd=None):
        self.log = pathlib.Path(log)
        with open(self.log, "ab") as file:
            self.popen = subprocess.Popen([str(each) for each in command], stdout=file,
                                          stderr=file, stdin=subprocess.DEVNULL, env=env,
                                          cwd=cwd, start_new_session=True)

    @property
    def text(self):
        return self.log.read_text(errors="replace")

    def running(self):
        return self.popen.poll() is None

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def stop(self, seconds=20):
        """Sends SIGTERM to all processes, and SIGKILL to those that are left. Returns the command's status."""
        self.signal(signal.SIGTERM)
        try:
            self.popen.wait(seconds * FACTOR)
        except subprocess.TimeoutExpired:
            pass
        self.signal(signal.SIGKILL)
        return self.popen.wait()


def libraries_of(program, env):
    """Returns the lines of ldd: the libraries that a program needs, and where each was found."""
    return subprocess.run(["ldd", str(program)], env=env, capture_output=True, text=True, timeout=60,
                          check=False).stdout.splitlines()


def wait_for(condition, what, seconds=30):
    end = time.monotonic() + seconds * FACTOR
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds * FACTOR:.0f} s")
        time.sleep(0.02)
    return found


# --- comparing


class Row:
    def __init__(self, entry):
        known = {"cases", "parts", "ours", "theirs", "reason"}
        if set(entry) - known or not entry.get("cases") or not entry.get("reason"):
            raise ValueError(f"a row has cases and reason, and may have the other keys of "
                             f"{', '.join(sorted(known))}: {entry}")
        self.cases = [entry["cases"]] if isinstance(entry["cases"], str) else entry["cases"]
        self.parts = entry.get("parts", ["*"])
        self.reason = entry["reason"]
        self.patterns = {side: re.compile(entry[side], re.S)
                         for side in ("ours", "theirs") if side in entry}
        self.met = 0

    def covers(self, case, part, theirs, ours):
        values = {"ours": ours or "", "theirs": theirs or ""}
        return (any(_matches(case, each) for each in self.cases) and
                any(_matches(part, each) for each in self.parts) and
                all(pattern.fullmatch(values[side]) for side, pattern in self.patterns.items()))


def _matches(text, pattern):
    """Matches with `*` for any text. All other characters, brackets and question marks too, stand for themselves."""
    return re.fullmatch(".*".join(re.escape(each) for each in pattern.split("*")), text, re.S) is not None


class Comparison:
    """Counts cases that are equal, deliberately different, and different without an explanation."""

    def __init__(self, title, peer, table, rules, only="*", more=None):
        self.title = title
        self.peer = peer
        self.table = pathlib.Path(table)
        # tuples of expression and replacement, and a pattern of parts if the rule does not count for all parts
        self.rules = [(re.compile(rule[0], re.S | re.M), rule[1], rule[2] if len(rule) > 2 else "*")
                      for rule in rules]
        self.rows = _rows_of(self.table)
        self.own_rows = self.rows  # those that must meet a difference
        if more:  # another table, which comes on top of one that another comparison checks
            self.table, self.own_rows = pathlib.Path(more), _rows_of(pathlib.Path(more))
            self.rows = self.rows + self.own_rows
        self.only = only
        self.groups = {}  # the case's first word -> [cases, equal, deliberate, unexplained]
        self._names = set()
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def wants(self, case):
        return _matches(case, self.only)

    def normalise(self, answer):
        made = {}
        for part, text in answer.items():
            if text is not None:
                text = str(text)
                for pattern, replacement, parts in self.rules:
                    if _matches(part, parts):
                        text = pattern.sub(replacement, text)
                made[part] = text
        return made

    def compare(self, case, theirs, ours):
        """Returns whether both answer alike, or differ only as the table says."""
        theirs, ours = self.normalise(theirs), self.normalise(ours)
        with self._lock:
            if case in self._names:
                raise ValueError(f"two cases are named {case!r}")
            self._names.add(case)
            different = [part for part in sorted(theirs.keys() | ours.keys())
                         if theirs.get(part) != ours.get(part)]
            open_parts, of_this_case = [], False
            for part in different:
                rows = [row for row in self.rows
                        if row.covers(case, part, theirs.get(part), ours.get(part))]
                for row in rows:
                    row.met += 1
                of_this_case = of_this_case or not any(row.cases == ["*"] for row in rows)
                if not rows:
                    open_parts.append(part)
            counts = self.groups.setdefault(case.split()[0], [0, 0, 0, 0])
            counts[0] += 1
            counts[3 if open_parts else 2 if of_this_case else 1] += 1
            if open_parts:
                say(f"\nDIFFERENT: {case}")
                for part in open_parts:
                    say(f"  {part}")
                    say(f"    {self.peer}: {_shown(theirs.get(part))}")
                    say(f"    ours: {_shown(ours.get(part))}")
        return not open_parts

    def close(self):
        """Prints the table and the closing line; returns the exit status."""
        stale = [row for row in self.own_rows if not row.met] if self.only == "*" else []
        for row in stale:
            say(f"\nNO LONGER DIFFERENT: remove this row of {self.table.name}, or mend its "
                f"patterns: cases {row.cases}, parts {row.parts}: {row.reason}")
        total = [sum(counts[at] for counts in self.groups.values()) for at in range(4)]
        width = max([len(self.title), *map(len, self.groups)]) + 2
        say(f"\n{self.title:{width}}{'cases':>8}{'equal':>8}{'deliberate':>12}{'unexplained':>13}")
        for name, counts in [*sorted(self.groups.items()), ("all", total)]:
            say(f"{name:{width}}{counts[0]:>8}{counts[1]:>8}{counts[2]:>12}{counts[3]:>13}")
        general = sum(row.cases == ["*"] for row in self.rows)
        say(f"equal: but for what {general} rows say of all answers, such as a header of ours")
        say(f"{len(self.rows)} rows of deliberate differences, {len(stale)} of them no longer meet one; "
            f"{time.monotonic() - self._began:.0f} s")
        failed = total[3] + len(stale)
        say(f"{total[0] - total[3]} passed, {failed} failed")
        return 1 if failed or not total[0] else 0


def _rows_of(table):
    entries = tomllib.loads(table.read_text()) if table.exists() else {}
    return [Row(entry) for entry in entries.get("difference", [])]


def _shown(value):
    if value is None:
        return "(nothing)"
    text = repr(value)
    return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}... ({len(text)} characters)"


def skip(title, reason):
    """Prints the closing lines of a test whose peer cannot be installed. This is a failure where peers are required."""
    if os.environ.get("CONTINUO_REQUIRE_PEERS") == "1":
        say(f"{title}: failed: {reason} (CONTINUO_REQUIRE_PEERS=1 makes this a failure)")
        say("0 passed, 1 failed")
        return 1
    say(f"{title}: skipped: {reason}")
    say("0 passed, 0 failed, 1 skipped")
    return 0
