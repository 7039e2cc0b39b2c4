"""A handler in C that tries to get out of its worker, as root and as an ordinary user: nothing works. docs/walls.md
has the same attempts as a table."""

import os
import re
import shutil
import subprocess

import pytest

from models import ROOT, archiver, counter, python
from test_worker_walls import AS_NOBODY, NOBODY, as_nobody, needs_python
from waiting import expect, limit

REFUSED = ("EPERM", "EACCES", "ENOSYS", "EROFS", "EXDEV")

# What is tried, by which words (tests/support/prisoner.c), and whether root can do it where there are no walls.
ATTEMPTS = [
    # Secrets and states in files
    ("read the server's key file", "read {folder}/keys.json", True),
    ("list the state folder", "list {state}", True),
    ("read the store of another model", "read {store}/data.mdb", True),
    ("write into the store of another model", "write {store}/data.mdb", True),
    ("read another model's unpacked files", "read {unpacked}/handler.lua", True),
    ("read another model's archive", "read {archives}/counter-1.0.mar", True),
    ("replace its own archive", "write {archives}/prisoner.mar", True),
    ("change its own code", "write {own}/prisoner.so", True),
    ("put a file beside its own code", "create {own}/more.py", True),
    ("reach the state folder through the inherited lock", "inherited boot", True),
    ("reach another store through its own folder", "read {own}/../../models/counter/1.0/data.mdb", True),
    ("link another store into its own folder", "link {store}/data.mdb {temp}/data.mdb", True),
    ("read /etc/shadow", "read /etc/shadow", True),
    ("list root's home", "list /root", True),
    ("list /tmp", "list /tmp", True),
    # What root owns
    ("change /etc/passwd", "write /etc/passwd", True),
    ("add a job to cron", "create /etc/continuo-escape-{unique}", True),
    ("add a program", "create /usr/local/bin/continuo-escape-{unique}", True),
    ("leave a file in /tmp", "create /tmp/continuo-escape-{unique}", True),
    ("leave a file in shared memory", "create /dev/shm/continuo-escape-{unique}", True),
    ("name a program that the kernel runs at a crash", "write /proc/sys/kernel/core_pattern", True),
    ("name a program that the kernel runs for a module", "write /proc/sys/kernel/modprobe", True),
    ("press a key of the kernel", "write /proc/sysrq-trigger", True),
    ("read the kernel's log", "open /dev/kmsg", True),
    ("read the machine's memory", "open /dev/mem", False),
    ("make a device of a disk", "device {temp}/disk", False),
    # Other processes
    ("read the server's environment", "read /proc/{server}/environ", True),
    ("open the server's memory", "open /proc/{server}/mem", True),
    ("read where the server's memory lies", "read /proc/{server}/maps", True),
    ("see the server's open files", "where /proc/{server}/fd/0", True),
    ("go to the server's root", "list /proc/{server}/root/etc/ssl", True),
    ("see the server's folder", "where /proc/{server}/cwd", True),
    ("protect itself from the kernel instead of the server", "write /proc/{server}/oom_score_adj", True),
    ("read another worker's environment", "read /proc/{other}/environ", True),
    ("open another worker's memory", "open /proc/{other}/mem", True),
    ("attach to the server", "attach {server}", False),
    ("attach to another worker", "attach {other}", False),
    ("copy out of the server's memory", "memory {server}", False),
    ("copy out of another worker's memory", "memory {other}", False),
    ("take a descriptor of the server", "descriptor {server}", False),
    ("join the server's name space", "join {server}", False),
    ("read where the server's stack lies", "read /proc/{server}/auxv", True),
    ("make the server's timers late", "write /proc/{server}/timerslack_ns", True),
    ("say what a core file of the server has", "write /proc/{server}/coredump_filter", True),
    ("end the server by a limit of its CPU time", "limit {server}", True),
    ("end another worker by a limit of its CPU time", "limit {other}", True),
    ("take the server's priority", "priority {server}", True),
    ("take the server's processors", "scheduler {server}", True),
    ("take the server's disk", "disk_priority {server}", True),
    ("share memory with another worker", "shared_memory", True),
    ("share semaphores with another worker", "semaphores", True),
    ("send messages to another worker", "messages", True),
    # Rights
    ("become another user", "user 1", False),
    ("join another group", "group 0", False),
    ("get all capabilities back", "capability", False),
    ("get another root", "root /usr", False),
    ("mount", "mount {temp}", False),
    ("make a name space of users", "space 10000000", False),
    ("make a name space of mounts", "space 20000", False),
    # The network
    ("connect to management", "connect {port}", True),
    ("open a socket for UDP", "socket 2 2", True),
    ("open a raw socket", "socket 2 3", False),
    ("open a socket for packets", "socket 17 3", False),
    ("open a socket to services of the machine", "socket 1 1", True),
    ("write to services of the machine by a pair of sockets", "pair 1 2", True),
    ("open a socket to the kernel's network", "socket 16 3", True),
    # The kernel
    *((f"call {name}", f"call {name}", False) for name in (
        "acct", "add_key", "bpf", "clock_settime", "fanotify_init", "init_module", "io_uring_setup", "kexec_load",
        "keyctl", "open_by_handle_at", "perf_event_open", "pivot_root", "reboot", "sethostname", "settimeofday",
        "swapon", "userfaultfd")),
]
SIGNALS = [
    ("send a signal to the server", "signal {server}", True),
    ("send a signal to another worker", "signal {other}", True),
    ("send a signal by a descriptor", "pidfd_signal {server}", True),
]


