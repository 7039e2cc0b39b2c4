"""How unusual is this value? An anomaly score for each step of a measured series.

The state of a sequence is an exponentially weighted mean and variance: three numbers, however long
the series. The score is the distance from the mean in standard deviations, judged before the value
itself is taken in.
"""

import math

from continuo import Refuse

settings = {"alpha": 0.05, "threshold": 3.0, "warmup": 30}


def load(model):
    given = model.config.get("handler") or {}
    settings.update({name: given[name] for name in settings if name in given})
    if not 0 < settings["alpha"] < 1:
        raise ValueError(f"handler.alpha must be between 0 and 1, got {settings['alpha']}")


def init(req):
    return {"count": 0, "mean": 0.0, "variance": 0.0}


def read_value(req):
    try:
        value = req.json
        value = float(value["value"] if isinstance(value, dict) else value)
    except (Refuse, KeyError, TypeError, ValueError):
        value = math.nan
    if not abs(value) < 1e100:  # not nan; and its square is finite, too
        raise Refuse('send a number below 1e100, as text or as {"value": 12.8}')
    return value


def step(state, req):
    value = read_value(req)
    distance = value - state["mean"]
    deviation = math.sqrt(state["variance"])
    score = 0.0
    if state["count"] >= settings["warmup"] and deviation > 0:
        score = distance / deviation
    if state["count"] == 0:
        state["mean"] = value
    else:
        alpha = settings["alpha"]
        state["mean"] += alpha * distance
        state["variance"] = (1 - alpha) * (state["variance"] + alpha * distance * distance)
    state["count"] += 1
    return {"anomaly": abs(score) >= settings["threshold"], "count": state["count"],
            "deviation": round(math.sqrt(state["variance"]), 3), "mean": round(state["mean"], 3),
            "score": round(score, 3), "value": value}
