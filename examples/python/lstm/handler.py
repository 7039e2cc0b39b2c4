"""A forecast of a series, by an LSTM in PyTorch whose state is the sequence's state.

Each request is the next value of a client's series, and the answer is what the model expects after
it. All rows of a batch go through the network together, as one tensor. The hidden state of each
sequence, two tensors, is committed with its step: a forecast after a crash equals the one without.

The weights here are drawn from a fixed seed, since this example is about state. Put
`torch.load(os.path.join(model.dir, "weights.pt"))` in their place.
"""

import torch

from continuo import Refuse

HIDDEN = 32
cell = head = None


def load(model):
    global cell, head
    torch.manual_seed(1)
    torch.set_num_threads(1)
    cell = torch.nn.LSTMCell(1, HIDDEN).eval()
    head = torch.nn.Linear(HIDDEN, 1).eval()


def init(req):
    return {"h": torch.zeros(HIDDEN), "c": torch.zeros(HIDDEN)}


def batch(states, reqs):
    values = [value_of(req) for req in reqs]
    with torch.inference_mode():
        x = torch.tensor([[0.0 if isinstance(value, Refuse) else value] for value in values])
        h = torch.stack([state["h"] for state in states])
        c = torch.stack([state["c"] for state in states])
        h, c = cell(x, (h, c))
        forecasts = head(h)[:, 0].tolist()
    for state, h_row, c_row in zip(states, h, c):
        state["h"], state["c"] = h_row.clone(), c_row.clone()  # not views of the whole batch
    return [value if isinstance(value, Refuse) else {"forecast": forecast}
            for value, forecast in zip(values, forecasts)]


def value_of(req):
    """The number; or, for a request that has none, the error that this row alone gets."""
    try:
        return float(req.text)
    except ValueError:
        return Refuse("send a number")
