#!/usr/bin/env python3
"""The Autobahn test suite against WebSocket streams: its client breaks and stretches RFC 6455 and permessage-deflate
(RFC 7692) in 517 cases, and says for each whether the server did what it must.

    tests/campaign/autobahn.py --wstest FOLDER/bin/wstest [--build build/release] [--cases '9.*' '12.*'] [--kept reports]

The suite needs Python 2.7, which Debian no longer has; pyenv builds it (pyenv install 2.7.18). Then

    virtualenv -p python2.7 FOLDER && FOLDER/bin/pip install autobahntestsuite==0.8.2

with a virtualenv below 20.22. The server has an echo model, streams without a subprotocol, and compresses each answer
for which a client has agreed on compression. Each case of 12 and 13 sends 1,000 messages one after the other, so these
take most of the time; on a busy machine, run several groups of cases side by side.

Prints a table and the cases that are not OK; the exit status is 1 if one has failed or the server does not end well."""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Messages keep their kind: text comes back as text.
ECHO = """
return { api = 1, step = function(_, req)
    return { body = req.body, content_type = req.parts[1].content_type }
end }
"""
MAY_BE = ("OK", "NON-STRICT", "INFORMATIONAL", "UNIMPLEMENTED")
LARGEST = 16 << 20  # bytes of a message, in the cases 9.1.6 and 9.2.6


class Silent:
    def log(self, *_):
        pass


def run_cases(args, server, folder):
    """Returns {case: its outcome}."""
    spec = {"outdir": str(folder), "cases": args.cases, "exclude-cases": [], "exclude-agent-cases": {},
            "servers": [{"agent": "continuo", "url": server.inference.replace("http", "ws", 1) + "/v1/streams/echo/a"}]}
    (folder / "spec.json").write_text(json.dumps(spec))
    with open(folder / "log", "wb") as log:
        subprocess.run([args.wstest, "-m", "fuzzingclient", "-s", folder / "spec.json"], check=True, stdout=log,
                       stderr=subprocess.STDOUT, timeout=args.seconds)
    return json.loads((folder / "index.json").read_text())["continuo"]


def show(found):
    groups = collections.defaultdict(collections.Counter)
    for case, outcome in found.items():
        groups[int(case.split(".")[0])][outcome["behavior"]] += 1
    print("| group | cases | " + " | ".join(word.lower() for word in (*MAY_BE, "FAILED")) + " |\n|---" + "|---" * 6 + "|")
    for group, counts in [*sorted(groups.items()), ("all", sum(groups.values(), collections.Counter()))]:
        known = [counts[word] for word in MAY_BE]
        print(f"| {group} | {sum(counts.values())} | " + " | ".join(map(str, [*known, sum(counts.values()) - sum(known)])) +
              " |")


def is_bad(outcome):
    return outcome["behavior"] not in MAY_BE or outcome["behaviorClose"] not in MAY_BE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wstest", required=True, help="the program of the suite")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--cases", nargs="*", default=["*"])
    parser.add_argument("--kept", type=pathlib.Path, help="folder for the suite's reports")
    parser.add_argument("--loops", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=7200, help="the suite may take so long")
    args = parser.parse_args()
    os.environ["CONTINUO_BUILD"] = args.build
    os.environ.setdefault("CONTINUO_TEST_FACTOR", "6")
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from models import stateless  # noqa: PLC0415 - it reads CONTINUO_BUILD
    from server import Server  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="continuo-autobahn-") as folder:
        reports = args.kept or pathlib.Path(folder) / "reports"
        reports.mkdir(parents=True, exist_ok=True)
        server = Server(folder, Silent(), flags=["--compress-above", "1", "--max-request-size", LARGEST,
                                                 "--loops", args.loops])
        server.models = [stateless(lua=ECHO)]
        server.start()
        try:
            found = run_cases(args, server, reports)
            server.stop()
        finally:
            server.destroy()
    show(found)
    for case, outcome in sorted(found.items(), key=lambda item: [int(part) for part in item[0].split(".")]):
        if outcome["behavior"] != "OK" or outcome["behaviorClose"] != "OK":
            print(f"{case}: {outcome['behavior']}, close {outcome['behaviorClose']} {outcome['remoteCloseCode']}")
    return 1 if not found or any(map(is_bad, found.values())) or server.process.poll() != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
