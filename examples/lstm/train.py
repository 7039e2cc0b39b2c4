#!/usr/bin/env python3
"""Trains the LSTM on three years of daily weather, for about half a minute, and saves it as TorchScript.

    .venv/bin/python examples/lstm/train.py lstm.pt [epochs]
"""

import sys

import torch

from weather import Weather, days, nothing_yet

WINDOW = 64


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    torch.manual_seed(1)
    data = days()
    train, rest = data[:-365], data[-366:]
    model = Weather(train.mean(0), train.std(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    windows = train[:len(train) // WINDOW * WINDOW].reshape(-1, WINDOW, data.shape[1]).transpose(0, 1)
    for epoch in range(epochs):
        h, c = nothing_yet(windows.shape[1])
        loss = 0
        for day, tomorrow in zip(windows[:-1], windows[1:]):
            guess, h, c = model(day, h, c)
            loss = loss + torch.mean((guess[:, 0] - tomorrow[:, 0]) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: {(loss.item() / (WINDOW - 1)) ** 0.5:.2f} degrees")
    model.eval()
    with torch.inference_mode():
        h, c = nothing_yet()
        errors = []
        for day, tomorrow in zip(rest[:-1], rest[1:]):
            guess, h, c = model(day[None], h, c)
            errors.append(abs(guess.item() - tomorrow[0].item()))
    print(f"the year it has not seen: {sum(errors) / len(errors):.2f} degrees off on average")
    torch.jit.script(model).save(sys.argv[1])


if __name__ == "__main__":
    main()
