"""The memory of an agent: what it has been told in a conversation, in a size that a language model can read.

The state of a sequence has the facts that the agent wants to keep, and the last turns of the conversation. An answer has
the messages for the next call of a language model, which the agent makes by itself.
"""

from continuo import Refuse

ROLES = ("user", "assistant")
settings = {"characters": 2000, "facts": 50}  # the bounds of what is kept; see model-config.yaml


def load(model):
    given = model.config.get("handler") or {}
    settings.update({name: int(given[name]) for name in settings if name in given})


def init(req):
    return {"facts": {}, "turns": []}


def text_of(value, what):
    if not isinstance(value, str) or not 0 < len(value) <= settings["characters"]:
        raise Refuse(f"{what} must be a text of 1 to {settings['characters']} characters")
    return value


def keep_facts(facts, new):
    if not isinstance(new, dict):
        raise Refuse('send facts as {"facts": {"name": "Anna"}}; null removes one')
    facts = {**facts, **new}
    facts = {name: text_of(value, f"the fact {name}") for name, value in facts.items() if value is not None}
    if len(facts) > settings["facts"]:
        raise Refuse(f"there are {len(facts)} facts, and {settings['facts']} are kept; remove one with null")
    return facts


def keep_turns(turns, role, text):
    """Returns the turns with the new one. The oldest go when all together are too long."""
    if role not in ROLES:
        raise Refuse(f"the role is {role!r}; it must be user or assistant")
    turns = [*turns, [role, text_of(text, "text")]]
    while sum(len(text) for _, text in turns) > settings["characters"]:
        turns = turns[1:]
    return turns


def step(state, req):
    told = req.json
    if not isinstance(told, dict) or not ("facts" in told or "text" in told):
        raise Refuse('send {"role": "user", "text": ...} or {"facts": {...}}, or both')
    facts = keep_facts(state["facts"], told.get("facts", {}))
    turns = keep_turns(state["turns"], told.get("role", "user"), told["text"]) if "text" in told else state["turns"]
    state.update(facts=facts, turns=turns)  # after all checks: a refused step changes nothing
    known = [f"{name}: {value}" for name, value in sorted(facts.items())]
    system = [{"role": "system", "content": "What is known: " + "; ".join(known)}] if known else []
    return {"messages": system + [{"role": role, "content": text} for role, text in turns]}
