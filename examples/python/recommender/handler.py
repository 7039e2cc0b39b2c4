"""What may this visitor want next? Recommendations from the items of one visit.

The state of a sequence is the list of the items that the visitor has seen last, the newest first. related.json says which
items other visitors have seen after an item, and how often.
"""

import json
import os

from continuo import Refuse

RECENT = 5      # items that count; an older one is forgotten, so the state stays small
FADING = 0.6    # what an item counts for each newer one
ANSWERS = 3

related = {}


def load(model):
    with open(os.path.join(model.dir, "related.json"), encoding="utf-8") as file:
        related.update(json.load(file))


def init(req):
    return {"seen": []}


def step(state, req):
    item = req.text.strip()
    if item not in related:
        raise Refuse(f"there is no item {item!r}; send one of {', '.join(sorted(related))}")
    state["seen"] = [item, *(seen for seen in state["seen"] if seen != item)][:RECENT]
    scores = {}
    for age, seen in enumerate(state["seen"]):
        for other, times in related[seen].items():
            scores[other] = scores.get(other, 0) + times * FADING ** age
    new = [other for other in scores if other not in state["seen"]]
    return {"next": sorted(new, key=lambda other: (-scores[other], other))[:ANSWERS]}
