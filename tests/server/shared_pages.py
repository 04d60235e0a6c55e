"""Replicas that share pages through Redis: shared_pages.py MILLRACE [--latency N]. Prints a line per check.

A real redis-server, and a proxy before it that changes bytes. What one replica computed another finds; whatever Redis
does (dead, stopped, full, wiped, lying), every answer is the one of a server without it, and none is an error. With
--latency nothing is checked but errors: how long N prompts take in each of these states is printed, beside no store.
Standard library only; needs redis-server.
"""
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults  # noqa: E402

TALKS = 12


class Redis:
    """A store of our own, in memory alone."""

    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = tempfile.TemporaryDirectory()
        self.start()

    def start(self):
        program = shutil.which("redis-server") or "/usr/bin/redis-server"
        self.process = subprocess.Popen([program, "--port", str(self.port), "--save", "", "--bind", "127.0.0.1",
                                         "--dir", self.folder.name], stdout=subprocess.DEVNULL)

    async def command(self, *words):
        deadline = time.monotonic() + faults.PATIENCE
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)
        writer.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words))
        line = await reader.readline()
        writer.close()
        return line.decode().strip()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Liar:
    """Passes everything on, with one byte of every long answer changed."""

    def __init__(self, port):
        self.behind, self.lies, self.choose = port, 0, random.Random(3)

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.behind)
            await asyncio.gather(self.copy(reader, far_writer, False), self.copy(far_reader, writer, True))
        except OSError:
            writer.close()

    async def copy(self, source, target, lies):
        try:
            while data := await source.read(1 << 16):
                if lies and len(data) > 4000:
                    data = bytearray(data)
                    data[self.choose.randrange(1000, len(data))] ^= 1 << self.choose.randrange(8)
                    self.lies += 1
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()


def prompt_of(talk, length=200):
    return [1] + [300 + (7 * talk + i * i) % 900 for i in range(length)]


async def ask(server, talk):
    body = {"prompt": prompt_of(talk), "max_tokens": 12, "seed": talk, "temperature": 0.9, "ignore_eos": True,
            "return_token_ids": True}
    began = time.monotonic()
    status, answer = await server.fetch(faults.request("/v1/completions", body))
    if status != 200:
        raise RuntimeError(f"status {status}: {answer[:300]!r}")
    data = json.loads(answer)
    return {"answer": (data["choices"][0]["text"], data["choices"][0]["token_ids"]),
            "cached": data["usage"]["prompt_tokens_details"]["cached_tokens"], "seconds": time.monotonic() - began}


async def all_talks(server, talks=range(TALKS)):
    return {talk: await ask(server, talk) for talk in talks}


