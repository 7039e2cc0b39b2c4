"""Machines in a network of their own: Linux network namespaces with virtual cables to bridges.

`enter` runs the program again in namespaces that nobody else sees and that vanish with it, so nothing that it starts
or changes is left behind. Root may make them everywhere, others where the system lets users make namespaces.

Every machine can be cut off from a bridge: its packets then vanish without an error, as behind a broken switch. Two
machines can also be cut off from each other only: each then sends the other's packets to a hardware address that nobody
has. Neither needs nftables or netem, which many kernels lack."""

import contextlib
import os
import subprocess
import sys

from waiting import expect

INSIDE = "CONTINUO_CLUSTER_INSIDE"
NOBODY = "02:00:00:00:00:99"
BRIDGE = "02:00:00:00:00:01"  # the hardware address of each bridge, and so ours
NETS = {"front": "10.0.0", "back": "10.0.1", "control": "10.0.2"}
OURS = 254  # our own address in the nets that we are in
# The queue is shorter than the time after which Sentinels consider a silent store down (stores.py): a slow primary that
# is replaced while it lives may lose steps (docs/reliability.md), and this fault is not about that.
SLOW = ("tbf", "rate", "400kbit", "burst", "3000", "latency", "400ms")


def namespaces():
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return command if os.getuid() == 0 else [*command, "--user", "--map-root-user"]


def why_not():
    """Returns why there can be no such network here, or None."""
    probe = [*namespaces(), "ip", "link", "add", "name", "probe", "type", "bridge"]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
    except FileNotFoundError as e:
        return f"there is no {e.filename}"
    if done.returncode:
        return f"this system makes no network namespaces with bridges for us: {done.stderr.strip()}"
    return None


@contextlib.contextmanager
def entered(argv, env):
    """Runs this program inside the namespaces. Everything in there ends with the `with` block."""
    process = subprocess.Popen([*namespaces(), sys.executable, *argv], env={**os.environ, INSIDE: "1", **env})
    try:
        yield process
    finally:
        process.kill()  # --kill-child then kills the first process inside, and with it all others
        process.wait()


def is_inside():
    return INSIDE in os.environ


def ip(*words, inside=()):
    done = subprocess.run([*inside, "ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")


class Machine:
    """A network namespace. A process that sleeps keeps it."""

    def __init__(self, name, number, nets):
        self.name = name
        self.number = number
        self.nets = nets
        self._keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        path = f"/proc/{self._keeper.pid}/ns/net"
        expect(lambda: os.readlink(path) != os.readlink("/proc/self/ns/net"), f"the namespace of {name}")
        self.enter = ["nsenter", f"--net={path}"]  # replaces itself by the command, which keeps its pid
        self._ip("link", "set", "lo", "up")
        for net in nets:
            cable = self._cable(net)
            ip("link", "add", "name", cable, "type", "veth", "peer", "name", net, "netns", self._keeper.pid)
            ip("link", "set", "dev", cable, "master", net, "up")
            self._ip("address", "add", f"{self.address(net)}/24", "dev", net)
            self._ip("link", "set", "dev", net, "up")

    def _cable(self, net):
        return f"{self.name}-{net}"

    def _ip(self, *words):
        ip(*words, inside=self.enter)

    def address(self, net):
        return f"{NETS[net]}.{self.number}"

    def cut(self, net):
        ip("link", "set", "dev", self._cable(net), "nomaster")

    def heal(self, net):
        ip("link", "set", "dev", self._cable(net), "master", net)

    def slow(self, net):
        """What the machine gets from the net then has little bandwidth, and so waits in a queue."""
        done = subprocess.run(["tc", "qdisc", "replace", "dev", self._cable(net), "root", *SLOW],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"tc: {done.stderr.strip()}")

    def fast(self, net):
        subprocess.run(["tc", "qdisc", "del", "dev", self._cable(net), "root"], capture_output=True, check=False)

    def avoid(self, other, net):
        """From now on nothing from here reaches the other machine."""
        self._ip("neighbour", "replace", other.address(net), "lladdr", NOBODY, "dev", net, "nud", "permanent")

    def find(self, other, net):
        self._ip("neighbour", "del", other.address(net), "dev", net)


def make_network():
    """Makes the bridges. We are in the nets `front`, as clients are, and `control`, which is never cut.

    A bridge without an address of its own has the lowest of its cables, so it would change when that machine is cut
    off. Answers to clients that only wait would then go to the old address, for a minute or more."""
    ip("link", "set", "lo", "up")
    for net, prefix in NETS.items():
        ip("link", "add", "name", net, "address", BRIDGE, "type", "bridge")
        ip("link", "set", "dev", net, "up")
        if net != "back":
            ip("address", "add", f"{prefix}.{OURS}/24", "dev", net)


def cut_apart(one, others, net):
    for other in others:
        one.avoid(other, net)
        other.avoid(one, net)


def join(one, others, net):
    for other in others:
        one.find(other, net)
        other.find(one, net)
