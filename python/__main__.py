"""Starts a worker: the server runs `PYTHON .../python LABEL`, with a socket as descriptor 3.

This file runs in any Python, also in one that is too old: then the server is told so.
"""

import struct
import sys

SOCKET = 3
LOADED, FRAME_VERSION = 65, 1  # proto/frame.h
FAILED = -1  # any code that is not 0
OLDEST = (3, 9)


def refuse(message):
    """Sends LOADED with an error, as the worker would if it could run."""
    import socket

    text = message.encode("utf-8")
    payload = struct.pack("<iI", FAILED, len(text)) + text + struct.pack("<II", 0, 0)
    header = struct.pack("<IBBHI", len(payload), LOADED, FRAME_VERSION, 0, 0)
    try:
        with_server = socket.fromfd(SOCKET, socket.AF_UNIX, socket.SOCK_STREAM)
        with_server.sendall(header + payload)
        with_server.recv(1 << 16)  # LOAD, so that closing the socket does not lose the answer
    except (OSError, socket.error):
        pass
    sys.stderr.write(message + "\n")
    sys.exit(1)


if sys.version_info < OLDEST:
    refuse("%s is Python %d.%d, and Python models need 3.9 or later: name another interpreter with "
           "--python or with the key python of the model's YAML" % (
               (sys.executable or "the interpreter",) + tuple(sys.version_info[:2])))
try:
    from continuo import worker
except ImportError as error:
    refuse("the worker of Python models cannot be loaded into %s: %s" % (sys.executable, error))
sys.exit(worker.main())
