"""A router's view of a server's prefix cache: kv_events.py MILLRACE. Prints a line per check.

A reader of vLLM's cache events keeps an index from what `serve --kv-events` publishes: batches are dropped on purpose
and fetched again from the replay socket, the engine's process is killed and starts with an empty cache. What the index
says of a prompt must be what the server then finds. Needs Debian's python3-zmq; else the standard library.
"""
import asyncio
import json
import os
import random
import re
import struct
import sys

import zmq

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults  # noqa: E402

NODE = 16


def unpack(data, at=0):
    """One MessagePack value and where the next begins."""
    kind = data[at]
    at += 1
    if kind < 0x80:
        return kind, at
    if 0x90 <= kind < 0xA0:
        return items(data, at, kind - 0x90)
    if 0xA0 <= kind < 0xC0:
        return data[at:at + kind - 0xA0].decode(), at + kind - 0xA0
    if kind == 0xC0:
        return None, at
    if kind in (0xDC, 0xDD):
        form = ">H" if kind == 0xDC else ">I"
        return items(data, at + struct.calcsize(form), struct.unpack_from(form, data, at)[0])
    form = {0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}[kind]
    return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)


def items(data, at, count):
    made = []
    for _ in range(count):
        value, at = unpack(data, at)
        made.append(value)
    return made, at


class Index:
    """What the server has, by what it said. Keys are prefixes of tokens, so nothing leans on how hashes are made."""

    def __init__(self, context, publisher, replay):
        self.hears, self.asks = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        self.hears.setsockopt(zmq.SUBSCRIBE, b"kv@")
        self.hears.connect(publisher)
        self.asks.connect(replay)
        self.next, self.blocks, self.cleared, self.gaps, self.wrong = 0, {}, 0, 0, []

    def take(self, number, batch):
        if number < self.next:
            return
        if number > self.next:
            self.gaps += 1
            self.replay()
            return self.take(number, batch)
        self.next += 1
        (_, events, _), end = unpack(batch)
        if end != len(batch):
            self.wrong.append("bytes after the batch")
        for event in events:
            self.apply(*event)

    def apply(self, kind, *fields):
        if kind == "AllBlocksCleared":
            self.blocks, self.cleared = {}, self.cleared + 1
        elif kind == "BlockRemoved":
            for each in fields[0]:
                if self.blocks.pop(each, None) is None:
                    self.wrong.append("removed, but it was not there")
        else:
            hashes, parent, tokens, size = fields[:4]
            if size != NODE or len(tokens) != size * len(hashes):
                self.wrong.append(f"{len(tokens)} tokens for {len(hashes)} hashes")
            before = () if parent is None else self.blocks.get(parent)
            if before is None:
                self.wrong.append("a parent that is not known")
                return
            for i, each in enumerate(hashes):
                before = before + tuple(tokens[i * size:(i + 1) * size])
                self.blocks[each] = before

    def replay(self):
        self.asks.send_multipart([b"", struct.pack(">Q", self.next)])
        while True:
            _, topic, number, batch = self.asks.recv_multipart()
            if not topic:
                return
            self.take(struct.unpack(">Q", number)[0], batch)

    def catch_up(self, lose=0):
        """Takes what has come, but for some batches that are lost; then asks for whatever came after."""
        while self.hears.poll(0):
            topic, number, batch = self.hears.recv_multipart()
            if random.random() >= lose:
                self.take(struct.unpack(">Q", number)[0], batch)
        self.replay()

    def cached(self, prompt):
        """Tokens of the prompt that can be had; the last is always computed."""
        known = set(self.blocks.values())
        count = 0
        while count + NODE < len(prompt) and tuple(prompt[:count + NODE]) in known:
            count += NODE
        return count


async def ask(server, prompt, tokens=4):
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    status, answer = await server.fetch(faults.request("/v1/completions", body))
    if status != 200:
        raise RuntimeError(f"{status} {answer[:200]!r}")
    return json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]


async def compare(server, index, prompts, lose):
    """Each prompt's cached tokens as the index has them and as the server found them."""
    wrong, found = [], 0
    for prompt in prompts:
        index.catch_up(lose)
        expected = index.cached(prompt)
        got = await ask(server, prompt)
        found += expected
        if not expected <= got < expected + NODE:  # the beginning of a stretch may be shared too
            wrong.append(f"{got} tokens were found, the index says {expected}")
    return wrong + index.wrong, found


def prompt_of(choose):
    return [1] + [300 + choose.randrange(3) for _ in range(choose.randrange(8, 100))]


async def run(millrace, report):
    # Few pages, so that much is pushed out again.
    server = faults.Server(millrace, "-c", "256", "-np", "2", "--kv-size", "3M", "--kv-events", "tcp://127.0.0.1:*",
                           "--kv-events-replay", "tcp://127.0.0.1:*")
    context = zmq.Context()
    try:
        await server.start()
        while not (where := re.search(r"events\s+(\S+), replay (\S+)", server.said())):
            await asyncio.sleep(0.05)
        index = Index(context, where.group(1), where.group(2))
        index.replay()
        report.say("the first batch clears", None if index.cleared == 1 else f"{index.cleared} times")
        choose = random.Random(7)
        random.seed(7)
        prompts = [prompt_of(choose) for _ in range(40)]
        prompts += [list(choose.choice(prompts)) for _ in range(80)] + [prompt_of(choose) for _ in range(40)]
        wrong, found = await compare(server, index, prompts, 0)
        report.say(f"the index says what is found ({found} tokens)", wrong[0] if wrong or not found else None)
        wrong, found = await compare(server, index, choose.sample(prompts, 80), 0.3)
        report.say(f"with {index.gaps} gaps it does too ({found} tokens)",
                   wrong[0] if wrong else None if index.gaps > 3 else "there were no gaps")
        os.kill(int(re.search(r"engine process (\d+)", server.said()).group(1)), 9)
        await ask(server, prompt_of(choose))
        wrong, found = await compare(server, index, choose.sample(prompts, 60), 0.3)
        report.say(f"and after the engine was replaced ({found} tokens)",
                   wrong[0] if wrong else None if index.cleared == 2 else f"cleared {index.cleared} times")
    finally:
        server.process.kill()
        server.process.wait()
        context.destroy(linger=0)


if __name__ == "__main__":
    outcome = faults.Report()
    asyncio.run(run(sys.argv[1], outcome))
    sys.exit(0 if outcome.failures == 0 else 1)
