#!/usr/bin/env python3
"""Draws the plots of docs/benchmarks.md as PNG and SVG. Needs matplotlib; bench/suite/main.py runs it.

    plots.py RESULTS.json FOLDER"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
# Text stays text in the SVG, and two runs on the same figures write the same bytes.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "continuo", "font.size": 9, "axes.grid": True,
                            "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False})
import matplotlib.pyplot as plt  # noqa: E402

import whose  # noqa: E402

OURS, CEILING, PEER = "#3f51b5", "#9e9e9e", "#e07b39"

#: Of the parts of a step, as in flame graphs: own code is blue and the kernel orange, darker for the server.
PARTS = {"load_us": CEILING, "server_own_us": OURS, "server_kernel_us": "#fb8c00", "worker_own_us": "#9fa8da",
         "worker_kernel_us": "#ffcc80", "idle": "#f0f0f0"}


def colour(title):
    return OURS if title.startswith("Continuo") else CEILING if title.startswith("ceiling") else PEER


def plain(title):
    return title.replace("`", "").removeprefix("ceiling: ")


def save(figure, folder, name):
    figure.tight_layout()
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)


def cells_at(group, connections):
    """(title, cell) of the rows that have figures."""
    return [(row["title"], row["cells"][connections]) for row in group["rows"]
            if "steps_per_s" in row["cells"].get(connections, {})]


def bars(results, figure_name, label, name, folder, at):
    """A panel for each group, with a bar for each row."""
    groups = [group for group in results["groups"] if cells_at(group, at)]
    if not groups:
        return
    heights = [len(cells_at(group, at)) + 1 for group in groups]
    figure, panels = plt.subplots(len(groups), 1, figsize=(8, 0.3 * sum(heights) + 0.6), squeeze=False,
                                  gridspec_kw={"height_ratios": heights})
    for panel, group in zip(panels[:, 0], groups):
        found = cells_at(group, at)[::-1]
        values = [cell[figure_name] for _, cell in found]
        drawn = panel.barh([plain(title) for title, _ in found], values, color=[colour(title) for title, _ in found])
        panel.bar_label(drawn, [f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in values], padding=3)
        panel.set_title(group["title"], loc="left", fontsize=10)
        panel.set_xlim(0, max(values) * 1.18)
        panel.grid(axis="y", visible=False)
    panels[-1, 0].set_xlabel(f"{label}, {at} connections or calls in flight")
    save(figure, folder, name)


def lines(results, figure_name, label, name, folder):
    """The figure over the number of connections, for the first group and the peers."""
    groups = [group for group in results["groups"] if group["name"] in ("http", "torchserve", "triton")]
    if not groups:
        return
    figure, panels = plt.subplots(1, len(groups), figsize=(4 * len(groups), 3.6), squeeze=False)
    for panel, group in zip(panels[0], groups):
        for number, row in enumerate(group["rows"]):
            points = [(int(n), cell[figure_name]) for n, cell in row["cells"].items() if figure_name in cell]
            if points:
                panel.plot(*zip(*points), marker="o", markersize=3, linewidth=1.4, color=colour(row["title"]),
                           linestyle=["-", "--", "-.", ":"][number % 4], label=plain(row["title"]))
        panel.set(xscale="log", yscale="log", xlabel="connections", ylabel=label)
        panel.set_title(group["title"], loc="left", fontsize=10)
        panel.legend(fontsize=7)
    save(figure, folder, name)


def peers(results, folder):
    """README's plot: how many times a peer's steps per second and CPU time."""
    ratios = [each for each in results["ratios"] if each["peer"]]
    if not ratios:
        return
    # On a busy machine steps per second say how the cores were shared out, so they are left out.
    shown = [("cpu", "CPU time of a step, other server / Continuo")]
    if not results["busy"]:
        shown.insert(0, ("steps", "steps/s, Continuo / other server"))
    figure, panels = plt.subplots(1, len(shown), figsize=(4.6 * len(shown), 2.9), squeeze=False)
    for panel, (what, label) in zip(panels[0], shown):
        names = list(dict.fromkeys(each["peer"] for each in ratios))
        for number, peer in enumerate(names):
            found = [each for each in ratios if each["peer"] == peer]
            at = [i + 0.38 * (number - (len(names) - 1) / 2) for i in range(len(found))]
            drawn = panel.bar(at, [each[what] for each in found], 0.36, color=(OURS, PEER)[number % 2],
                              label=f"beside {peer}")
            panel.bar_label(drawn, [f"{each[what]:.1f}" for each in found], fontsize=8)
            panel.set_xticks(range(len(found)), [each["connections"] for each in found])
        panel.axhline(1, color="black", linewidth=0.8)
        panel.set(xlabel="connections", title=label)
        panel.title.set_fontsize(10)
        panel.grid(axis="x", visible=False)
        panel.legend(fontsize=8)
    save(figure, folder, "peers")


def parts(results, folder, at):
    """A panel for each group, with a bar for each row: who takes the cores' time for a step. The bar of a peer may be
    many times as long, so it is cut off."""
    rows = [row for row in results["split"] if str(row["connections"]) == at]
    groups = list(dict.fromkeys(row["group"] for row in rows))
    if not groups:
        return
    heights = [sum(row["group"] == group for row in rows) + 1 for group in groups]
    figure, panels = plt.subplots(len(groups), 1, figsize=(8, 0.3 * sum(heights) + 1.1), squeeze=False,
                                  gridspec_kw={"height_ratios": heights})
    for panel, group in zip(panels[:, 0], groups):
        found = [row for row in rows if row["group"] == group][::-1]
        left = [0] * len(found)
        for number, (name, shade) in enumerate(PARTS.items()):
            widths = [row["parts_us"][number] for row in found]
            panel.barh([plain(row["title"]) for row in found], widths, left=left, color=shade,
                       label=whose.PARTS.get(name, whose.IDLE))
            left = [here + width for here, width in zip(left, widths)]
        shown = [row["total_us"] for row in found if colour(row["title"]) != PEER] or [row["total_us"] for row in found]
        limit = max(shown) * 1.1
        for place, row in enumerate(found):
            panel.text(min(row["total_us"], limit), place, f" {row['total_us']:,.1f}", va="center")
        panel.set_xlim(0, limit)
        panel.set_title(group, loc="left", fontsize=10)
        panel.grid(axis="y", visible=False)
    panels[0, 0].legend(fontsize=7, ncols=len(PARTS), loc="lower right", bbox_to_anchor=(1.08, 1.2 + 0.5 / heights[0]),
                        frameon=False, columnspacing=1)
    panels[-1, 0].set_xlabel(f"µs of all cores a step, {at} connections or calls in flight")
    save(figure, folder, "whose")


def main():
    results, folder = json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    at = "64" if "64" in map(str, results["connections"]) else str(results["connections"][-1])
    bars(results, "steps_per_s", "steps/s", "steps", folder, at)
    bars(results, "cpu_us", "µs of CPU a step, all processes of the server", "cpu", folder, at)
    lines(results, "p99_ms", "p99, ms", "latency", folder)
    peers(results, folder)
    parts(results, folder, at)


if __name__ == "__main__":
    main()