@pytest.fixture
def prison(server, folder, transcript):
    """prison(as_user, flags=[...]) starts a server with the prisoner and another model, and returns it with what the
    words of the attempts stand for."""
    def start(as_user, flags=()):
        subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-I",
                        ROOT / "include", "-o", folder / "prisoner.so", ROOT / "tests" / "support" / "prisoner.c"],
                       check=True, timeout=limit(60))
        (folder / "prisoner.yaml").write_text("minWorkers: 1\nmaxWorkers: 1\nsequenceBatching: true\n")
        s = server(counter(), start=False, flags=flags)
        (s.folder / "keys.json").write_text('{"keys": []}')
        archiver("--model-name", "prisoner", "--version", "1.0", "--handler", folder / "prisoner.so",
                 "--config-file", folder / "prisoner.yaml", "--export-path", s.store, transcript=transcript)
        s.models.append("prisoner=prisoner.mar")
        s = s.start() if as_user == "own" else as_nobody(s, NOBODY if as_user == "nobody" else as_user)
        [other] = s.expect_ready("counter", 1)
        s.client().step("counter", "a", "1")
        unpacked = {path.parent.name: path.parent for path in (s.state_dir / "unpacked").glob("*/handler.lua")}
        own = next((s.state_dir / "unpacked").glob("*/prisoner.so")).parent
        names = {"folder": s.folder, "state": s.state_dir, "store": s.state_dir / "models" / "counter" / "1%2E0",
                 "unpacked": next(iter(unpacked.values())), "archives": s.store, "own": own, "temp": f"{own}.temp",
                 "unique": f"{os.getpid()}-{s.process.pid}", "server": s.process.pid, "other": other, "port": s.management.rpartition(":")[2]}
        if not names["store"].exists():
            names["store"] = next((s.state_dir / "models" / "counter").iterdir())
        return s, names
    return start


def is_missing(words, names):
    """Is it a file of the kernel that this machine does not have?"""
    verb, _, path = words.format(**names).partition(" ")
    return is_of_kernel(path) and not os.path.exists(os.path.dirname(path) if verb == "create" else path)


def is_of_kernel(path):
    return path.startswith(("/proc/sys", "/dev/"))


