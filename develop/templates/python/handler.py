from continuo import Refuse


def init(req):
    """Returns the state of a new sequence, which the server stores after each step."""
    return {"count": 0, "mean": 0.0}


def step(state, req):
    """Does one step of a sequence: changes the state in place and returns the answer."""
    try:
        x = float(req.text)
    except ValueError:
        raise Refuse("send a number", 400) from None  # the state stays as it was
    state["count"] += 1
    state["mean"] += (x - state["mean"]) / state["count"]
    return {"count": state["count"], "mean": state["mean"]}
