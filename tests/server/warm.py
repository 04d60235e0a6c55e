"""A prefix cache that outlives its server: --cache-file. Part of faults.py.

What was computed before a restart is not computed again, and answers are what they are on a server without a cache;
a file that is damaged, cut, of another model or of another cache is refused with a sentence and nothing else; servers
and engines killed while they save leave a file that is whole. Counted in tokens, never in time.
"""
import asyncio
import json
import os
import random
import signal
import tempfile

SEED = 0  # of where files are damaged and when engines are killed
PROMPTS = [[1] + [300 + (7 * i + 13 * j) % 3000 for j in range(1000)] for i in range(3)]


def body(prompt, tokens=8):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}


async def answer(server, request, prompt, tokens=8):
    """Token ids and how many tokens of the prompt were found in the cache."""
    status, text = await server.fetch(request("/v1/completions", body(prompt, tokens)))
    if status != 200:
        raise RuntimeError(f"{status}: {text!r:.300}")
    said = json.loads(text)
    return said["choices"][0]["token_ids"], said["usage"]["prompt_tokens_details"]["cached_tokens"]


async def ended(server):
    if server.process.poll() is None:
        server.process.kill()
    server.process.wait()


async def restarted(make, request, report, file):
    """Saved at the end, found at the start."""
    server = make()
    await server.start()
    wanted = [await answer(server, request, prompt) for prompt in PROMPTS]
    code = server.stop()
    wrong = None
    if code != 0 or any(cached >= 16 for _, cached in wanted) or not os.path.exists(file):
        wrong = f"code {code}, {[cached for _, cached in wanted]}: {server.said()[-500:]}"
    elif os.stat(file).st_mode & 0o077 or os.stat(file + ".key").st_mode & 0o077:
        wrong = "others may read the file"
    report.say("the cache is saved when a server ends", wrong)
    for flags, name in (((), "another process"), (("--in-process",), "one process")):
        server = make(*flags)
        await server.start()
        again = [await answer(server, request, prompt) for prompt in PROMPTS]
        server.stop()
        least = min(cached for _, cached in again)
        wrong = None if least >= len(PROMPTS[0]) - 16 else f"of {len(PROMPTS[0])} tokens {least} were found"
        if [ids for ids, _ in again] != [ids for ids, _ in wanted]:
            wrong = "other tokens"
        report.say(f"after a restart nothing is computed again ({name})", wrong)
    return [ids for ids, _ in wanted]


async def cold(make, request, wanted):
    """What is wrong with a server that should have refused its file."""
    server = make()
    try:
        await server.start()
        ids, cached = await answer(server, request, PROMPTS[0])
        said = server.said()
        if ids != wanted[0]:
            return "other tokens"
        if cached != 0:
            return f"{cached} tokens of a file that is not to be trusted"
        return None if "the cache is empty" in said else said[-500:]
    finally:
        await ended(server)


