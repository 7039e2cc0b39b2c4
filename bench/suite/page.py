"""Writes docs/benchmarks.md from the results of bench/suite/main.py."""

import datetime
import statistics

import goals
import whose

HEAD = """# Benchmarks

This page and its plots are written by one command, `bench/suite.sh`. It builds Continuo, installs the other servers from the package registries, starts each system, measures, and draws. `bench/suite.sh --quick` has one short round and writes such a page into `build/suite`. [performance.md](performance.md) has more measurements, and the reasons behind the figures.

{facts}

![Steps per second and CPU time of a step: Continuo compared with TorchServe and Triton](benchmarks/peers.svg)

{short}
## How it is measured

- The rows of a table run in alternated rounds: each round has one run of each row, and every second round has the opposite order. One system is measured at a time, and all processes of the others are stopped meanwhile. There were {rounds} rounds; a run took {seconds:g} s. Each figure is the median of the rounds, and each ratio is the median of the ratios of the rounds.
- The load comes from the [load tools](performance.md#the-load-tools): a closed loop, {processes} processes, every answer checked. One table has figures of wrk, a load tool that is not ours. A run in which a process of the load tool ran for more than 90 % of the time is refused and does not count.
- *CPU a step* is the CPU time of all processes of the server, divided by the steps that it answered. It depends less on other load than steps per second do.
- Server and load tool share the same cores.
"""


def number(value, digits=0):
    return f"{value:,.{digits}f}"


