"""The server under clients that misbehave, and servers that die or lack something: faults.py MILLRACE [--full]
[--only NAME]. Prints a line per check.

In every fault eight background streams run along and must stay, byte for byte, what they were on a quiet server;
afterwards nothing runs, no page is held but by the prefix cache, and memory is back where it was. Standard library
only; --full takes the large numbers.
"""
import argparse
import asyncio
import json
import os
import random
import re
import resource
import shutil
import signal
import ssl
import struct
import socket
import subprocess
import sys
import tempfile
import time

import batches
import cases
import crash
import hostile
import memory
import several
import starts
import warm
import weights
from asking import PATIENCE, read_answer, request, story, tokens_of

BACKGROUND = 8
COUNTED = {"texts of JSON": len(cases.BAD_JSON) + len(cases.GOOD_JSON), "requests as bytes": len(cases.FRAMES),
           "hostile grammars": hostile.CASES}
SMALL = {"disconnects": 60, "stalled": 40, "idle": 150, "bodies": 150, "overload": 120, "small schemas": 3000,
         **COUNTED}
LARGE = {"disconnects": 2000, "stalled": 1000, "idle": 5000, "bodies": 5000, "overload": 600, "slowhttptest": 1000,
         "small schemas": 100000, **COUNTED}


class Server:
    """A server of our own, and what its pages of figures say."""

    def __init__(self, program, *flags, env=None):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen([program, "serve", "--port", "0", "--no-log-requests", *flags], stderr=self.log,
                                        stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        self.host, self.port, self.secure = "127.0.0.1", None, False

    async def start(self):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"^serving (https?)://[^:]*:(\d+)", self.said(), re.M)
            if found:
                self.secure, self.port = found.group(1) == "https", int(found.group(2))
                if "ready " in self.said():
                    return
            await asyncio.sleep(0.05)
        raise RuntimeError("the server does not start: " + self.said())

    def said(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read()

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def whole_memory(self):
        """Resident bytes of the server and of the engine it started."""
        total = self.memory()
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid:
                total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        return total

    async def connect(self, **how):
        return await asyncio.open_connection(self.host, self.port, **how)

    async def fetch(self, data):
        """Status and body of one request on a connection of its own."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            return await read_answer(reader)
        finally:
            writer.close()

    async def metrics(self):
        return await self.metrics_with("none")

    async def metrics_with(self, key):
        ask = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n"
        _, body = await self.fetch(ask.encode())
        values = {}
        for line in body.decode().splitlines():
            found = re.match(r"(?:millrace_|vllm:)(\w+)(?:\{[^}]*\})? (\S+)$", line)
            if found and "_bucket" not in found.group(1):
                values[found.group(1)] = float(found.group(2))
        return values

    async def quiet(self):
        """Waits until nothing runs and all pages are given back; what is wrong if that never comes."""
        deadline, values = time.monotonic() + PATIENCE, {}
        while time.monotonic() < deadline:
            values = await self.metrics()
            if (values["num_requests_running"] == 0 and values["num_requests_waiting"] == 0 and
                    values["http_generations"] == 0 and
                    values["kv_cache_pages_used"] == values["kv_cache_pages_cached"]):
                return None
            await asyncio.sleep(0.05)
        return f"not quiet: {values}"

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(timeout=PATIENCE)
        if "Sanitizer: " in self.said():  # an engine that one ends would be replaced, and nobody would notice
            raise RuntimeError(self.said()[-20000:])
        return code


class Background:
    """Eight streams that never stop, each compared with its answer on a quiet server."""

    def __init__(self, server):
        self.server, self.expected, self.wrong, self.rounds, self.stopping = server, {}, [], 0, False

    async def learn(self):
        for seed in range(BACKGROUND):
            _, body = await self.server.fetch(request("/v1/completions", story(seed)))
            self.expected[seed] = tokens_of(body)
            assert self.expected[seed] and len(self.expected[seed][1]) == 60, body[-500:]

    async def one(self, seed):
        served = 0
        while not self.stopping or served == 0:  # in an overload its turn may come late, but it comes
            status, body = await self.server.fetch(request("/v1/completions", story(seed)))
            if status == 429:  # an overload is told honestly; whoever is let in gets the right answer
                await asyncio.sleep(0.05)
                continue
            got = tokens_of(body) if status == 200 else None
            if got != self.expected[seed]:
                self.wrong.append(f"stream {seed}: status {status}, {got!r} is not {self.expected[seed]!r}")
            served += 1
            self.rounds += 1

    async def during(self, fault):
        """Runs the fault with the streams beside it; what went wrong, if anything."""
        self.wrong, self.rounds, self.stopping = [], 0, False
        streams = [asyncio.create_task(self.one(seed)) for seed in range(BACKGROUND)]
        try:
            said = await fault
        finally:
            self.stopping = True
            await asyncio.gather(*streams)
        if self.wrong:
            return self.wrong[0][:400]
        return said or (None if self.rounds >= BACKGROUND else "the streams did not run")


def reset(writer):
    """Ends a connection as a crashed client does."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def disconnects(server, count, rng):
    """Clients that go away at a random byte of their request or of their stream."""
    async def one(seed):
        body = {**story(seed, 200), "n": rng.choice([1, 1, 2]), "stream": rng.random() < 0.7}
        data, kind = request("/v1/completions", body), rng.randrange(3)
        reader, writer = await server.connect()
        cut = rng.randrange(1, len(data)) if kind == 0 else len(data)
        writer.write(data[:cut])
        try:
            if kind == 2:
                await asyncio.wait_for(reader.read(rng.randrange(1, 4000)), PATIENCE)
            else:
                await writer.drain()
        except ConnectionError:
            pass
        reset(writer) if rng.random() < 0.5 else writer.close()

    for start in range(0, count, 16):
        await asyncio.gather(*(one(rng.randrange(64)) for _ in range(start, min(count, start + 16))))


async def stalled_readers(server, count, _rng):
    """Clients that ask for a lot and read none of it."""
    writers = []
    for index in range(count):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (server.host, server.port))
        await asyncio.get_running_loop().sock_sendall(
            sock, request("/v1/completions", {**story(index % 64, 250), "logprobs": 20, "user": "stalled"}))
        writers.append(sock)
    # They are cut off one after another; what is left are the streams beside them.
    grown, deadline, values = server.memory(), time.monotonic() + PATIENCE, {"http_generations": count}
    while values["http_generations"] > BACKGROUND and time.monotonic() < deadline:
        values = await server.metrics()
        grown = max(grown, server.memory())
        await asyncio.sleep(0.1)
    said = None if values.get("http_slow_clients_total", 0) > 0 else f"nobody was cut off: {values}"
    for sock in writers:
        sock.close()
    grown -= server.start_memory
    return said or (None if grown < 300 << 20 else f"{grown} bytes more with {count} stalled readers")


