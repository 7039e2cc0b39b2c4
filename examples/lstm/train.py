#!/usr/bin/env python3
"""Trains the LSTM on three years of daily weather, which takes some seconds, and saves it as TorchScript.

    .venv/bin/python examples/lstm/train.py lstm.pt [epochs]
"""

import sys

import torch

from weather import Weather, days, nothing_yet

WINDOW = 64


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = days()
    train, rest = data[:-365], data[-366:]
    model = Weather(train.mean(0), train.std(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    windows = train[:len(train) // WINDOW * WINDOW].reshape(-1, WINDOW, data.shape[1]).transpose(0, 1)
    for epoch in range(epochs):
        guess, _, _ = model.many(windows[:-1], *nothing_yet(windows.shape[1]))
        loss = torch.mean((guess[..., 0] - windows[1:, :, 0]) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 50 == 49:
            print(f"epoch {epoch + 1}: {loss.item() ** 0.5:.2f} degrees")
    model.eval()
    with torch.inference_mode():
        guess, _, _ = model.many(rest[:-1, None], *nothing_yet())
        off = torch.mean(torch.abs(guess[:, 0, 0] - rest[1:, 0])).item()
    print(f"the year it has not seen: {off:.2f} degrees off on average")
    torch.jit.script(model).save(sys.argv[1])


if __name__ == "__main__":
    main()