async def refused(make, request, report, file, wanted, flips):
    """Damage anywhere, and files of something else."""
    with open(file, "rb") as opened:
        good = opened.read()
    dice = random.Random(5 + SEED)
    cases = [(f"bit {bit}", good[:bit // 8] + bytes([good[bit // 8] ^ 1 << bit % 8]) + good[bit // 8 + 1:])
             for bit in (dice.randrange(8 * (len(good) if i % 2 else 200)) for i in range(flips))]
    cases += [("empty", b""), ("cut", good[:-1]), ("half", good[:len(good) // 2]), ("longer", good + b"\0")]
    wrong = []
    for name, bad in cases:
        with open(file, "wb") as opened:
            opened.write(bad)
        if found := await cold(make, request, wanted):
            wrong.append(f"{name}: {found}")
    with open(file, "wb") as opened:
        opened.write(good)
    report.say(f"{len(cases)} damaged files are refused and the start is cold", wrong[:3] or None)
    for name, flags in (("keys and values of another type", ("--kv", "q8_0")),
                        ("another model", ("-m", "models/stories-draft-1m-q8_0.gguf"))):
        server = make(*flags)
        await server.start()
        await answer(server, request, [1, 2, 3])
        said = server.said()
        await ended(server)
        report.say(f"the cache of {name} is refused",
                   None if "another model or of pages of another shape" in said else said[-500:])
    with open(file, "wb") as opened:
        opened.write(good)


async def engine_killed(make, request, report, wanted):
    """An engine that takes the place of a dead one has the cache of the last save."""
    server = make("--cache-save", "0.05")
    await server.start()
    await answer(server, request, PROMPTS[0])
    engine = int(server.said().rsplit("engine process ", 1)[1].split()[0])
    os.kill(engine, signal.SIGKILL)
    while " is ready" not in server.said():  # a request that goes on has its tokens counted once, by the first engine
        await asyncio.sleep(0.01)
    ids, cached = await answer(server, request, PROMPTS[0])
    server.stop()
    wrong = None if ids == wanted[0] and cached >= len(PROMPTS[0]) - 16 else f"{cached} tokens found"
    report.say("an engine that is replaced finds the cache again", wrong)


async def killed(make, request, report, file, kills):
    """Servers and engines killed while they save: the next start never finds damage."""
    dice, wrong, found = random.Random(6 + SEED), [], 0
    os.remove(file)
    for turn in range(kills + 50):
        if turn >= kills and found:  # on a busy machine none may have been saved before it was killed
            break
        server = make("--cache-save", "0.05")
        await server.start()
        asked = [asyncio.create_task(answer(server, request, [1, 400 + turn, *PROMPTS[i % 3]], 100)) for i in range(4)]
        await asyncio.sleep(0.1 + 0.5 * dice.random())
        victim = server.process.pid
        if turn % 2:
            victim = int(server.said().rsplit("engine process ", 1)[1].split()[0])
        os.kill(victim, signal.SIGKILL)
        if turn % 2 == 0:
            server.process.wait()
        done = await asyncio.gather(*asked, return_exceptions=True)
        if turn % 2 and any(isinstance(one, Exception) for one in done):
            wrong.append(f"{turn}: {[str(one) for one in done]}")
        said = server.said()
        await ended(server)
        found += "found again" in said
        if "the cache is empty" in said:
            wrong.append(f"{turn}: {said[-300:]}")
    report.say(f"{turn} kills while the cache is saved leave it whole", wrong[:3] or None)
    report.say("and it was found again", None if found else "never")
    server = make()
    await server.start()
    left = [name for name in os.listdir(os.path.dirname(file)) if name.endswith(".tmp")]
    server.stop()
    report.say("nothing is left of saves that were cut off", left or None)


async def on_disk(make_server, request, report, folder):
    """Pages in a file: an engine with a small cache, and one after a restart, find what was computed."""
    secret, file = f"{folder}/secret", f"{folder}/pages"
    with open(secret, "wb") as opened:
        opened.write(bytes(range(32)))
    prompts = [[1] + [300 + (11 * i + 17 * j) % 3000 for j in range(300)] for i in range(6)]

    def make(*flags):
        return make_server("-np", "2", "-c", "512", "--kv-size", "8M", "--secret-file", secret, "--page-store",
                           f"disk:{file}", "--page-store-size", "64M", "--page-store-wait", "30", *flags)

    async def stored(server):
        _, page = await server.fetch(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = [line for line in page.decode().splitlines() if 'page_store_nodes_total' in line and '"stored"' in line]
        return float(found[0].rsplit(" ", 1)[1]) if found else 0

    plain = make_server("-np", "2", "-c", "512")
    await plain.start()
    wanted = [(await answer(plain, request, prompt))[0] for prompt in prompts]
    plain.stop()
    server = make()
    await server.start()
    first = [await answer(server, request, prompt) for prompt in prompts]
    for _ in range(600):  # they are put after their answers
        if await stored(server) >= 6 * (300 // 16) - 6:
            break
        await asyncio.sleep(0.1)
    server.stop()
    for flags, name in (((), "another process"), (("--in-process",), "one process")):
        server = make(*flags)
        await server.start()
        again = [await answer(server, request, prompt) for prompt in prompts]
        server.stop()
        good = [ids for ids, _ in first] == [ids for ids, _ in again] == wanted
        least = min(cached for _, cached in again)
        report.say(f"pages on disk are found after a restart ({name})",
                   None if good and least >= 240 else f"{good}, {[cached for _, cached in again]}")
    with open(file, "r+b") as opened:  # every place is damaged
        size = opened.seek(0, 2)
        for at in range(4096 + 2000, size, 4096):
            opened.seek(at)
            opened.write(b"\xff\xfe\xfd")
    server = make()
    await server.start()
    again = [(await answer(server, request, prompt))[0] for prompt in prompts]
    report.say("damaged pages are computed anew", None if again == wanted else "other tokens")
    busy = make()
    code = busy.process.wait(timeout=60)
    report.say("a file that another server has is refused",
               None if code == 1 and "another server" in busy.said() else f"{code}: {busy.said()[-300:]}")
    server.stop()


async def check(make_server, request, report, full):
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/prefixes"

        def make(*flags):
            return make_server("-np", "8", "--cache-file", file, *flags)

        await on_disk(make_server, request, report, folder)
        wanted = await restarted(make, request, report, file)
        await engine_killed(make, request, report, wanted)
        await refused(make, request, report, file, wanted, 1000 if full else 20)
        await killed(make, request, report, file, 200 if full else 5)
        server = make_server("--cache-file", f"{folder}/none/prefixes")
        code = server.process.wait(timeout=60)
        report.say("a folder that is not there is refused at the start",
                   None if code == 1 and "none/prefixes" in server.said() else f"{code}: {server.said()}")
