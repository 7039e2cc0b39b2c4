#!/usr/bin/env python3
"""Many WebSocket streams while workers and the server are killed with -9 and connections are cut: is any step lost, done
twice or out of order, and does any answer not arrive?

Each stream carries one sequence of a running sum. Step N adds N, so its answer must be N * (N + 1) / 2, and the answers
must come in order, each exactly once. A stream keeps up to --credit steps in flight. When its connection ends, for
whatever reason, it connects again with the last answer that it saw, reads the answers that it missed, and sends the steps
behind `next` again. Any other answer, and any resume that is refused, is counted as wrong.

    tests/campaign/websocket_streams.py --seconds 600 [--streams 200] [--loops 1] [--credit 8] [--seed 1] [--build build/release]
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import sys
import tempfile
import threading
import time

import websockets.asyncio.client
import websockets.exceptions

ROOT = pathlib.Path(__file__).resolve().parents[2]
BROKEN = (OSError, EOFError, TimeoutError, websockets.exceptions.WebSocketException)


class Silent:
    def log(self, *_):
        pass


class Count:
    def __init__(self):
        self.steps = self.replayed = self.resumes = self.cuts = self.worker_kills = self.server_kills = 0
        self.most_missed = 0
        self.wrong = []


class Stream:
    def __init__(self, campaign, number):
        self.campaign, self.id = campaign, f"s{number}"
        self.rng = random.Random(f"{campaign.args.seed}/{number}")
        self.last = self.sent = self.generation = 0

    def say_wrong(self, text):
        self.campaign.count.wrong.append(f"{self.id} after step {self.last}: {text}")

    def url(self):
        query = f"?last={self.last}&generation={self.generation}" if self.generation else ""
        return f"{self.campaign.server.inference.replace('http', 'ws', 1)}/v1/streams/counter/{self.id}{query}"

    def take(self, message):
        """Checks one message. Returns False if the stream cannot go on."""
        if message["type"] != "answer" or message["step"] != self.last + 1:
            if message["type"] == "error" and message["status"] in (429, 503):
                return False  # the server says: again
            self.say_wrong(json.dumps(message))
            return False
        self.last = message["step"]
        self.generation = message.get("generation", self.generation)
        if message["text"] != str(self.last * (self.last + 1) // 2):
            self.say_wrong(json.dumps(message))
        self.campaign.count.steps += 1
        self.campaign.count.replayed += message.get("replayed", False)
        return True

    async def open(self, ws):
        """Reads the hello. Sends the steps that were not done again."""
        hello = json.loads(await ws.recv())
        if hello["type"] != "hello":
            if hello.get("status") not in (429, 503):
                self.say_wrong(json.dumps(hello))
            return False
        if not self.generation and hello["step"]:  # its first steps were done, and it has no answer of them
            self.generation = hello["generation"]
            return False
        if hello["step"] < self.last or hello["step"] > self.sent:
            self.say_wrong(f"{self.sent} steps were sent: {json.dumps(hello)}")
            return False
        count = self.campaign.count
        count.resumes += self.last > 0
        count.most_missed = max(count.most_missed, hello["step"] - self.last)
        again, self.sent = self.sent, hello["step"]
        while self.sent < again:
            await self.send(ws)
        return True

    async def send(self, ws):
        self.sent += 1
        await ws.send(json.dumps({"type": "step", "data": self.sent}))

    async def talk(self, ws):
        cut_at = self.last + self.rng.randrange(1, 4 * self.campaign.args.credit * 20)
        if not await self.open(ws):
            return
        while not self.campaign.over:
            while self.sent - self.last < self.campaign.args.credit:
                await self.send(ws)
            if not self.take(json.loads(await ws.recv())):
                return
            if self.last >= cut_at:
                self.campaign.count.cuts += 1
                ws.transport.abort()
                return

    async def run(self):
        while not self.campaign.over:
            with contextlib.suppress(*BROKEN):
                async with websockets.asyncio.client.connect(
                        self.url(), subprotocols=["continuo.v1.json"], compression=None, ping_interval=None,
                        open_timeout=60, close_timeout=1, proxy=None, ssl=self.campaign.tls) as ws:
                    await self.talk(ws)
            await asyncio.sleep(self.rng.random() / 5)


class Campaign:
    tls = None

    def __init__(self, args, server):
        self.args, self.server, self.count, self.over = args, server, Count(), False
        self.rng = random.Random(args.seed)

    def kill(self, models=("counter",), servers=0.2):
        """Runs in a thread of its own until the campaign is over. `servers`: the share of the kills that kill the server."""
        while not self.over:
            time.sleep(self.rng.uniform(0.5, 3))
            with contextlib.suppress(AssertionError, OSError, IndexError):
                if self.rng.random() < servers:
                    self.server.kill()
                    self.count.server_kills += 1
                    self.server.restart()
                else:
                    self.server.kill_worker(self.rng.choice(models))
                    self.count.worker_kills += 1

    async def talk_only(self):
        """The streams alone, until somebody sets `over`."""
        await asyncio.gather(*(Stream(self, i).run() for i in range(self.args.streams)))

    async def run(self):
        streams = [asyncio.ensure_future(Stream(self, i).run()) for i in range(self.args.streams)]
        end = time.monotonic() + self.args.seconds
        while time.monotonic() < end and len(self.count.wrong) < 10:
            await asyncio.sleep(min(30, max(end - time.monotonic(), 0.1)))
            print(self.summary(), flush=True)
        self.over = True
        _, late = await asyncio.wait(streams, timeout=60)
        for stream in late:
            stream.cancel()

    def summary(self):
        c = self.count
        return (f"{c.steps} steps answered, {c.replayed} of them from the record; {c.resumes} resumes with up to "
                f"{c.most_missed} missed answers; killed: {c.worker_kills} workers, {c.server_kills} servers; cut: {c.cuts} "
                f"connections; wrong: {len(c.wrong)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--loops", type=int, default=1)
    parser.add_argument("--credit", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default="build/release")
    args = parser.parse_args()
    os.environ["CONTINUO_BUILD"] = args.build
    os.environ.setdefault("CONTINUO_TEST_FACTOR", "6")
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from models import counter  # noqa: PLC0415 - it reads CONTINUO_BUILD
    from server import Server  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="continuo-streams-") as folder:
        server = Server(folder, Silent(), flags=["--stream-credit", str(args.credit), "--loops", str(args.loops)])
        server.models = [counter(batchSize=64, minWorkers=2, maxWorkers=2)]
        server.start()
        campaign = Campaign(args, server)
        killer = threading.Thread(target=campaign.kill)
        killer.start()
        try:
            asyncio.run(campaign.run())
        finally:
            campaign.over = True
            killer.join()
            server.destroy()
    print(f"seed {args.seed}, {args.streams} streams, {args.loops} loops, credit {args.credit}, {args.seconds} s:",
          campaign.summary(), *campaign.count.wrong[:10], sep="\n")
    return 1 if campaign.count.wrong or not campaign.count.steps else 0


if __name__ == "__main__":
    sys.exit(main())
