"""The models that the checks serve, each with its YAML and its reference: what PyTorch computes for one sequence alone,
on the same device. Needs PyTorch only."""

import pathlib

import torch

HERE = pathlib.Path(__file__).resolve().parent
UNITS = 128


class Gru(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRUCell(16, UNITS)
        self.out = torch.nn.Linear(UNITS, 4)

    def forward(self, x, h):
        h = self.cell(x, h)
        return self.out(h), h


class Lstm(torch.nn.Module):
    """A model with two states, whose batch axis is the second one."""

    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(16, UNITS, 2, batch_first=True)
        self.out = torch.nn.Linear(UNITS, 4)

    def forward(self, x, h, c):
        y, (h, c) = self.lstm(x.unsqueeze(1), (h, c))
        return self.out(y[:, 0]), h, c


class Hungry(torch.nn.Module):
    """Uses as many GiB as the input says during the step."""

    def forward(self, x, h):
        gib = int(x.flatten()[0].item())
        room = torch.zeros([gib, 1 << 28], dtype=torch.float32, device=x.device)
        return x + room.flatten()[:1].sum() if gib > 0 else x, h + 1.0


YAML = """sequenceBatching: true
batchSize: 16
maxBatchSize: 16
minWorkers: {workers}
maxWorkers: {workers}
deviceType: {device}
"""
GRU = """inputs: [{name: x, dataType: FP32, dims: [16]}]
outputs: [{name: y, dataType: FP32, dims: [4]}]
state: {tensors: [{name: h, dataType: FP32, dims: [128]}]}
"""
LSTM = """inputs: [{name: x, dataType: FP32, dims: [16]}]
outputs: [{name: y, dataType: FP32, dims: [4]}]
state:
  tensors:
    - {name: h, dataType: FP32, dims: [2, 128], batchAxis: 1}
    - {name: c, dataType: FP32, dims: [2, 128], batchAxis: 1}
"""
HUNGRY = """inputs: [{name: x, dataType: FP32, dims: [1]}]
outputs: [{name: y, dataType: FP32, dims: [1]}]
state: {tensors: [{name: h, dataType: FP32, dims: [1]}]}
torch: {buckets: [1]}
"""


PYTHON = """
import torch


def load(model):
    global net, device
    device = model.device
    net = torch.jit.load("gru.pt", map_location=device)


def init(req):
    return {"h": [0.0] * 128}


@torch.inference_mode()
def step(state, req):
    x = torch.tensor(req.json["x"], device=device)
    y, h = net(x, torch.tensor([state["h"]], device=device))
    assert y.device.type == device.partition(":")[0]
    state["h"] = h[0].tolist()
    return {"y": y.tolist()}
"""
TORCHSERVE = """
import json

import torch
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    def preprocess(self, data):
        return torch.tensor([json.loads(row["body"])["x"][0] if isinstance(row["body"], (str, bytes)) else row["body"]["x"][0]
                             for row in data], device=self.device)

    def inference(self, x):
        y, _ = self.model(x, torch.zeros(len(x), 128, device=self.device))
        return y

    def postprocess(self, y):
        return [{"y": [row.tolist()], "device": str(y.device)} for row in y]
"""


def yaml(rest, device, workers=1, ids=None):
    text = YAML.format(workers=workers, device=device)
    return text + (f"deviceIds: {ids}\n" if ids else "") + rest


def save(folder):
    """Writes the scripted models; returns {name: module}."""
    torch.manual_seed(7)
    modules = {"gru": Gru().eval(), "lstm": Lstm().eval(), "hungry": Hungry().eval()}
    for name, module in modules.items():
        torch.jit.script(module).save(str(folder / f"{name}.pt"))
    return modules


@torch.inference_mode()
def gru_reference(module, steps, device):
    h = torch.zeros(1, UNITS, device=device)
    given = []
    for x in steps:
        y, h = module(torch.tensor([x], device=device), h)
        given.append(y[0].tolist())
    return given


@torch.inference_mode()
def lstm_reference(module, steps, device):
    h = c = torch.zeros(2, 1, UNITS, device=device)
    given = []
    for x in steps:
        y, h, c = module(torch.tensor([x], device=device), h, c)
        given.append(y[0].tolist())
    return given


@torch.inference_mode()
def vad_reference(path, chunks, device):
    module = torch.jit.load(str(path), map_location=device)
    return [module(torch.tensor([chunk], device=device), 16000)[0].tolist() for chunk in chunks]
