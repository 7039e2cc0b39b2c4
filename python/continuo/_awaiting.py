"""Waits for what a handler of TorchServe's or a model.py of Triton's gives to be awaited."""

from __future__ import annotations

from typing import Any, Awaitable, Coroutine


def finish(result: Awaitable[Any]) -> Any:
    """Runs it in the worker's loop, in which requests that overlap run, too. A call that takes too
    long is cancelled there, so that it does not go on in a later batch. Main thread."""
    return run(awaited(result))


async def awaited(result: Awaitable[Any]) -> Any:
    """A coroutine, which runners need, of anything that can be awaited."""
    return await result


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    from continuo import _runtime

    return _runtime.finish(coroutine)
