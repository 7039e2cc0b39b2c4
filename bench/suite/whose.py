"""Whose microseconds: who takes the cores' time while a step is done, and how many steps a server could do at most."""

import goals

#: Figures of a cell and their words, in the order of the table and of the plot. What is left of the cores is idle.
PARTS = {"load_us": "load tool", "server_own_us": "server, own code", "server_kernel_us": "server, kernel",
         "worker_own_us": "workers, own code", "worker_kernel_us": "workers, kernel"}
IDLE = "idle"


def wanted():
    """{group: {row: numbers of connections}} of the rows that belong to goals."""
    found = {}
    for _, group, row, base, _, counts in goals.CPU:
        found.setdefault(group, {}).update({row: counts, base: counts})
    for _, group, row, base, counts in goals.STEPS:
        found.setdefault(group, {}).update(dict.fromkeys((row, base, *goals.CEILINGS[group]), tuple(counts)))
    return found


def split(results):
    """The parts of a step of each of these rows. A file from before there were such parts has none."""
    found = []
    for group in results["groups"]:
        rows = wanted().get(group["name"], {})
        for n in sorted({n for counts in rows.values() for n in counts}):
            for row in group["rows"]:
                cell = row["cells"].get(str(n), {})
                if n not in rows.get(row["name"], ()) or not all(part in cell for part in ("steps_per_s", *PARTS)):
                    continue
                parts = [cell[part] for part in PARTS]
                total = results["cores"] * 1e6 / cell["steps_per_s"]
                found.append({"group": group["title"], "title": row["title"], "connections": n, "total_us": total,
                              "parts_us": [*parts, max(0, total - sum(parts))]})
    return found


def least(results, group, rows, figure, connections):
    """The smallest figure of these rows, or None."""
    return min((found[figure] for row in rows if figure in (found := goals.cell(results, group, row, connections))),
               default=None)


def most(results, group, connections):
    """The steps per second of a server that took no time itself, if load tool and sockets take theirs; or None. With one
    connection the two wait for each other, so their sum does not bound them."""
    load = least(results, group, wanted()[group], "load_us", connections)
    sockets = least(results, group, goals.CEILINGS[group], "server_kernel_us", connections)
    return results["cores"] * 1e6 / (load + sockets) if connections > 1 and load and sockets else None


def bounds(results):
    """For each peer: how many times its steps per second the bare echo has, and how many any server could have."""
    found = []
    for group, base in dict.fromkeys((group, base) for _, group, _, base, _ in goals.STEPS):
        for n in results["connections"]:
            theirs = goals.cell(results, group, base, n).get("steps_per_s")
            echo = goals.ceiling(results, group, base, "steps_per_s", n)
            if theirs and echo:
                bound = most(results, group, n)
                found.append({"peer": goals.PEERS[group], "connections": n, "steps_per_s": theirs, "echo": echo,
                              "most": bound / theirs if bound else None})
    return found
