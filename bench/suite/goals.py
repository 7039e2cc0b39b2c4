"""The goals of docs/benchmarks.md, and how far the results are from them. Each is a ratio of two rows."""

import statistics

#: What, group, row, base row, and the goal: for CPU the highest ratio, with each of these connections; for steps the
#: lowest ratio, {connections: goal}.
CONNECTIONS, LARGE = (16, 64, 256), (4,)
CPU = [
    ("CPU a step of server and worker, HTTP and Lua, `--busy-wait 0`, to the bare echo", "http", "http-lua-asleep",
     "http-mhd", 1.8, CONNECTIONS),
    ("the same for gRPC unary, to the bare C core", "grpc", "grpc-unary-asleep", "grpc-core-unary", 1.8, CONNECTIONS),
    ("the same for a gRPC stream, to the bare C core", "grpc", "grpc-bidi-asleep", "grpc-core-bidi", 1.8, CONNECTIONS),
    ("CPU a request, v2 binary, `--busy-wait 0`, to the bare echo", "v2", "v2-binary-asleep", "v2-mhd-binary", 1.6, CONNECTIONS),
    ("CPU a request of 1 MB, v2 binary, `--busy-wait 0`, to the bare echo", "large", "mb-binary", "mb-mhd", 1.2, LARGE),
    ("CPU a request of 1 MB, gRPC, `--busy-wait 0`, to the bare C core", "large", "mb-grpc", "mb-core", 1.2, LARGE),
    ("CPU a request of 10 MB, v2 binary, `--busy-wait 0`, to the bare echo", "large", "10mb-binary", "10mb-mhd", 1.7, LARGE),
    ("CPU a request of 10 MB, gRPC, `--busy-wait 0`, to the bare C core", "large", "10mb-grpc", "10mb-core", 1.7, LARGE),
]
STEPS = [
    ("steps/s to TorchServe's, the same handler", "torchserve", "ts-ours", "ts-theirs", {1: 12, 16: 15, 64: 12, 256: 10}),
    ("steps/s to Triton's, the model in Lua", "triton", "tr-lua", "tr-theirs", {1: 9, 16: 10, 64: 10, 256: 8}),
    ("steps/s to Triton's, the same model.py", "triton", "tr-ours", "tr-theirs", {1: 9, 16: 10, 64: 10, 256: 8}),
]
#: The goal for the 99th percentile: at most this part of the peer's.
P99 = 0.1
PEERS = {"torchserve": "TorchServe", "triton": "Triton"}
#: The bare echoes that get the same requests as a peer.
CEILINGS = {"torchserve": ("ts-epoll", "ts-epoll-polling"), "triton": ("tr-epoll", "tr-epoll-polling")}


def cell(results, group, row, connections):
    for each in results["groups"]:
        for found in each["rows"] if each["name"] == group else ():
            if found["name"] == row:
                return found["cells"].get(str(connections), {})
    return {}


def of_rounds(a, b, figure):
    """The ratios of two cells in each round in which both have figures."""
    pairs = zip(a.get("rounds", {}).get(figure, []), b.get("rounds", {}).get(figure, []))
    return [x / y for x, y in pairs if x and y]


def quotient(results, group, row, base, figure, connections):
    """The median of the rounds' ratios, or None."""
    found = of_rounds(*(cell(results, group, each, connections) for each in (row, base)), figure)
    return statistics.median(found) if found else None


def ceiling(results, group, base, figure, connections):
    """The ratio of the better one of the bare echoes, or None."""
    found = [quotient(results, group, row, base, figure, connections) for row in CEILINGS.get(group, ())]
    return (min if figure == "p99_ms" else max)((each for each in found if each is not None), default=None)


def echo_with_workers(results, group, row, base, connections):
    """The CPU time of a bare echo that had our workers, divided by that of the echo; or None."""
    ours, echo = (cell(results, group, each, connections) for each in (row, base))
    try:
        return 1 + (ours["worker_own_us"] + ours["worker_kernel_us"]) / echo["cpu_us"]
    except KeyError:
        return None


def reached(measured, goal, most):
    return measured <= goal if most else measured >= goal


def goals(results):
    found = []

    def add(what, connections, rows_of, figure, goal, most):
        measured = quotient(results, *rows_of, figure, connections)
        if measured is not None:
            bare = (echo_with_workers(results, *rows_of, connections) if figure == "cpu_us" else
                    ceiling(results, rows_of[0], rows_of[2], figure, connections))
            found.append({"what": what, "connections": connections, "measured": measured,
                          "goal": f"at {'most' if most else 'least'} {goal}",
                          "reached": reached(measured, goal, most), "figure": figure, "ceiling": bare,
                          "ceiling_reached": bare is not None and reached(bare, goal, most),
                          # on a busy machine, only CPU time says something about a system
                          "judged": figure == "cpu_us" or not results["busy"]})

    for what, group, row, base, goal, counts in CPU:
        for n in counts:
            add(what, n, (group, row, base), "cpu_us", goal, True)
    for what, group, row, base, wanted in STEPS:
        for n, goal in wanted.items():
            add(what, n, (group, row, base), "steps_per_s", goal, False)
            add(f"p99 {what.removeprefix('steps/s ')}", n, (group, row, base), "p99_ms", P99, True)
    return found


def ratios(results):
    """For the plot of the README: ours beside each peer."""
    found = []
    for group, row, base in (("torchserve", "ts-ours", "ts-theirs"), ("triton", "tr-ours", "tr-theirs")):
        for n in results["connections"]:
            steps = quotient(results, group, row, base, "steps_per_s", n)
            cpu = quotient(results, group, base, row, "cpu_us", n)
            if steps and cpu:
                found.append({"peer": PEERS[group], "connections": n, "steps": steps, "cpu": cpu})
    return found
