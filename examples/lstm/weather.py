"""The model of this example and its data: what train.py trains and check.py compares with."""

import csv
import pathlib

import torch

DATA = pathlib.Path(__file__).resolve().parents[1] / "anomaly" / "data" / "seattle-weather.csv"
COLUMNS = ("temp_max", "temp_min", "precipitation", "wind")
WIDTH = 32


def days():
    """All days, one row each, as measured."""
    with open(DATA, newline="", encoding="utf-8") as file:
        return torch.tensor([[float(row[name]) for name in COLUMNS] for row in csv.DictReader(file)])


class Weather(torch.nn.Module):
    """One day in, tomorrow's highest temperature out; h and c are what it remembers of a place."""

    def __init__(self, mean, spread):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)
        self.lstm = torch.nn.LSTM(len(COLUMNS), WIDTH)
        self.out = torch.nn.Linear(WIDTH, 1)

    def many(self, days, h, c):
        """Days in a row, [days, rows, columns]: for training."""
        y, (h, c) = self.lstm((days - self.mean) / self.spread, (h, c))
        return self.out(y) * self.spread[0] + self.mean[0], h, c

    def forward(self, day, h, c):
        guess, h, c = self.many(day[None], h, c)
        return guess[0], h, c


def nothing_yet(rows=1):
    return torch.zeros(1, rows, WIDTH), torch.zeros(1, rows, WIDTH)
