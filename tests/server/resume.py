"""Streams that break because their replica is killed, gone on with at another: resume.py MILLRACE [--streams N]
[--first N].

Three servers behind HAProxy (deploy/haproxy.cfg). Streams without a seed run through it; the replica that has them is
killed in their midst, and each client sends its body again with the last id it has. What it then has in all must be the
answer, byte for byte, that another replica gives from the first event on. With --first other streams are taken, so
that many can be tried in pieces. Prints a line per check; standard library only; needs haproxy.
"""
import argparse
import asyncio
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults  # noqa: E402
import replicas  # noqa: E402

TOGETHER, MANY_TOGETHER = 8, 24
TOKENS = 160


def body_of(number):
    """Every other one draws its seed; some have two answers and log-probabilities."""
    body = {"prompt": [1, 403 + number % 500, 407, 261], "temperature": 0.9, "max_tokens": TOKENS, "ignore_eos": True,
            "stream": True, "return_token_ids": True}
    if number % 2 == 0:
        body["seed"] = number
    if number % 3 == 0:
        body.update(n=2, logprobs=2)
    return body


class Broken(Exception):
    """The stream ended before its answer did."""


async def events(port, number, last, heard=None):
    """Yields (id, data) of a stream; the replica's name is put into `heard`."""
    headers = f"X-Session: {number}\r\n" + (f"Last-Event-ID: {last}\r\n" if last else "X-Event-Ids: 1\r\n")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(faults.request("/v1/completions", body_of(number), headers))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), faults.PATIENCE)
        if head[9:12] != b"200":
            raise RuntimeError(f"status {head[9:12]!r}: {(await reader.read(400))!r}")
        name = re.search(rb"(?i)x-replica: (\S+)", head)
        if heard is not None and name:
            heard[number] = name.group(1).decode()
        text = b""
        while True:
            size = int(await asyncio.wait_for(reader.readline(), faults.PATIENCE) or b"0", 16)
            text += (await asyncio.wait_for(reader.readexactly(size + 2), faults.PATIENCE))[:size]
            while b"\n\n" in text:
                event, text = text.split(b"\n\n", 1)
                fields = dict(line.split(": ", 1) for line in event.decode().split("\n") if not line.startswith(":"))
                if fields:
                    yield fields.get("id"), fields["data"]
                    if fields["data"] == "[DONE]":
                        return
            if size == 0:
                raise Broken
    except (OSError, asyncio.IncompleteReadError, ValueError) as failure:
        raise Broken from failure
    finally:
        writer.close()


def said(list_of_data):
    """Texts, ids and log-probabilities by choice, however they were cut into events, and what all events share."""
    answers, shared = {}, set()
    for data in list_of_data:
        if data == "[DONE]":
            shared.add(data)
            continue
        event = json.loads(data)
        for choice in event.pop("choices"):
            mine = answers.setdefault(choice["index"], {"text": "", "ids": [], "logprobs": [], "end": []})
            mine["text"] += choice["text"]
            mine["ids"] += choice.get("token_ids", [])
            mine["logprobs"] += (choice.get("logprobs") or {}).get("token_logprobs", [])
            if choice["finish_reason"]:
                mine["end"].append(choice["finish_reason"])
        shared.add(json.dumps(event, sort_keys=True))
    return answers, shared


class Stream:
    """One client: what it has heard, and how often it had to begin again."""

    def __init__(self, number):
        self.number, self.told, self.last, self.first, self.breaks = number, [], None, None, 0

    async def listen(self, port, where):
        while True:
            try:
                async for name, data in events(port, self.number, self.last, where):
                    self.first = self.first or (name, data)
                    self.last = name
                    self.told.append(data)
                return
            except Broken:
                self.breaks += 1
                if self.breaks > 50:
                    raise
                await asyncio.sleep(0.05)


async def strike(servers, start, streams, where):
    """Kills the replica with the most streams once each of those has begun, and starts it again."""
    while any(len(stream.told) < 2 for stream in streams):
        await asyncio.sleep(0.005)
    homes = [int(where[stream.number][1:]) for stream in streams]
    victim = max(set(homes), key=homes.count)
    servers[victim].process.kill()
    servers[victim].process.wait()
    servers[victim] = start(servers[victim].port)
    await servers[victim].start()


async def compare(stream, port):
    """What is wrong with a stream that broke, beside another replica's answer from its first event on."""
    again = [stream.first[1]]
    async for _, data in events(port, stream.number, stream.first[0]):
        again.append(data)
    if said(stream.told) != said(again):
        return f"stream {stream.number}: {said(stream.told)} is not {said(again)}"[:2000]
    if any(len(mine["ids"]) != TOKENS for mine in said(stream.told)[0].values()):
        return f"stream {stream.number} is not whole"
    return None


async def check(millrace, report, wanted, number):
    """`wanted` streams that broke, each compared; the first has this number."""
    def start(port=0):
        return faults.Server(millrace, "-c", "512", "--port", str(port))

    servers = [start() for _ in range(3)]
    proxy, broken, wrong = None, 0, []
    together = MANY_TOGETHER if wanted > MANY_TOGETHER else TOGETHER
    try:
        await asyncio.gather(*(server.start() for server in servers))
        proxy = replicas.Proxy([server.port for server in servers])
        await proxy.start()
        while broken < wanted and not wrong:
            streams, where = [Stream(number + i) for i in range(together)], {}
            number += together
            await asyncio.gather(strike(servers, start, streams, where),
                                 *(stream.listen(proxy.front, where) for stream in streams))
            struck = [stream for stream in streams if stream.breaks > 0]
            said_of = await asyncio.gather(*(compare(stream, servers[(broken + i) % 3].port)
                                             for i, stream in enumerate(struck)))
            broken += len(struck)
            wrong = [one for one in said_of if one]
            print(f"  {broken} streams broke", flush=True)
        report.say(f"{broken - len(wrong)} of {broken} streams of killed replicas go on at another, byte for byte",
                   wrong[0] if wrong else None)
    finally:
        if proxy is not None:
            proxy.stop()
        for server in servers:
            if server.process.poll() is None:
                server.process.kill()
            server.process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    outcome = faults.Report()
    asyncio.run(check(chosen.program, outcome, chosen.streams, chosen.first))
    sys.exit(0 if outcome.failures == 0 else 1)