def lacking(s):
    return s.workers("prisoner")[0].get("wallsLacking", "")


@pytest.mark.parametrize("user", ["own", "nobody"])
def test_nothing_gets_out(prison, user):
    """Not files, memory, processes, rights, the network or the kernel."""
    s, names = prison(user)
    if lacking(s):
        pytest.skip("this kernel cannot build all walls: " + lacking(s))
    client = s.client()
    worked = []
    for what, words, _ in ATTEMPTS + SIGNALS:
        answer = client.step("prisoner", "a", words.format(**names))
        assert answer.status == 200, (what, answer)
        if answer.text not in REFUSED and not (answer.text == "ENOENT" and is_missing(words, names)):
            worked.append((what, words, answer.text))
    assert not worked
    assert client.step("counter", "a", "1").text == "2"


def test_what_a_handler_needs_is_left(prison):
    """It reads its own files and the system's, and has a folder for temporary files, which goes with the model."""
    s, names = prison("own")
    client = s.client()
    for words in ("read {own}/prisoner.so", "list {own}", "create {temp}/mine", "list /usr/lib", "read /proc/self/maps",
                  "read /etc/hosts", "write /dev/null", "read /dev/urandom", "program /usr/bin/true"):
        assert client.step("prisoner", "a", words.format(**names)).text == "done", words
    [pid] = s.ready_pids("prisoner")
    if os.geteuid() == 0:
        assert f"TMPDIR={names['temp']}".encode() in open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
    assert s.admin().delete("/models/prisoner").status == 200
    assert not os.path.exists(names["temp"])


@pytest.mark.skipif(os.geteuid() != 0, reason="what only root may do")
def test_without_walls_the_files_are_open(prison):
    """So the walls are what stops the attempts, and not a mistake in them."""
    s, names = prison("own", ["--worker-walls", "off"])
    client = s.client()
    refused = {}
    for what, words, possible in ATTEMPTS + SIGNALS:
        if possible:
            answer = client.step("prisoner", "a", words.format(**names)).text
            if answer != "done" and not is_of_kernel(words.partition(" ")[2]):  # a container's root may lack these
                refused[what] = answer
    assert not refused


IS_ROOT = """
#include <unistd.h>

int
main(void)
{
    return geteuid() == 0 ? 0 : 1;
}
"""


def test_a_set_user_id_program_gives_nothing(prison, folder):
    """The same program makes root of the same user outside of the walls, or the test is skipped."""
    programs = folder.parent / f"{folder.name}-programs"
    programs.mkdir()
    try:
        (programs / "is_root.c").write_text(IS_ROOT)
        subprocess.run(["cc", "-o", programs / "is_root", programs / "is_root.c"], check=True, timeout=limit(60))
        (programs / "is_root").chmod(0o4755)
        s, _ = prison("nobody", ["--worker-files", programs])
        if subprocess.run([*AS_NOBODY, programs / "is_root"], check=False).returncode != 0:
            pytest.skip("this file system has no set-user-ID programs (nosuid)")
        client = s.client()
        assert client.step("prisoner", "a", "program /usr/bin/true").text == "done"
        assert client.step("prisoner", "a", f"program {programs}/is_root").text == "EACCES"
    finally:
        shutil.rmtree(programs)


@pytest.mark.parametrize("flags, answer", [(["--worker-processes", "40"], "EAGAIN"), ([], "done")])
def test_a_fork_bomb_meets_the_limit_of_processes(prison, flags, answer):
    """The kernel counts the processes of a user, so this server has a user of its own; without control groups that is
    what holds. A thousand processes are not left to chance: 300 are tried."""
    user = 61000 + os.getpid() % 4000
    s, _ = prison(user, flags)
    [worker] = s.workers("prisoner")
    if "limitsLacking" in worker:
        pytest.skip(worker["limitsLacking"])
    client = s.client()
    assert client.step("prisoner", "a", "processes 300").text == answer
    assert client.step("prisoner", "a", "processes 10").text == "done"
    assert client.step("counter", "a", "1").text == "2"