async def store_counts(server):
    """What the metrics say of the store, by the label."""
    _, body = await server.fetch(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    counts = {}
    for line in body.decode().splitlines():
        if line.startswith("millrace_page_store_"):
            counts[line.split('what="')[1].split('"')[0]] = float(line.rsplit(" ", 1)[1])
    return counts


async def until(server, name, least):
    for _ in range(1200):
        counts = await store_counts(server)
        if counts.get(name, 0) >= least:
            return counts
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{name} stays below {least}: {counts}")


def difference(got, wanted):
    for talk, one in got.items():
        if one["answer"] != wanted[talk]["answer"]:
            return f"prompt {talk}: {one['answer']} is not {wanted[talk]['answer']}"
    return None


async def fresh(millrace, secret, port, wait=faults.PATIENCE):
    """A server with an empty cache of its own, that always asks the store and waits so long."""
    server = faults.Server(millrace, "-c", "512", "--secret-file", secret, "--page-store", f"redis://127.0.0.1:{port}",
                           "--page-store-wait", str(wait))
    await server.start()
    await ask(server, 1000)  # so that steps are measured
    return server


def end(server):
    server.process.kill()
    server.process.wait()


async def shared(millrace, secret, redis, wanted, report):
    first = await fresh(millrace, secret, redis.port)
    try:
        report.say("the replica that computes answers as without a store", difference(await all_talks(first), wanted))
        counts = await until(first, "stored", (TALKS + 1) * 12)  # with the prompt of fresh()
    finally:
        end(first)
    second = await fresh(millrace, secret, redis.port)
    try:
        got = await all_talks(second)
        found = sum(one["cached"] for one in got.values())
        whole = TALKS * (len(prompt_of(0)) - 1) // 16 * 16
        report.say(f"another finds {found} of {whole} tokens, and answers the same", difference(got, wanted) or
                   (None if found >= 0.95 * whole else f"{await store_counts(second)}, {counts}"))
    finally:
        end(second)
    with tempfile.NamedTemporaryFile() as other:
        other.write(os.urandom(32))
        other.flush()
        stranger = await fresh(millrace, other.name, redis.port)
        try:
            got = await all_talks(stranger)
            report.say("one with another secret finds nothing", difference(got, wanted) or
                       (None if all(one["cached"] < 16 for one in got.values()) else "it found something"))
        finally:
            end(stranger)


async def troubles(millrace, secret, redis, wanted, report):
    liar = Liar(redis.port)
    await liar.start()
    server = await fresh(millrace, secret, liar.port)
    try:
        got = await all_talks(server)
        counts = await store_counts(server)
        report.say(f"pages that were changed are refused ({counts.get('refused', 0):.0f} of {liar.lies} lies)",
                   difference(got, wanted) or (None if counts.get("refused", 0) > 0 else f"{counts}"))
    finally:
        end(server)
        liar.server.close()
    server = await fresh(millrace, secret, redis.port, 0.05)
    try:
        redis.process.send_signal(signal.SIGSTOP)
        stopped = await all_talks(server)
        redis.process.send_signal(signal.SIGCONT)
        counts = await store_counts(server)
        report.say("a store that hangs changes nothing", difference(stopped, wanted) or
                   (None if counts["late"] + counts["failed"] > 0 else f"{counts}"))
    finally:
        end(server)
    server = await fresh(millrace, secret, redis.port)
    try:
        redis.process.kill()
        redis.process.wait()
        dead = await all_talks(server)
        counts = await store_counts(server)
        report.say("a store that is dead changes nothing", difference(dead, wanted) or
                   (None if counts.get("failed", 0) > 0 else f"{counts}"))
        redis.start()
        await redis.command("CONFIG", "SET", "maxmemory", "3mb")
        await redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await asyncio.sleep(5)  # nobody asks for so long after a failure
        small = await all_talks(server, range(100, 100 + TALKS))
        again = await all_talks(server, range(100, 100 + TALKS))
        report.say("one that comes back and evicts changes nothing", difference(again, small))
    finally:
        end(server)


def middle_and_p99(seconds):
    ordered = sorted(1000 * one for one in seconds)
    return ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, 99 * len(ordered) // 100)]


async def latency(millrace, count):
    """Prompts that were never seen, one after another, at servers that decide for themselves how long to wait. Each is
    asked of a server without a store too, turn about, so that whatever else the machine does befalls both."""
    redis, liar = Redis(), None
    alone = faults.Server(millrace, "-c", "512")
    with tempfile.NamedTemporaryFile() as secret:
        secret.write(os.urandom(32))
        secret.flush()
        try:
            await alone.start()
            await redis.command("PING")
            liar = Liar(redis.port)
            await liar.start()
            states = (("a healthy store", redis.port), ("a lying one", liar.port), ("one that evicts", redis.port),
                      ("one that hangs", redis.port), ("a dead one", redis.port))
            for number, (name, port) in enumerate(states):
                server = faults.Server(millrace, "-c", "512", "--secret-file", secret.name, "--page-store",
                                       f"redis://127.0.0.1:{port}")
                try:
                    await server.start()
                    for talk in range(30):
                        await ask(server, 10000 * number + talk)
                    if name == "one that evicts":
                        await redis.command("CONFIG", "SET", "maxmemory", "3mb")
                        await redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
                    if name == "one that hangs":
                        redis.process.send_signal(signal.SIGSTOP)
                    if name == "a dead one":
                        redis.stop()
                    taken, without = [], []
                    for talk in range(10000 * number + 100, 10000 * number + 100 + count):
                        without.append((await ask(alone, talk))["seconds"])
                        taken.append((await ask(server, talk))["seconds"])
                    (half, most), (half_alone, most_alone) = middle_and_p99(taken), middle_and_p99(without)
                    counts = {what: value for what, value in (await store_counts(server)).items() if value}
                    print(f"{name}: {count} answers, middle {half:.1f} ms, p99 {most:.1f} ms, without a store "
                          f"{half_alone:.1f} and {most_alone:.1f} ms, {counts}", flush=True)
                finally:
                    end(server)
                    if redis.process.poll() is None:
                        redis.process.send_signal(signal.SIGCONT)
        finally:
            end(alone)
            redis.stop()


async def run(millrace, report):
    redis = Redis()
    with tempfile.NamedTemporaryFile() as secret:
        secret.write(os.urandom(32))
        secret.flush()
        try:
            await redis.command("PING")
            alone = faults.Server(millrace, "-c", "512")
            await alone.start()
            wanted = await all_talks(alone)
            end(alone)
            await shared(millrace, secret.name, redis, wanted, report)
            await troubles(millrace, secret.name, redis, wanted, report)
        finally:
            redis.stop()


if __name__ == "__main__":
    outcome = faults.Report()
    if len(sys.argv) == 4 and sys.argv[2] == "--latency":
        asyncio.run(latency(sys.argv[1], int(sys.argv[3])))
        sys.exit(0)
    asyncio.run(run(sys.argv[1], outcome))
    sys.exit(0 if outcome.failures == 0 else 1)
