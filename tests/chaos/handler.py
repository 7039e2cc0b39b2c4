"""The model of the chaos test in Python. Its answers equal those of handler.lua to the last character.

Its state also has a tuple and an int of any size, which a Lua state cannot have."""

import re

state_schema = SCHEMA  # noqa: F821 (the test fills it in)
COMMAND = re.compile(r"([+~?=])([0-9]*)\Z")


def init(req):
    return {"sum": 0, "steps": 0, "order": 0, "padding": "", "twin": (0, 1 << 100)}


def step(state, req):
    from continuo import Refuse

    found = COMMAND.match(req.text)
    command, number = (found.group(1), found.group(2)) if found else ("", "")
    if command in "+~" and number:
        assert state["twin"] == (state["sum"], (1 << 100) + state["steps"])
        state["sum"] += int(number)
        state["steps"] += 1
        state["order"] = (state["order"] * 31 + int(number)) % 2147483647
        state["twin"] = (state["sum"], (1 << 100) + state["steps"])
        if command == "~":
            return in_pieces(answer(state))
    elif command == "=" and number:
        state["padding"] = "x" * int(number)
    elif command != "?":
        raise Refuse("send +N, ~N, =N or ?", 400)
    return answer(state)


def answer(state):
    return f"{state['sum']} {state['steps']} {state['order']}"


def in_pieces(text):
    yield "."
    yield "."
    return text


def migrate(state, from_schema, version):
    return state
