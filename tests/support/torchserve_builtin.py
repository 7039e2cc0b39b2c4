"""Tiny models for TorchServe's own handlers, and what they are asked: one for each handler.

    PYTHON tests/support/torchserve_builtin.py FOLDER    with a Python that has torch and pillow

makes the files of MODELS in the folder.
"""

import base64
import json
import pathlib
import subprocess
import sys

#: TorchServe's handler: (its model, further files of its archive)
MODELS = {
    "image_classifier": ("classifier.pt", ["index_to_name.json"]),
    "image_segmenter": ("segmenter.pt", []),
    "object_detector": ("detector.pt", ["index_to_name.json"]),
    "text_classifier": ("text.pt", ["source_vocab.pt"]),
}
NEEDS = ("torch", "torchvision", "captum", "ts")
WORDS = ["a", "fine", "day", "a fine", "fine day"]


def missing(python):
    """What the interpreter lacks for these handlers, in one line; "" if it has everything."""
    run = subprocess.run([python, "-c", f"import {', '.join(NEEDS)}"], capture_output=True, text=True, check=False)
    return "" if run.returncode == 0 else (run.stderr.strip().splitlines() or ["it does not start"])[-1]


def make(folder, python):
    subprocess.run([python, __file__, folder], check=True)


def requests(folder):
    """(case, handler, endpoint, body, content type) for each request."""
    picture = (pathlib.Path(folder) / "picture.png").read_bytes()
    for name in ("image_classifier", "object_detector"):
        yield "a picture", name, "predictions", picture, None
        yield "a picture of a type", name, "predictions", picture, "image/png"
        yield "a picture in base64", name, "predictions", base64.b64encode(picture).decode(), "text/plain"
        yield "no picture", name, "predictions", b"no", None
    yield "a picture", "image_segmenter", "predictions", picture, None
    yield "numbers", "image_segmenter", "predictions", json.dumps([[[0.5, 1], [0, 0.25]]] * 3), "application/json"
    yield "text", "text_classifier", "predictions", "A fine day", "text/plain"
    yield "bytes", "text_classifier", "predictions", b"A <b>fine</b> day", None
    yield "an unknown word", "text_classifier", "predictions", "nonsense", "text/plain"


def write_models(folder):
    import torch  # only the interpreter that makes them has it
    from PIL import Image

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.out = torch.nn.Linear(3, 6)

        def forward(self, x):
            return self.out(x.mean(dim=[2, 3]))

    class Segmenter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.out = torch.nn.Conv2d(3, 4, 1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.out(x)}

    class Detector(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[dict[str, torch.Tensor]]:
            found: list[dict[str, torch.Tensor]] = []
            for i in range(x.size(0)):
                bright = x[i].mean()
                found.append({"boxes": torch.tensor([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]),
                              "labels": torch.tensor([2, 1]),
                              "scores": torch.stack([0.5 + bright / 2, bright / 10])})
            return found

    class Text(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.EmbeddingBag(len(WORDS), 4)
            self.out = torch.nn.Linear(4, 3)

        def forward(self, text: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            return self.out(self.embedding(text, offsets))

    torch.manual_seed(1)
    for file, model in {"classifier.pt": Classifier(), "segmenter.pt": Segmenter(), "detector.pt": Detector(),
                        "text.pt": Text()}.items():
        torch.jit.script(model.eval()).save(str(folder / file))
    torch.save({word: number for number, word in enumerate(WORDS)}, folder / "source_vocab.pt")
    names = {str(number): name for number, name in enumerate(["cat", "dog", "bird", "fish", "ant", "bee"])}
    (folder / "index_to_name.json").write_text(json.dumps(names))
    Image.linear_gradient("L").convert("RGB").resize((40, 30)).save(folder / "picture.png")


if __name__ == "__main__":
    write_models(pathlib.Path(sys.argv[1]))
