"""Checks which versions of Python an archive runs with: the key "python" of its manifest."""

from __future__ import annotations

import json
import os
import sys
from typing import Sequence, Tuple


def parse(text: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part != "*")


def accepts(constraint: str, version: Sequence[int]) -> bool:
    """Returns whether the version meets all parts of a constraint such as ">=3.9,<3.14"."""
    return all(_meets(part.strip(), tuple(version)) for part in constraint.split(","))


def _meets(part: str, version: Tuple[int, ...]) -> bool:
    operator = part[:2] if part[1:2] == "=" else part[:1]
    text = part[len(operator):].strip()
    wanted = parse(text)
    size = max(len(wanted), len(version))
    low, mine = _padded(wanted, size), _padded(version, size)
    if operator in ("==", "!="):
        same = version[:len(wanted)] == wanted if text.endswith("*") else mine == low
        return same == (operator == "==")
    if operator == "~=":
        return mine >= low and version[:len(wanted) - 1] == wanted[:-1]
    return {">=": mine >= low, "<=": mine <= low, ">": mine > low, "<": mine < low}[operator]


def _padded(version: Tuple[int, ...], size: int) -> Tuple[int, ...]:
    return version + (0,) * (size - len(version))


def problem(folder: str) -> str:
    """Returns why this interpreter cannot run the archive in this folder, or "" if it can."""
    try:
        with open(os.path.join(folder, "MAR-INF", "MANIFEST.json"), encoding="utf-8") as file:
            constraint = json.load(file).get("python")
    except (OSError, ValueError, AttributeError):
        return ""
    if not constraint or accepts(constraint, sys.version_info[:3]):
        return ""
    return (f"the archive needs Python {constraint}, and {sys.executable} is Python "
            f"{'.'.join(map(str, sys.version_info[:3]))}: name another interpreter with the key "
            f"python of the model's YAML, or with --python")
