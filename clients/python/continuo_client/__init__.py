"""A client for Continuo, a model server for stateful inference.

    from continuo_client import Client
    with Client("http://127.0.0.1:8080").sequence("average") as s:
        for number in 4, 8, 15:
            print(s.step(number).data)

docs/clients.md describes it. AsyncClient has the same methods for asyncio. `errors` has a class
for each error of the server."""

from . import errors
from ._steps import Answer
from .aio import AsyncClient, AsyncSequence, AsyncStream
from .client import Client, Sequence, Stream
from .errors import ClientTimeoutError, ConnectionFailedError, ContinuoError, StreamClosedError

__version__ = "0.1.0"
__all__ = ["Answer", "AsyncClient", "AsyncSequence", "AsyncStream", "Client",
           "ClientTimeoutError", "ConnectionFailedError", "ContinuoError", "Sequence", "Stream",
           "StreamClosedError", "errors"]