async def idle_streams(server, count, _rng):
    """Streams that are open and have nothing to say for long, since they all wait for their turn, and a tenth as many
    connections that never ask. They are all one user's, who gets no more than his share."""
    connections = []
    ask = request("/v1/completions", {**story(5, 400), "user": "crowd"})
    for start in range(0, count, 50):
        opened = [await server.connect(limit=4096) for _ in range(start, min(count, start + 50))]
        for _, writer in opened:
            writer.write(ask)
        heads = await asyncio.gather(*(asyncio.wait_for(reader.readline(), PATIENCE) for reader, _ in opened))
        connections += opened + [await server.connect(limit=4096) for _ in range(len(opened) // 10)]
        if any(b" 200 " not in head for head in heads):
            return f"not all were let in: {heads}"
    grown = server.memory() - server.start_memory
    print(f"  {count} open streams: {grown / count / 1024:.1f} KiB each")
    status, _ = await server.fetch(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for _, writer in connections:
        reset(writer)
    return None if status == 200 and grown < 300 << 20 else f"/health says {status}, {grown} bytes more"


def bad_bodies(rng):
    good = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "temperature": 0.5,
                       "stop": ["x"], "logit_bias": {"5": 1}, "n": 1}).encode()
    while True:
        kind = rng.randrange(6)
        if kind == 0:
            yield good[:rng.randrange(len(good))]
        elif kind == 1:
            data = bytearray(good)
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            yield bytes(data)
        elif kind == 2:
            yield b"[" * rng.randrange(1, 100000)
        elif kind == 3:
            yield bytes(rng.randrange(256) for _ in range(rng.randrange(200)))
        elif kind == 4:
            field = rng.choice([b"temperature", b"max_tokens", b"n", b"seed", b"top_p", b"logit_bias", b"messages"])
            value = rng.choice([b"1e999", b"-1", b"NaN", b"null", b"[]", b"{}", b'"1"', b"9223372036854775808"])
            yield good[:-1] + b',"' + field + b'":' + value + b"}"
        else:
            text = rng.choice([b"\xff", b"\\ud800", b"\\u0000", b"\x00"])
            yield b'{"messages":[{"role":"user","content":"' + text + b'"}]}'


async def broken_bodies(server, count, rng):
    bodies = bad_bodies(rng)
    for _ in range(count):
        status, answer = await server.fetch(request("/v1/chat/completions", next(bodies)))
        if status not in (200, 400) or "error" not in json.loads(answer) and status == 400:
            return f"status {status}: {answer[:200]!r}"
    return None


async def json_cases(server, _count, _rng):
    """Every bad spelling of JSON is a 400, every good one is taken."""
    for body in cases.BAD_JSON:
        for path in ("/v1/chat/completions", "/tokenize"):
            status, answer = await server.fetch(request(path, body))
            if status != 400 or "error" not in json.loads(answer):
                return f"{path} answers {body[:60]!r} with {status}: {answer[:200]!r}"
    for value in cases.GOOD_JSON:
        body = b'{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"v":' + value + b"}}"
        status, answer = await server.fetch(request("/apply-template", body))
        if status != 200:
            return f"{value[:60]!r} is answered with {status}: {answer[:200]!r}"
    return None


async def frame_cases(server, _count, _rng):
    """Requests as bytes, at once and byte by byte: the same answers, and those only."""
    async def statuses(data, step, expected):
        reader, writer = await server.connect()
        try:
            for start in range(0, len(data), step):
                writer.write(data[start:start + step])
                if step < len(data):
                    await asyncio.sleep(0)
            got = [(await read_answer(reader))[0] for _ in expected]
            if writer.can_write_eof():
                writer.write_eof()
            rest = await asyncio.wait_for(reader.read(), PATIENCE)
            return got if not rest else got + [rest]
        except (ConnectionError, asyncio.IncompleteReadError) as failure:
            return [repr(failure)]
        finally:
            writer.close()

    for data, expected in cases.FRAMES:
        # Whoever asks for the end and goes on sending later may find nobody there.
        whole_only = len(data) >= 1000 or b"close" in data
        for step in (len(data),) if whole_only else (len(data), 1):
            got = await statuses(data, step, expected)
            if got != expected:
                return f"{data[:300]!r} in pieces of {step}: {got}, not {expected}"
    return None


async def slow_tool(server, count, _rng):
    """What slowhttptest does: headers, bodies and reads that never end. The server must stay within reach."""
    where = f"http://127.0.0.1:{server.port}"
    with tempfile.TemporaryDirectory() as folder:
        for kind, url in (("-H", "/health"), ("-B", "/v1/completions"), ("-X", "/openapi.json"), ("-R", "/health")):
            command = ["slowhttptest", kind, "-c", str(count), "-r", "200", "-i", "2", "-l", "20", "-p", "10", "-x", "24",
                       "-w", "10", "-y", "20", "-n", "5", "-z", "32", "-k", "3", "-u", where + url, "-v", "1"]
            tool = await asyncio.create_subprocess_exec(*command, cwd=folder, stdin=subprocess.DEVNULL,
                                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said, _ = await asyncio.wait_for(tool.communicate(), PATIENCE)
            text = re.sub(r"\x1b\[[0-9;]*m", "", said.decode(errors="replace"))
            available = re.findall(r"service available: *(\w+)", text)
            if not available or set(available) != {"YES"}:
                return f"{kind}: service available: {available or text[-400:]}"
            status, _ = await server.fetch(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if status != 200:
                return f"{kind}: /health says {status}"
    return None


async def overload(server, count, _rng):
    """Five times what the queue takes: whoever is refused is told when to come back, whoever is let in is served."""
    async def one(seed):
        return await server.fetch(request("/v1/completions", {**story(seed % 64, 100), "stream": False}))

    answers = await asyncio.gather(*(one(seed) for seed in range(count)))
    statuses = sorted({status for status, _ in answers})
    if not set(statuses) <= {200, 429} or 200 not in statuses or 429 not in statuses:
        return f"statuses {statuses}"
    untold = [body for status, body in answers if status == 429 and b"try again in about " not in body]
    return f"not told when to come again: {untold[0]!r}" if untold else None


FAULTS = [("disconnects", disconnects), ("stalled", stalled_readers), ("idle", idle_streams),
          ("bodies", broken_bodies), ("texts of JSON", json_cases), ("requests as bytes", frame_cases)]


class Report:
    """What held and what did not, each with the seconds since the one before."""

    def __init__(self):
        self.failures, self.last = 0, time.monotonic()

    def say(self, what, wrong=None):
        now = time.monotonic()
        took, self.last = now - self.last, now
        self.failures += wrong is not None
        print(f"not ok - {what}\n  {wrong}" if wrong is not None else f"ok - {what}\n  {took:.1f} s", flush=True)


# Keys and values of 16 x 512 tokens of the shipped model: taken at the start, resident once they were used.
POOL = 16 * 512 * 4096


async def faults_on(program, flags, faults, counts, report, seed):
    """These faults one after another on one server."""
    server = Server(program, "-np", "16", "-c", "512", "--write-timeout", "5", "--max-connections", "8192", *flags)
    try:
        await server.start()
        background = Background(server)
        await background.learn()
        await server.quiet()
        server.start_memory = server.memory()
        for name, fault in faults:
            began = time.monotonic()
            wrong = await background.during(fault(server, counts[name], random.Random(seed)))
            wrong = wrong or await server.quiet()
            more = server.memory() - server.start_memory
            if wrong is None and more > POOL + (64 << 20):
                wrong = f"{more} bytes more than at the start"
            print(f"  {name}: {time.monotonic() - began:.1f} s, {background.rounds} streams beside it, "
                  f"{more >> 10} KiB more than at the start")
            report.say(f"{counts[name]} {name}: other streams unchanged, pages free, memory flat", wrong)
        check_metrics(await server.fetch(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), report)
        code = server.stop()
        report.say("the server drains after it all", None if code == 0 else f"code {code}: {server.said()[-2000:]}")
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


async def all_faults(program, counts, report, seed, only=None):
    faults = list(FAULTS)
    if "slowhttptest" in counts and shutil.which("slowhttptest"):
        faults.append(("slowhttptest", slow_tool))
    elif "slowhttptest" in counts:
        print("skip - slowhttptest is not installed")
    faults = [fault for fault in faults if only in (None, fault[0])]
    if faults:
        await faults_on(program, ["--max-waiting", "8192"], faults, counts, report, seed)
    hostiles = [fault for fault in (("hostile grammars", hostile.grammars), ("small schemas", hostile.flood))
                if only in (None, fault[0])]
    if hostiles:
        await faults_on(program, ["--max-waiting", "8192", "--grammar-cache", "16M"], hostiles, counts, report, seed)
    if only not in (None, "overload"):
        return
    # Five times as many come as may run and wait.
    waiting = str(counts["overload"] // 5 - 16)
    await faults_on(program, ["--max-waiting", waiting], [("overload", overload)], counts, report, seed)


def check_metrics(answer, report):
    """What Prometheus' own tool says of /metrics, where it is installed; tests/server has a parser of its own."""
    if shutil.which("promtool") is None:
        return
    said = subprocess.run(["promtool", "check", "metrics"], input=answer[1], capture_output=True)
    remarks = (said.stderr + said.stdout).decode().splitlines()
    # 3: only remarks on style. vLLM's names are as they are; ours follow every rule.
    wrong = [line for line in remarks if not line.startswith("vllm:")]
    report.say("promtool finds nothing", None if said.returncode in (0, 3) and not wrong else "\n".join(remarks))


async def signals(program, report):
    """The first SIGTERM lets streams end, the second ends them with an error."""
    for count, ending in ((1, b"data: [DONE]"), (2, b"shutting_down")):
        server = Server(program, "-c", "512", "-np", "1")
        try:
            await server.start()
            streams = [await server.connect() for _ in range(2 if count == 1 else 16)]
            for _, writer in streams:
                writer.write(request("/v1/completions", story(1, 200 if count == 1 else 480)))
            await asyncio.gather(*(asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE) for reader, _ in streams))
            server.process.send_signal(signal.SIGTERM)
            while "draining" not in server.said() and server.process.poll() is None:
                await asyncio.sleep(0.01)
            if count == 2:
                server.process.send_signal(signal.SIGTERM)
            rest = await asyncio.gather(*(asyncio.wait_for(reader.read(), PATIENCE) for reader, _ in streams))
            code = server.process.wait(timeout=PATIENCE)
            good = code == 0 and ending in rest[-1] and all(b"0\r\n\r\n" in one for one in rest)
            report.say(f"SIGTERM x {count}", None if good else f"exit code {code}, {rest[-1][-300:]!r}")
        finally:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()


async def other_doors(program, report):
    """TLS and a unix socket; a bind that others can reach needs a key."""
    with tempfile.TemporaryDirectory() as folder:
        cert, key, door = (os.path.join(folder, name) for name in ("cert.pem", "key.pem", "door"))
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                               "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
                               "-addext", "subjectAltName=DNS:localhost"], capture_output=True)
        if made.returncode != 0:
            report.say("a certificate can be made", made.stderr.decode())
            return
        server = Server(program, "--ssl-cert-file", cert, "--ssl-key-file", key, "--unix-socket", door,
                        "--alias", "wheel", "-c", "300")
        try:
            await server.start()
            context = ssl.create_default_context(cafile=cert)
            reader, writer = await server.connect(ssl=context, server_hostname="localhost")
            writer.write(request("/v1/completions", story(3)))
            status, secure = await read_answer(reader)
            writer.close()
            reader, writer = await asyncio.open_unix_connection(door)
            writer.write(request("/v1/completions", story(3)))
            _, local = await read_answer(reader)
            writer.close()
            same = status == 200 and tokens_of(secure) and tokens_of(secure) == tokens_of(local)
            report.say("TLS and the unix socket give the same answer", None if same else f"{secure[-200:]!r}")
            reader, writer = await asyncio.open_unix_connection(door)
            writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            model = json.loads((await read_answer(reader))[1])["data"][0]
            writer.close()
            named = (model["id"], model["max_model_len"]) == ("wheel", 300)
            report.say("the model has the name and the context it was given", None if named else f"{model}")
            plain = await server.connect()
            plain[1].write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            report.say("plain HTTP on the TLS port gets nothing",
                       None if b"200" not in await asyncio.wait_for(plain[0].read(), PATIENCE) else "an answer")
            code = server.stop()
            report.say("the socket is removed", None if code == 0 and not os.path.exists(door) else f"exit code {code}")
        finally:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
    bare = subprocess.run([program, "serve", "--host", "0.0.0.0", "--port", "0"], capture_output=True, timeout=PATIENCE,
                          env={name: value for name, value in os.environ.items() if name != "MILLRACE_API_KEY"})
    told = bare.returncode == 1 and b"key" in bare.stderr
    report.say("a bind others can reach needs a key", None if told else bare.stderr)
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("# who\nalice sk-0123456789 rpm=100\n")
        keys.flush()
        server = Server(program, "--host", "0.0.0.0", "--api-key-file", keys.name)
        try:
            await server.start()
            ask = "GET /v1/models HTTP/1.1\r\nHost: anything\r\n{}\r\n"
            statuses = [(await server.fetch(ask.format(header).encode()))[0] for header in (
                "", "Authorization: Bearer sk-9876543210\r\n", "Authorization: Bearer sk-0123456789\r\n")]
            report.say("and takes one from a file", None if statuses == [401, 401, 200] else f"{statuses}")
        finally:
            server.stop()


def maker(chosen):
    return lambda *flags: Server(chosen.program, *flags)


async def crashes(chosen, report):
    await crash.check(maker(chosen), request, report, 500 if chosen.full else 8)
    await crash.check_ranks(lambda *flags: Server(chosen.program, "-c", "512", *flags), request, report,
                            100 if chosen.full else 5)


# Tests with servers of their own, by the name they may be asked for.
APART = {"crash": crashes,
         "memory": lambda chosen, report: memory.check(Server, chosen.program, request, report, chosen.full),
         "warm": lambda chosen, report: warm.check(maker(chosen), request, report, chosen.full),
         "weights": lambda chosen, report: weights.check(maker(chosen), report, chosen.full),
         "models": lambda chosen, report: several.check(maker(chosen), report)}


def servers(chosen, report):
    asyncio.run(other_doors(chosen.program, report))
    asyncio.run(signals(chosen.program, report))
    asyncio.run(starts.check(chosen.program, report, maker(chosen)))
    batches.check(chosen.program, report, PATIENCE)
    for check in APART.values():
        asyncio.run(check(chosen, report))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one fault by its name, such as idle; nothing else runs")
    chosen = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    report = Report()
    if chosen.only in APART:
        asyncio.run(APART[chosen.only](chosen, report))
    elif chosen.only:
        counts = LARGE if chosen.full else {**SMALL, "slowhttptest": 200}
        asyncio.run(all_faults(chosen.program, counts, report, chosen.seed, only=chosen.only))
    else:
        servers(chosen, report)
        asyncio.run(all_faults(chosen.program, LARGE if chosen.full else SMALL, report, chosen.seed))
    return 0 if report.failures == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
