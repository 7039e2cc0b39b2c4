"""Free ports for programs whose port must be known before they start.

They lie below the range from which the system takes the ports of outgoing connections, so that no client's connection
takes one between the moment when it is chosen and the moment when it is used, or while a server is started again."""

import random
import socket

_chosen = set()
_random = random.Random()  # processes that test side by side must not choose the same ones


def free_port():
    """A port of the loopback on which nobody listens, and that this process has not got before."""
    while True:
        port = _random.randrange(15000, 32000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _chosen:
            _chosen.add(port)
            return port


def free_ports(count):
    return [free_port() for _ in range(count)]


def fixed_addresses(*interfaces):
    """The flags of a server that comes back at the same addresses after a restart."""
    return [word for each in interfaces for word in (f"--{each}-address", f"http://127.0.0.1:{free_port()}")]
