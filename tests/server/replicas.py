"""Three servers behind HAProxy: replicas.py MILLRACE. Prints a line per check.

The configuration is deploy/haproxy.cfg with servers and ports of our own. One server drains under load, one is killed
under load; conversations stay where their prefix is. Standard library only; needs haproxy.
"""
import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CLIENTS, ROUNDS = 8, 12
TALKS, TURNS = 24, 4
SESSIONS = 400


def configuration(ports, front, bounded):
    """The shipped lines, with these servers; without the bound on load, who is asked follows from the hash alone."""
    with open(os.path.join(ROOT, "deploy", "haproxy.cfg"), encoding="utf-8") as file:
        text = re.sub(r"  bind .*", f"  bind 127.0.0.1:{front}", file.read())
    text = re.sub(r"inter 1s", "inter 100ms", text)
    drop = ("  server ",) if bounded else ("  server ", "  hash-balance-factor ")
    lines = [line for line in text.splitlines() if not line.startswith(drop)]
    return "\n".join(lines + [f"  server s{i} 127.0.0.1:{port}" for i, port in enumerate(ports)]) + "\n"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Proxy:
    """HAProxy before some servers."""

    def __init__(self, ports, bounded=True):
        self.front = free_port()
        self.file = tempfile.NamedTemporaryFile("w", suffix=".cfg")
        self.file.write(configuration(ports, self.front, bounded))
        self.file.flush()
        program = shutil.which("haproxy") or "/usr/sbin/haproxy"
        self.process = subprocess.Popen([program, "-db", "-f", self.file.name], stderr=subprocess.DEVNULL)

    async def ask(self, path, body, headers=""):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.front)
        try:
            writer.write(faults.request(path, body, headers))
            return await faults.read_answer(reader)
        finally:
            writer.close()

    async def start(self):
        for _ in range(600):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.front)
                writer.write(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
                status, _ = await faults.read_answer(reader)
                writer.close()
                if status == 200:
                    return
            except (OSError, asyncio.IncompleteReadError):
                pass
            await asyncio.sleep(0.1)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.file.close()


async def homes(ports):
    """Which replica each of many conversations is sent to."""
    proxy = Proxy(ports, bounded=False)
    try:
        await proxy.start()
        found = []
        for talk in range(SESSIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.front)
            writer.write(f"GET /ready HTTP/1.1\r\nHost: localhost\r\nX-Session: talk-{talk}\r\n"
                         "Connection: close\r\n\r\n".encode())
            head = (await reader.read()).decode().lower()
            found.append(re.search(r"x-replica: (\S+)", head).group(1))
            writer.close()
        return found
    finally:
        proxy.stop()


async def talks(ask):
    """Conversations that grow, a turn each in turn; tokens that were asked for and found in a cache."""
    asked = found = 0
    prompts = [[1] + [300 + (7 * talk + i) % 900 for i in range(80)] for talk in range(TALKS)]
    for _ in range(TURNS):
        for talk, prompt in enumerate(prompts):
            body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
            status, answer = await ask("/v1/completions", body, f"X-Session: talk-{talk}\r\n")
            data = json.loads(answer)
            if status != 200:
                raise RuntimeError(f"{status} {answer[:200]!r}")
            asked += data["usage"]["prompt_tokens"]
            found += data["usage"]["prompt_tokens_details"]["cached_tokens"]
            prompt += data["choices"][0]["token_ids"] + [310 + talk, 320 + talk]
    return found / asked


async def load(proxy, expected, strike):
    """Requests one after another from several clients; after a while something happens to a server."""
    wrong, done = [], 0

    async def client(number):
        nonlocal done
        for turn in range(ROUNDS):
            try:
                status, body = await proxy.ask("/v1/completions", {**faults.story(number), "stream": False},
                                               f"X-Session: {number}\r\n")
                text = json.loads(body)["choices"][0] if status == 200 else {}
                if status != 200 or (text["text"], text["token_ids"]) != expected[number]:
                    wrong.append(f"client {number}, turn {turn}: status {status} {body[-200:]!r}")
            except (OSError, asyncio.IncompleteReadError, ValueError) as failure:
                wrong.append(f"client {number}, turn {turn}: {failure!r}")
            done += 1
            if done == CLIENTS * ROUNDS // 3:
                strike()

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return wrong


async def with_servers(millrace, count, task):
    servers = [faults.Server(millrace, "-c", "512") for _ in range(count)]
    proxy = None
    try:
        for server in servers:
            await server.start()
        proxy = Proxy([server.port for server in servers])
        await proxy.start()
        return await task(servers, proxy)
    finally:
        if proxy is not None:
            proxy.stop()
        for server in servers:
            if server.process.poll() is None:
                server.process.kill()
            server.process.wait()


async def run(millrace, report):
    async def alone(servers, proxy):
        # Who gets a conversation follows from the replicas' places in the file: one server can stand for all of them.
        three, four = await homes([servers[0].port] * 3), await homes([servers[0].port] * 4)
        moved = sum(before != after for before, after in zip(three, four))
        report.say(f"{moved} of {SESSIONS} conversations move when a fourth replica comes",
                   None if 0 < moved <= SESSIONS / 3 else "more than a third, or none")
        return await talks(proxy.ask)

    async def together(servers, proxy):
        rate = await talks(proxy.ask)
        busy = [(await server.metrics())["generation_tokens_total"] for server in servers]
        report.say("three replicas share the conversations", None if min(busy) > 0 else f"{busy}")
        background = faults.Background(servers[0])
        await background.learn()
        wrong = await load(proxy, background.expected, servers[0].process.terminate)
        report.say("a replica drains and no request is lost", wrong[0] if wrong else None)
        wrong = await load(proxy, background.expected, servers[1].process.kill)
        report.say("a replica is killed and no request is lost", wrong[0] if wrong else None)
        return rate

    one = await with_servers(millrace, 1, alone)
    three = await with_servers(millrace, 3, together)
    report.say(f"three replicas find {three:.3f} of the prompts' tokens, one finds {one:.3f}",
               None if three >= 0.9 * one else "less than 0.9 of it")


if __name__ == "__main__":
    outcome = faults.Report()
    asyncio.run(run(sys.argv[1], outcome))
    sys.exit(0 if outcome.failures == 0 else 1)