def ratio(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def plot(name, words):
    return f"![{words}](benchmarks/{name}.svg)\n"


def machine_facts(results):
    lines = [f"Measured on {results['date']} at commit {results['commit']}: {results['machine']}.",
             results.get("note") or f"Other programs used {' and '.join(f'{used:.2f}' for used in results['used_cores'])} "
             f"of its {results['cores']} cores before and after the measurement."]
    if results["busy"]:
        lines.append("**Other programs wanted these cores, too.** The CPU time of a step suffers least from "
                     "that, but it is higher than on a quiet machine, too, because caches are colder; `bench/cpu.py` measures "
                     "it in many short rounds, and takes those that other programs disturbed least. Steps per second and "
                     "latencies say how the cores were shared out at that moment: they are much worse than on a quiet "
                     "machine, their ratios vary as widely as the last column says, and a system with more threads gets a "
                     "larger part of the cores. [performance.md](performance.md) has figures from quiet machines.")
    lines.append("Versions: " + ", ".join(f"{name} {version}" for name, version in results["versions"].items()) + ".")
    return " ".join(lines[:3 if results["busy"] else 2]) + "\n\n" + lines[-1]


def spread(values):
    """The smallest and the largest ratio of the rounds."""
    return f"{ratio(min(values))} to {ratio(max(values))}" if values else ""


def row_line(row, connections, base):
    cell = row["cells"].get(connections, {})
    if "steps_per_s" not in cell:
        why = row.get("missing") or (f"refused {cell.get('refused', 0)} times: the load tool was slower than the server"
                                     if cell.get("refused") else f"no step was answered ({cell.get('errors', 0)} errors)")
        return f"| {connections} | {row['title']} | {why} | | | | | | |"
    other = base["cells"].get(connections, {})
    steps, cpu = (goals.of_rounds(cell, other, name) for name in ("steps_per_s", "cpu_us"))
    times = [ratio(statistics.median(each)) if each else "" for each in (steps, cpu)]
    latency = " / ".join(number(cell[name], 2) for name in ("p50_ms", "p99_ms", "p999_ms"))
    errors = f" ({cell['errors']} errors)" if cell["errors"] else ""
    return (f"| {connections} | {row['title']} | {number(cell['steps_per_s'])}{errors} | {times[0]} | {latency} | "
            f"{number(cell['cpu_us'], 1)} | {times[1]} ({spread(cpu)}) | {cell['client_busiest_share']:.0%} | {spread(steps)} |")


def group_text(group, connections):
    rows = {row["name"]: row for row in group["rows"]}
    bases = {row["base"] for row in group["rows"]}
    words = "the ceiling with the same requests"
    if len(bases) == 1:
        words = f"the row \"{rows[group['base']]['title'].removeprefix('ceiling: ')}\""
    text = [f"## {group['title']}\n", group["about"] + f" Ratios are those to {words}.\n",
            "| connections | system | steps/s | ratio | p50 / p99 / p99.9, ms | CPU a step, µs | ratio of the CPU (in the rounds) | "
            "load tool's share of a core | ratio of steps/s in the rounds |", "|---" * 9 + "|"]
    for count in group.get("connections", connections):
        text += [row_line(row, str(count), rows[row["base"]]) for row in group["rows"]]
    return "\n".join(text) + "\n"


def kept(value):
    return "no answer in time" if value is None else "kept" if value else "**lost**"


def ms(value):
    return "" if value is None else f"{value:,.0f}"


def facts_text(results):
    text = ["## Memory, start and recovery\n",
            "One run for each row. *Start* and *server killed* count from the start of the process to the first answered "
            "step, and include the interpreter or the Java machine. *Worker killed* counts from `kill -9` of the process "
            "that runs the handler to the next answered step. *Sum* says whether the sequence went on where it was; \"no answer in time\" means none within 60 s. Memory "
            "is that of all processes (PSS). The memory of a sequence is the growth over the opened sequences, "
            "server and worker together; over a thousand sequences it is mostly noise.\n",
            "| system | start, ms | idle, MB | memory of a sequence, bytes | opened | worker killed, ms | sum | "
            "server killed, ms | sum |", "|---" * 9 + "|"]
    for fact in results["facts"]:
        if "missing" in fact:
            text.append(f"| {fact['title']} | {fact['missing']} | | | | | | | |")
            continue
        per = fact["sequence_bytes"]
        text.append(f"| {fact['title']} | {ms(fact['start_ms'])} | {fact['idle_bytes'] / 1e6:.1f} | "
                    f"{number(per) if per is not None else 'not opened: ' + str(fact['sequence_problem'])} | "
                    f"{fact['opened']:,} | {ms(fact['worker_ms'])} | {kept(fact['worker_kept'])} | {ms(fact['server_ms'])} | "
                    f"{kept(fact['server_kept'])} |")
    return "\n".join(text) + "\n"


#: The rows of the summary: words, group, row, and the row to which the figure is a ratio (None: the figure itself).
SHORT = [
    ("HTTP, handler in Lua: steps/s", "http", "http-lua", None, "steps_per_s"),
    ("its p99, ms", "http", "http-lua", None, "p99_ms"),
    ("its CPU a step, µs", "http", "http-lua", None, "cpu_us"),
    ("its steps/s, divided by those of the bare echo", "http", "http-lua", "http-mhd", "steps_per_s"),
    ("gRPC `Predictions`: steps/s", "grpc", "grpc-unary", None, "steps_per_s"),
    ("gRPC `StreamPredictions2`: steps/s", "grpc", "grpc-bidi", None, "steps_per_s"),
    ("steps/s, divided by TorchServe's, the same handler", "torchserve", "ts-ours", "ts-theirs", "steps_per_s"),
    ("steps/s, divided by Triton's, the same model.py", "triton", "tr-ours", "tr-theirs", "steps_per_s"),
    ("steps/s, divided by Triton's, the model in Lua", "triton", "tr-lua", "tr-theirs", "steps_per_s"),
]
DIGITS = {"steps_per_s": 0, "p99_ms": 2, "cpu_us": 1}


def short_text(results):
    """The figures that most readers come for, and how many goals are missed."""
    counts = results["connections"]
    text = ["## In short\n", f"| connections | {' | '.join(map(str, counts))} |", "|---" * (len(counts) + 1) + "|"]
    for words, group, row, base, figure in SHORT:
        if base:
            values = [goals.quotient(results, group, row, base, figure, count) for count in counts]
            shown = ["" if value is None else ratio(value) for value in values]
        else:
            values = [goals.cell(results, group, row, count).get(figure) for count in counts]
            shown = ["" if value is None else number(value, DIGITS[figure]) for value in values]
        if any(shown):
            text.append(f"| {words} | {' | '.join(shown)} |")
    judged = [goal for goal in results["goals"] if goal["judged"]]
    missed = sum(not goal["reached"] for goal in judged)
    bare = sum(not goal["reached"] and goal["ceiling"] is not None and not goal["ceiling_reached"] for goal in judged)
    also = f", {bare} of them also by a bare echo, or by one that had Continuo's workers" if bare else ""
    text.append(f"\n{missed} of {len(judged)} goals are missed{also}; [the last section](#goals) has all of them.\n")
    return "\n".join(text)


SPLIT = """At 100,000 steps/s, {cores} cores have {each:g} µs for each step. The table says who takes this time, in the rows that belong to goals: the load tool, the server, and its workers. The time of server and workers is divided into their own code and what the kernel does for them, which is mostly sockets. *Idle* is what is left of the cores, with what other programs took. Continuo without `--busy-wait 0` and one of the echoes poll, and so take time that would be idle otherwise. The sum of own code and kernel is exact. The kernel's clock ticks divide it, so each of the two is good to about a tenth of the sum.
"""
BOUNDS = """The next table says how many steps/s any server could do on these cores, as multiples of those of the other server. *A bare echo* is the better one of the two echoes, which get the same requests in the same rounds. *At most* is what a server could do whose own code takes no time: the cores are shared by the load tool and the kernel's work for the echo's sockets only, each with its smallest figure in the table. With one connection there is no such bound, because load tool and server wait for each other.
"""


def split_text(results):
    """The parts of a step's time, and how many steps a server could do at most."""
    if not results["split"]:
        return "## Whose microseconds\n\nThis measurement does not say who took the time of a step.\n"
    names = [*whose.PARTS.values(), whose.IDLE]
    text = ["## Whose microseconds\n", SPLIT.format(cores=results["cores"], each=results["cores"] * 10),
            plot("whose", "Who takes the time of the cores for a step"),
             f"| system | connections | all, µs | {' | '.join(names)} |", "|---" * (3 + len(names)) + "|"]
    group = None
    for row in results["split"]:
        if row["group"] != group:
            group = row["group"]
            text.append(f"| **{group}** |" + " |" * (2 + len(names)))
        figures = [number(us, 1) for us in (row["total_us"], *row["parts_us"])]
        text.append(f"| {row['title']} | {row['connections']} | {' | '.join(figures)} |")
    bounds = [] if results["busy"] else results["bounds"]  # on a busy machine, they are those of the other programs
    if bounds:
        text += ["", BOUNDS, "| other server | connections | its steps/s | a bare echo | at most |", "|---" * 5 + "|"]
    for row in bounds:
        text.append(f"| {row['peer']} | {row['connections']} | {number(row['steps_per_s'])} | {ratio(row['echo'])} | "
                    f"{ratio(row['most']) if row['most'] else ''} |")
    return "\n".join(text) + "\n"


BARE = """The last column says what a bare echo makes of a goal that Continuo misses: the better one of two echoes, with the same requests, in the same rounds and on the same cores. If it misses a goal for steps/s, too, then the load tool and the kernel's sockets leave too little of the cores: [whose microseconds](#whose-microseconds) has their parts. A p99 that it misses proves less, because a p99 also depends on the order in which the kernel runs the processes. For CPU time the column has the bare echo and Continuo's workers together: what a server with these workers takes if it does no more than the echo does.
"""


def verdict(reached):
    return "reached" if reached else "**missed**"


def goal_line(goal, bare):
    """`bare`: the table has a column for the bare echo."""
    line = (f"| {goal['what']} | {goal['connections']} | {ratio(goal['measured'])} | {goal['goal']} | "
            f"{verdict(goal['reached'])} |")
    if not bare:
        return line
    if goal["reached"] or goal["ceiling"] is None:
        return line + " |"
    return line + f" {ratio(goal['ceiling'])}, {verdict(goal['ceiling_reached'])} |"


def goals_text(results):
    """What the figures say about the goals, and where we lose."""
    judged = [goal for goal in results["goals"] if goal["judged"]]
    bare = any(goal["ceiling"] is not None for goal in judged)
    text = ["## Goals\n"]
    if len(judged) < len(results["goals"]):
        text.append("Goals for steps per second and for latencies are not judged here, because the machine was busy.\n")
    text += [BARE] if bare else []
    text += ["| what | connections | measured | goal | |" + " a bare echo |" * bare, "|---" * (5 + bare) + "|"]
    return "\n".join(text + [goal_line(goal, bare) for goal in judged]) + "\n"


def write(results, path):
    head = HEAD.format(facts=machine_facts(results), short=short_text(results), rounds=results["rounds"],
                       seconds=results["seconds"], processes=results["processes"])
    parts = [head, plot("steps", "Steps per second of all systems"),
             plot("cpu", "CPU time of a step of all systems"), plot("latency", "99th percentile of the latency")]
    parts += [group_text(group, results["connections"]) for group in results["groups"]]
    parts += [facts_text(results)] if results["facts"] else []
    parts += [split_text(results), goals_text(results)]
    path.write_text("\n".join(parts), encoding="utf-8")


def today():
    return datetime.date.today().isoformat()