def test_limits_that_do_not_hold_are_told(prison):
    """Root's processes are never counted, so without a control group the operator has to know."""
    s, _ = prison("own", ["--worker-processes", "40"])
    [worker] = s.workers("prisoner")
    assert s.describe("prisoner")["limits"] == {"memoryBytes": 0, "cpuPercent": 0, "processes": 40, "tempBytes": 0}
    if os.geteuid() == 0 and "limitsLacking" in worker:
        assert worker["limitsLacking"].startswith("processes: ")
        s.expect_log("event=limits_lacking", "processes: ")
    else:
        assert s.client().step("prisoner", "a", "processes 300").text == "EAGAIN"


def lives(pid):
    try:
        return open(f"/proc/{pid}/stat", encoding="ascii").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_handler_has_started_ends_with_its_worker(prison):
    s, _ = prison("own")
    [pid] = s.ready_pids("prisoner")
    assert s.client().step("prisoner", "a", "leave").text == "done"
    try:
        [child] = open(f"/proc/{pid}/task/{pid}/children", encoding="ascii").read().split()
    except FileNotFoundError:
        pytest.skip("this kernel does not list the children of a process")
    assert lives(child)
    s.kill_worker("prisoner")
    expect(lambda: not lives(child), "the end of the process")


def test_the_operator_may_open_more(prison, folder):
    """--worker-files names what all models may read, such as weights that they share."""
    weights = folder.parent / f"{folder.name}-weights"
    weights.mkdir()
    try:
        (weights / "w.bin").write_text("7")
        s, _ = prison("own", ["--worker-files", f"/nowhere:{weights}"])
        client = s.client()
        assert client.step("prisoner", "a", f"read {weights}/w.bin").text == "done"
        if "own_files" in s.workers("prisoner")[0]["walls"]:
            assert client.step("prisoner", "a", f"write {weights}/w.bin").text in REFUSED
    finally:
        (weights / "w.bin").unlink()
        weights.rmdir()


READS_AT_IMPORT = """
import os

try:
    open({path!r}).close()
    found = "read"
except PermissionError:
    found = "refused"
with open(os.path.join(os.environ["CONTINUO_TEST_MARKS"], "found"), "w") as file:
    file.write(found)


def step(state, req):
    return found
"""


@needs_python
@pytest.mark.parametrize("certificate", ["{folder}/x.pem", "/./x.pem"])
def test_an_archive_opens_no_files_by_the_url_of_its_store(server, folder, certificate):
    """The worker reads certificates that the operator names, and not those that whoever packed the archive names. The
    store does not answer, but the handler is imported before that is known."""
    s = server(counter())
    s.expect_ready("counter", 1)
    if "own_files" not in s.workers("counter")[0]["walls"]:
        pytest.skip("this kernel cannot build the wall: " + s.workers("counter")[0]["wallsLacking"])
    secret = folder / "secret"
    secret.write_text("7")
    url = "rediss://127.0.0.1:1/?ca=" + certificate.format(folder=folder)
    archive = s.pack(python("reads", READS_AT_IMPORT.format(path=str(secret)), state={"store": url}))
    s.admin().post(f"/models?url={archive.name}&initial_workers=1&synchronous=true")
    assert (s.marks / "found").read_text() == "refused"


def test_the_page_has_all_attempts():
    """docs/walls.md is what operators read."""
    page = (ROOT / "docs" / "walls.md").read_text()
    listed = re.findall(r"^\| ([^|]+) \|", page, re.M)
    missing = [what for what, _, _ in ATTEMPTS + SIGNALS if what not in listed and not what.startswith("call ")]
    assert not missing
    assert all(f"`{what[5:]}`" in page for what, _, _ in ATTEMPTS if what.startswith("call "))
