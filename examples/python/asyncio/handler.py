"""A conversation whose answers come from elsewhere, with asyncio.

Each request is a line of text. The step asks three "experts" at once, streams what each says as
soon as it has an answer, and keeps the conversation in the sequence's state. An expert is a
coroutine that waits, as a call to another service or a database would; put yours in its place.
While one client's step waits, the worker runs the steps of all others.
"""

import asyncio


def init(req):
    return {"lines": []}


async def count(lines):
    await asyncio.sleep(0.3)
    return f"{sum(len(line.split()) for line in lines)} words so far"


async def longest(lines):
    await asyncio.sleep(0.2)
    return f"the longest word is {max(' '.join(lines).split(), key=len, default='')!r}"


async def first(lines):
    await asyncio.sleep(0.1)
    return f"you began with {lines[0]!r}"


async def step(state, req):
    lines = state["lines"] + [req.text.strip()]
    tasks = [asyncio.ensure_future(expert(lines)) for expert in (count, longest, first)]
    for task in asyncio.as_completed(tasks):
        yield await task + "\n"
    state["lines"] = lines
