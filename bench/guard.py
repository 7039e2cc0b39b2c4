#!/usr/bin/env python3
"""What do the parser of HTTP and the guard in front of nghttp2 cost for each step? Counted in instructions by callgrind.

The server runs under valgrind twice for each protocol, with a few steps and with many, and the difference is divided by
the number of steps, so that start and end do not count. The counts hardly depend on what else the machine does.
valgrind 3.19 does not know a system call that starting a worker needs (pidfd_open). So the server has no model, and
refuses the steps with 404, which is less work than a step is; to parser and guard it makes no difference.

    bench/guard.py [--steps 1000] [--build build/release]

docs/decisions/0067-http-by-our-own-layer.md has the figures."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

if "--build" in sys.argv:
    os.environ["CONTINUO_BUILD"] = sys.argv[sys.argv.index("--build") + 1]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))

from models import BIN  # noqa: E402
from rpc import Rpc, refused  # noqa: E402
from server import Server  # noqa: E402
from transcript import Transcript  # noqa: E402

FEW = 100
# Each is counted with all that it calls, but for the system calls' own work.
FUNCTIONS = {"http": ["cn_http_parser_next", "cn_http_head_split"], "grpc": ["cn_h2_guard_feed"]}


class Counted(Server):
    def command(self):
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.folder}/counts", "-q", *super().command()]


def counts(protocol, steps):
    """Returns the instructions of the whole server, and of each function."""
    with tempfile.TemporaryDirectory(prefix="continuo-guard-") as folder:
        # Under valgrind a program does not know its own folder.
        server = Counted(folder, Transcript(), ["--loops", "1", "--busy-wait", "0", "--page", "off", "--worker",
                                                BIN / "continuo-worker"])
        server.start()
        if protocol == "http":
            client = server.client()
            for i in range(steps):
                assert client.step("counter", f"s{i}", "1").status == 404
        else:
            with Rpc(server.grpc) as client:
                for i in range(steps):
                    assert refused(client.predict, "counter", 1, f"s{i}", timeout=120).code().name == "NOT_FOUND"
        server.stop()
        said = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", f"{folder}/counts"],
                              capture_output=True, text=True, check=True).stdout
    found = {"server": int(re.search(r"^\s*([\d,]+) .*PROGRAM TOTALS", said, re.M).group(1).replace(",", ""))}
    for name in FUNCTIONS[protocol]:
        line = re.search(rf"^\s*([\d,]+) .*:{name}\b", said, re.M)
        found[name] = int(line.group(1).replace(",", "")) if line else 0
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--build", help="folder of the build")
    args = parser.parse_args()
    print("| protocol | instructions of parser or guard for each step | of the server for a step that gets 404 |\n|---|---|---|")
    for protocol in FUNCTIONS:
        few, many = counts(protocol, FEW), counts(protocol, FEW + args.steps)
        each = {name: (many[name] - few[name]) / args.steps for name in many}
        read = sum(each[name] for name in FUNCTIONS[protocol])
        print(f"| {protocol} | {read:,.0f} ({100 * read / each['server']:.1f} %) | {each['server']:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
