"""What a server says and promises from its start on: its context, its defaults, its ciphers, its files. Part of
faults.py."""
import asyncio
import json
import os
import resource
import ssl
import subprocess
import tempfile

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}


def ask(method, path, body=None):
    data = json.dumps(body).encode() if body is not None else b""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


async def with_server(server, task):
    """What the task says is wrong; the server ends either way."""
    try:
        await server.start()
        return await task(server)
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()


async def small_cache(program, report, new_server):
    """A cache too small for the context: less is promised, and what is promised can be had."""
    async def task(server):
        model = json.loads((await server.fetch(ask("GET", "/v1/models")))[1])["data"][0]
        promised = model["max_model_len"]
        if not 0 < promised < 2048 or f"the context is {promised} tokens instead of 2048" not in server.said():
            return f"{promised} tokens are promised: {server.said()}"
        chat = {key: value for key, value in CHAT.items() if key != "max_tokens"}
        whole = {"prompt": [1] * (promised - 1), "max_tokens": 1}
        more = {"prompt": [1] * promised, "max_tokens": 1}
        statuses = [(await server.fetch(ask("POST", *one)))[0] for one in (
            ("/v1/chat/completions", chat), ("/v1/completions", whole), ("/v1/completions", more))]
        return None if statuses == [200, 200, 400] else f"statuses {statuses}"

    report.say("a small cache promises what it holds",
               await with_server(new_server("--kv-size", "1M"), task))
    done = subprocess.run([program, "serve", "--port", "0", "--kv-size", "1M", "-c", "512"], capture_output=True,
                          timeout=300, stdin=subprocess.DEVNULL)
    told = done.returncode == 1 and b"512 tokens needs more than" in done.stderr
    report.say("a context that was asked for and does not fit is refused", None if told else f"{done.stderr!r}")


async def defaults(program, report, new_server):
    """Flags are the defaults of requests, and the server says what holds."""
    async def task(server):
        if "sampling temperature 0, top_k 7, top_p 0.95, min_p 0.05" not in server.said():
            return server.said()
        props = json.loads((await server.fetch(ask("GET", "/props")))[1])["default_generation_settings"]
        if props["params"]["temperature"] != 0 or props["params"]["top_k"] != 7:
            return str(props)
        texts = {json.loads((await server.fetch(ask("POST", "/v1/completions", {
            "prompt": [1, 403], "max_tokens": 20, **more})))[1])["choices"][0]["text"]
            for more in ({}, {}, {"temperature": 0}, {"top_k": 1, "temperature": 1})}
        return None if len(texts) == 1 else f"{texts}"

    report.say("serve --temp is the default of requests",
               await with_server(new_server("--temp", "0", "--top-k", "7", "-c", "256"), task))


async def descriptors(program, report, new_server):
    """Without files left it says so once, and goes on when there are some."""
    async def task(server):
        used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 5, before[1]))
        crowd = [await server.connect() for _ in range(20)]
        for _ in range(2000):
            if "no new connection can be taken" in server.said():
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # it tries again several times in this, and says nothing more
        said = server.said()
        for _, writer in crowd:
            writer.close()
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, before)
        status, _ = await server.fetch(ask("GET", "/health"))
        if said.count("no new connection can be taken") != 1 or "ulimit -n" not in said:
            return said
        return None if status == 200 and "taken again" in server.said() else f"{status}: {server.said()}"

    report.say("out of open files it says so and recovers", await with_server(new_server("-c", "256"), task))


async def ciphers(program, report, new_server):
    """TLS 1.2 only with forward secrecy and authenticated ciphers, 1.3 as it is, nothing older."""
    with tempfile.TemporaryDirectory() as folder:
        cert, key = (os.path.join(folder, name) for name in ("cert.pem", "key.pem"))
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
                               "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                              capture_output=True)
        if made.returncode != 0:
            return report.say("a certificate can be made", made.stderr.decode())

        async def task(server):
            wrong = []
            for suite, taken in (("ECDHE-RSA-AES128-GCM-SHA256", True), ("ECDHE-RSA-CHACHA20-POLY1305", True),
                                 ("AES128-GCM-SHA256", False), ("AES256-SHA", False),
                                 ("ECDHE-RSA-AES128-SHA256", False), ("ECDHE-RSA-AES256-SHA", False)):
                context = ssl.create_default_context(cafile=cert)
                context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
                context.set_ciphers(suite)
                try:
                    _, writer = await server.connect(ssl=context, server_hostname="localhost")
                    writer.close()
                    got = True
                except (ssl.SSLError, ConnectionError):
                    got = False
                if got != taken:
                    wrong.append(suite)
            return f"wrong: {wrong}" if wrong else None

        report.say("TLS 1.2 has forward-secret AEAD suites only", await with_server(
            new_server("--ssl-cert-file", cert, "--ssl-key-file", key, "-c", "256"), task))


async def tracing(program, report, new_server):
    """What a request is called elsewhere stands in its answer, in the log and among what is open."""
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    head = f"X-Request-Id: call-7\r\ntraceparent: 00-{trace}-{parent}-01\r\n"

    async def task(server):
        data = json.dumps({"prompt": [1, 403], "max_tokens": 2000, "ignore_eos": True, "stream": True}).encode()
        reader, writer = await server.connect()
        writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {len(data)}\r\n\r\n"
                     .encode() + data)
        answer = await reader.readuntil(b"\r\n\r\n")
        live, looker = await server.connect()
        looker.write(ask("GET", "/live"))
        await live.readuntil(b"data: ")
        seen = json.loads(await live.readuntil(b"\n"))
        looker.close()
        writer.close()
        if b"X-Request-Id: call-7\r\n" not in answer:
            return f"{answer}"
        if [(one["id"], one["trace_id"]) for one in seen["open"]] != [("call-7", trace)]:
            return f"{seen['open']}"
        await server.quiet()
        await server.fetch(ask("POST", "/v1/completions", {"prompt": [1, 403], "max_tokens": 2}))
        lines = [json.loads(line) for line in server.said().splitlines() if line.startswith("{")]
        first = next((line for line in lines if line["request_id"] == "call-7"), None)
        if first is None or (first["trace_id"], first["parent_id"], first["sampled"]) != (trace, parent, True):
            return f"{lines}"
        last = [line for line in lines if line["request_id"].startswith("req-") and line.get("completion_tokens") == 2]
        return None if len(last) == 1 and "trace_id" not in last[0] else f"{lines}"

    report.say("requests are followed by their ids and traces",
               await with_server(new_server("--log-requests", "--log-format", "json"), task))


async def check(program, report, new_server):
    for part in (small_cache, defaults, descriptors, ciphers, tracing):
        await part(program, report, new_server)
