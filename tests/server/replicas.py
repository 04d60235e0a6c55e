"""Two servers behind HAProxy, one of which drains under load: replicas.py MILLRACE. Prints a line per check.

The configuration is the one of docs/operations.md, with plain HTTP and ports of our own. Standard library only; needs
haproxy.
"""
import asyncio
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


def configuration(ports, front):
    """The documented lines, with these servers."""
    with open(os.path.join(ROOT, "docs", "operations.md"), encoding="utf-8") as file:
        text = re.search(r"```\n(defaults\n.*?)```", file.read(), re.S).group(1)
    text = re.sub(r"  bind .*", f"  bind 127.0.0.1:{front}", text)
    lines = [line for line in text.splitlines() if not line.startswith("  server ")]
    return "\n".join(lines + [f"  server s{port} 127.0.0.1:{port} check inter 100ms fall 1" for port in ports]) + "\n"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def load(front, expected, drain):
    """Requests one after another from several clients; after a while one server is told to drain."""
    wrong, done = [], 0

    async def client(number):
        nonlocal done
        for turn in range(ROUNDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", front)
            writer.write(faults.request("/v1/completions", faults.story(number)))
            status, body = await faults.read_answer(reader)
            writer.close()
            if status != 200 or faults.tokens_of(body) != expected[number]:
                wrong.append(f"client {number}, turn {turn}: status {status} {body[-200:]!r}")
            done += 1
            if done == CLIENTS * ROUNDS // 3:
                drain()

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return wrong


async def run(millrace, report):
    servers = [faults.Server(millrace, "-c", "512") for _ in range(2)]
    front, proxy = free_port(), None
    try:
        for server in servers:
            await server.start()
        background = faults.Background(servers[0])
        await background.learn()
        with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
            file.write(configuration([server.port for server in servers], front))
            file.flush()
            program = shutil.which("haproxy") or "/usr/sbin/haproxy"
            proxy = subprocess.Popen([program, "-db", "-f", file.name], stderr=subprocess.DEVNULL)
            for _ in range(600):
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", front)
                    writer.write(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    status, _ = await faults.read_answer(reader)
                    writer.close()
                    if status == 200:
                        break
                except (OSError, asyncio.IncompleteReadError):
                    pass
                await asyncio.sleep(0.1)
            wrong = await load(front, background.expected, servers[0].process.terminate)
            # Between the signal and the proxy's next look a request may meet a server that drains: 503, never worse.
            worse = [line for line in wrong if "status 503" not in line]
            report.say("a replica drains and every answer is right", worse[0] if worse else None)
            few = len(wrong) <= CLIENTS
            report.say("few meet the server that drains", None if few else f"{len(wrong)} of {CLIENTS * ROUNDS}")
            served = await servers[1].metrics()
            report.say("both served", None if served["generation_tokens_total"] > 0 else "one stood idle")
    finally:
        if proxy is not None:
            proxy.terminate()
            proxy.wait()
        for server in servers:
            if server.process.poll() is None:
                server.process.kill()
            server.process.wait()


if __name__ == "__main__":
    outcome = faults.Report()
    asyncio.run(run(sys.argv[1], outcome))
    sys.exit(0 if outcome.failures == 0 else 1)
