#!/usr/bin/env python3
"""The LSTM of examples/lstm, for scripts/try_packages.sh. Needs PyTorch.
    scripts/try_lstm.py make FOLDER             writes lstm.pt, lstm.yaml, days (a request in each line) and expected
    scripts/try_lstm.py check FOLDER ANSWERS    compares a file of answers with what PyTorch has computed
The weights are random: they decide every answer as those of a trained model do."""

import json
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "lstm"
DAYS = 4
TOLERANCE = 1e-4  # degrees


def make(folder):
    sys.path.insert(0, str(EXAMPLE))
    import torch  # pylint: disable=import-outside-toplevel
    import weather  # pylint: disable=import-outside-toplevel,import-error
    torch.manual_seed(1)
    data = weather.days()
    model = torch.jit.script(weather.Weather(data.mean(0), data.std(0)).eval())
    model.save(str(folder / "lstm.pt"))
    (h, c), bodies, expected = weather.nothing_yet(), [], []
    with torch.inference_mode():
        for day in data[:DAYS]:
            guess, h, c = model(day[None], h, c)
            bodies.append(json.dumps({"day": [day.tolist()]}))
            expected.append(guess.item())
    (folder / "days").write_text("".join(f"{body}\n" for body in bodies), encoding="utf-8")
    (folder / "expected").write_text(json.dumps(expected), encoding="utf-8")
    shutil.copy(EXAMPLE / "model-config.yaml", folder / "lstm.yaml")


def check(folder, answers):
    expected = json.loads((folder / "expected").read_text(encoding="utf-8"))
    got = [json.loads(line)["tomorrow"][0][0] for line in answers.read_text(encoding="utf-8").splitlines() if line]
    if len(got) != len(expected):
        sys.exit(f"the LSTM gave {len(got)} answers, and not {len(expected)}")
    worst = max(abs(a - b) for a, b in zip(got, expected))
    print(f"try: {len(got)} answers of the LSTM, at most {worst:.1e} degrees from PyTorch's")
    if not worst <= TOLERANCE:
        sys.exit("that is too much")


def main():
    words = sys.argv[1:]
    if len(words) == 2 and words[0] == "make":
        make(pathlib.Path(words[1]))
    elif len(words) == 3 and words[0] == "check":
        check(pathlib.Path(words[1]), pathlib.Path(words[2]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
