"""A TCP relay on the loopback, which a test slows down or cuts."""

import collections
import contextlib
import select
import socket
import threading
import time


class Relay:
    """Connects each client to 127.0.0.1:`port`. Each piece of data is passed on `delay_s` after it arrived; while the
    relay is cut, nothing is passed on, and connections stay open, as on a network that drops packets. While it is
    mute, clients' data are passed on, and what comes back is dropped. `mute(after)` waits for these bytes of a client. When one side closes its connection, what has
    arrived before is still passed on in its time; then the other side is closed."""

    def __init__(self, port):
        self.to = port
        self.delay_s = 0
        self._cut = threading.Event()
        self._mute = threading.Event()
        self._mute_after = None
        self._word, self._unanswered = None, set()
        self.most_unanswered = 0
        self._ended = 0  # connections that were made while this had another value are over
        self._stopped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self):
        self._cut.set()

    def mend(self):
        self._cut.clear()

    def mute(self, after=b""):
        self._mute_after = after

    def count_unanswered(self, word):
        """From now on, most_unanswered is the largest number of connections at one time whose client has sent these
        bytes, and has got nothing since."""
        self._word = word

    def end_connections(self):
        """Ends all connections, and is no longer mute."""
        self._ended += 1
        self._mute_after = None
        self._mute.clear()

    def _accept(self):
        while not self._stopped.is_set():
            if not select.select([self._listener], [], [], 0.1)[0]:
                continue
            client = self._listener.accept()[0]
            thread = threading.Thread(target=self._serve, args=(client, self._ended), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client, ended):
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self.to)) as server:
            waiting = collections.deque()  # (when, to whom, what), in order; b"" for what: it has closed
            reading = [client, server]
            while not self._stopped.is_set() and self._ended == ended:
                for source in select.select(reading, [], [], 0.005)[0]:
                    data = source.recv(65536)
                    if source is client and self._word and self._word in data:
                        self._unanswered.add(client)
                        self.most_unanswered = max(self.most_unanswered, len(self._unanswered))
                    if source is client and self._mute_after is not None and self._mute_after in data:
                        self._mute.set()
                    if source is server and data and self._mute.is_set():
                        continue
                    if not data:
                        reading.remove(source)
                    waiting.append((time.monotonic() + self.delay_s, server if source is client else client, data))
                while waiting and not self._cut.is_set() and time.monotonic() >= waiting[0][0]:
                    _, target, data = waiting.popleft()
                    if target is client:
                        self._unanswered.discard(client)
                    if not data:
                        return
                    target.sendall(data)

    def close(self):
        self._stopped.set()
        for thread in self._threads:
            thread.join(5)
        self._listener.close()


@contextlib.contextmanager
def relay_to(port):
    made = Relay(port)
    try:
        yield made
    finally:
        made.close()
