"""Weights that change under a server that runs, and servers that stand still. Part of faults.py.

Answers are always those of a fresh server with the weights their fingerprint names; nobody is dropped in the modes
wait and keep, nothing of other weights is found in a cache, and a bad file leaves the old weights serving. A file that
is gone when the engine has to be started again is told, until it is back.
"""
import asyncio
import ctypes
import json
import os
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time

import crash

MODEL = "models/stories-14m-q8_0.gguf"
PROMPT = [1] + [300 + 13 * j % 3000 for j in range(100)]
KEYS = {"operator": "sk-operator-0123456789", "guest": "sk-guest-0123456789"}


def tensors(file):
    """Where each tensor of a GGUF file begins, its type and how many numbers it has."""
    def number(form):
        return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

    def text():
        return file.read(number("Q")).decode()

    def skip(kind):
        if kind == 8:
            text()
        elif kind == 9:
            inside, count = number("I"), number("Q")
            for _ in range(count):
                skip(inside)
        else:
            file.read({0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}[kind])

    file.read(8)
    count, keys = number("Q"), number("Q")
    for _ in range(keys):
        text()
        skip(number("I"))
    found = []
    for _ in range(count):
        name, size = text(), 1
        for _ in range(number("I")):
            size *= number("Q")
        found.append((name, number("I"), number("Q"), size))
    begin = (file.tell() + 31) // 32 * 32
    return [(name, kind, begin + offset, size) for name, kind, offset, size in found]


def other_weights(source, path, step):
    """The same file with the scales of one matrix (Q8_0) changed: other answers, the same shapes."""
    shutil.copy(source, path)
    with open(path, "r+b") as file:
        _, _, begin, size = next(one for one in tensors(file) if one[1] == 8 and "ffn_down" in one[0])
        file.seek(begin)
        groups = bytearray(file.read(size // 32 * 34))
        for at in range(0, len(groups), 34):
            scale = struct.unpack_from("<e", groups, at)[0]
            struct.pack_into("<e", groups, at, scale * (1 - 0.2 * step))
        file.seek(begin)
        file.write(groups)


def ask(method, path, body=None, key="operator"):
    data = json.dumps(body).encode() if body is not None else b""
    return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEYS[key]}\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def story(seed, tokens=24):
    return {"prompt": PROMPT + [400 + seed], "max_tokens": tokens, "temperature": 1, "seed": seed, "ignore_eos": True,
            "return_token_ids": True}


async def answer(server, seed, tokens=24):
    status, text = await server.fetch(ask("POST", "/v1/completions", story(seed, tokens)))
    said = json.loads(text)
    if status != 200:
        raise RuntimeError(f"{status}: {said}")
    return said["system_fingerprint"], said["choices"][0]["token_ids"], said["usage"]


async def do(server, path, body=None, key="operator"):
    status, text = await server.fetch(ask("POST", path, body, key))
    return status, json.loads(text) if text else None


async def fresh_answers(make, files, seeds):
    """By fingerprint what servers started with these weights say, and the fingerprints in order."""
    known, order = {}, []
    for file in files:
        server = make("-m", file, "--alias", "story")
        await server.start()
        for seed in range(seeds):
            name, ids, _ = await answer(server, seed)
            known.setdefault(name, {})[seed] = ids
        order.append(name)
        server.stop()
    return known, order


async def swaps(make, report, folder, known, order, count, seeds, flags, name):
    server = make("-m", f"{folder}/w0.gguf", "--alias", "story", "--weights-dir", folder, *flags)
    await server.start()
    wrong, answers, done = [], 0, False

    async def client(number):
        nonlocal answers
        while not done:
            seed = (number + answers) % seeds
            try:
                finger, ids, usage = await answer(server, seed)
            except Exception as failure:  # whatever it is, an answer was dropped
                wrong.append(f"dropped: {failure}")
                return
            answers += 1
            if known.get(finger, {}).get(seed) != ids:
                wrong.append(f"seed {seed} of {finger} differs")
            if usage["completion_tokens"] != 24:
                wrong.append(f"usage {usage}")

    clients = [asyncio.create_task(client(i)) for i in range(6)]
    try:
        for turn in range(1, count + 1):
            status, said = await do(server, "/update_weights_from_disk",
                                    {"model_path": f"w{turn % len(order)}.gguf", "mode": "wait"})
            if status != 200 or said["fingerprint"] != order[turn % len(order)]:
                wrong.append(f"change {turn}: {status} {said}")
                break
            finger, ids, usage = await answer(server, 0)
            if finger != order[turn % len(order)] or ids != known[finger][0]:
                wrong.append(f"after change {turn}: {finger}")
    finally:
        done = True
        await asyncio.gather(*clients)
    server.stop()
    report.say(f"{count} changes of weights under load ({name}): {answers} answers, each as on a fresh server",
               wrong[:3] or (None if answers > count else "too few answers"))


async def modes(make, report, folder, known, order):
    server = make("-m", f"{folder}/w0.gguf", "--alias", "story", "--weights-dir", folder)
    await server.start()
    await answer(server, 0)
    finger, _, usage = await answer(server, 0)
    found = usage["prompt_tokens_details"]["cached_tokens"]
    await do(server, "/update_weights_from_disk", {"model_path": "w1.gguf"})
    _, _, usage = await answer(server, 0)
    stale = usage["prompt_tokens_details"]["cached_tokens"]
    report.say("prefixes of other weights are not found", None if found >= 96 and stale == 0 else f"{found}, {stale}")

    wrong = []
    for body in ({"model_path": "bad.gguf"}, {"model_path": "small.gguf"}, {"model_path": "none.gguf"},
                 {"model_path": "../../etc/passwd"}, {}):
        status, said = await do(server, "/update_weights_from_disk", body)
        finger, ids, _ = await answer(server, 1)
        if status < 400 or finger != order[1] or ids != known[finger][1]:
            wrong.append(f"{body}: {status} {said}, then {finger}")
    report.say("a bad file leaves the old weights serving", wrong or None)
    statuses = [(await do(server, path, {"model_path": "w0.gguf"}, key="guest"))[0] for path in (
        "/update_weights_from_disk", "/pause", "/resume", "/sleep", "/wake_up", "/reset_prefix_cache")]
    report.say("who is no operator changes nothing", None if set(statuses) == {403} else f"{statuses}")

    # keep: begun with one, ended with other weights, and nobody notices but by the tokens.
    long = asyncio.create_task(answer(server, 2, 600))
    await asyncio.sleep(0.3)
    status, said = await do(server, "/update_weights_from_disk", {"model_path": "w0.gguf", "mode": "keep"})
    began, ids, usage = await long
    finger, after, _ = await answer(server, 1)
    good = status == 200 and len(ids) == 600 and usage["completion_tokens"] == 600 and finger == order[0]
    report.say("answers that are kept go on with the new weights",
               None if good and after == known[finger][1] else f"{status} {said} {len(ids)} {finger}")

    for _ in range(20):  # a fast machine may be done before it is told to end
        long = asyncio.create_task(server.fetch(ask("POST", "/v1/completions", story(3, 1500))))
        await asyncio.sleep(0.1)
        status, said = await do(server, "/update_weights_from_disk", {"model_path": "w1.gguf", "mode": "abort"})
        ended, text = await long
        if (status, ended) != (200, 200):
            break
    report.say("abort ends open answers with an error", None if (status, ended) == (200, 503) else
               f"{status} {said}, {ended} {text!r:.200}")
    server.stop()


async def rests(make, report, folder, known, order):
    """Standing still and sleeping in the middle of answers."""
    server = make("-m", f"{folder}/w0.gguf", "--alias", "story")
    await server.start()
    wanted = [(await answer(server, seed, 300))[1] for seed in range(4)]
    for stop, go, state in (("/pause?mode=keep", "/resume", "is_paused"),
                            ("/sleep?level=1", "/wake_up", "is_sleeping")):
        open_answers = [asyncio.create_task(answer(server, seed, 300)) for seed in range(4)]
        await asyncio.sleep(0.1)
        first = await do(server, stop)
        late = asyncio.create_task(answer(server, 1))
        status, text = await server.fetch(ask("GET", f"/{state}"))
        health = (await server.fetch(ask("GET", "/health")))[0]
        for _ in range(50):  # what the last step gave may be told a little later
            steps = []
            for _ in range(2):
                steps.append((await server.metrics_with(KEYS["operator"]))["generation_tokens_total"])
                await asyncio.sleep(0.2)
            if steps[0] == steps[1]:
                break
        held = not late.done()
        awake = len(crash.descendants(server))
        if awake != (2 if state == "is_paused" else 0):
            report.say(f"processes after {stop}", f"{awake}: {server.said()[-300:]}")
        second = await do(server, go)
        got = [(await one)[1] for one in open_answers]
        await late
        good = first[0] == second[0] == 200 and json.loads(text)[state] and health == 200 and held
        wrong = None if good and got == wanted and steps[0] == steps[1] else (
            f"{first} {second} {text} health {health} held {held} same {got == wanted} steps {steps}")
        report.say(f"answers go on after {stop} and {go} as if nothing had been", wrong)
    long = asyncio.create_task(answer(server, 2, 300))
    await asyncio.sleep(0.05)
    status, _ = await do(server, "/pause?mode=wait")
    finished = long.done() or len((await long)[1]) == 300
    await do(server, "/resume")
    report.say("pause with wait lets answers end", None if status == 200 and finished else f"{status}")
    await answer(server, 0)
    status, said = await do(server, "/reset_prefix_cache")
    _, _, usage = await answer(server, 0)
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    report.say("the prefix cache is emptied", None if status == 200 and said["nodes"] > 0 and cached == 0 else
               f"{status} {said} {cached}")
    server.stop()


async def rollout(make, report, folder):
    """The loop that docs/training.md shows."""
    server = make("-m", f"{folder}/w0.gguf", "--alias", "story", "--weights-dir", folder)
    await server.start()
    done = await asyncio.create_subprocess_exec(
        sys.executable, "docs/examples/rollout.py", f"http://127.0.0.1:{server.port}", "w1.gguf", "w2.gguf",
        env={**os.environ, "API_KEY": KEYS["operator"]}, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT)
    said = (await done.communicate())[0].decode()
    server.stop()
    report.say("the training loop of the docs runs, scores equal to the bit",
               None if done.returncode == 0 and said.count("round") == 2 else said[-600:])


def kill_all(server):
    """The engine and what would replace it from memory, so that files are read again."""
    spares = crash.descendants(server, "millrace-spare")
    for one in spares + [one for one in crash.descendants(server) if one not in spares]:
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            pass


async def until(so, seconds=60):
    end = time.monotonic() + seconds
    while not await so() and time.monotonic() < end:
        await asyncio.sleep(0.05)


async def without_files(make, report, folder):
    """The engine dies and its file is gone, damaged or another: everybody is told so, at once and by every route."""
    model = f"{folder}/served.gguf"
    for what, words, heals in (("gone", "does not exist", True), ("empty", "empty", True),
                               ("another", "are not what they were", False)):
        shutil.copy(MODEL, model)
        server = make("-m", model, "--alias", "story")
        await server.start()
        wanted = await answer(server, 0)
        long = asyncio.create_task(server.fetch(ask("POST", "/v1/completions", story(1, 1900))))
        await asyncio.sleep(0.2)
        if what == "gone":
            os.remove(model)
        elif what == "empty":
            os.truncate(model, 0)
        else:
            shutil.copy(f"{folder}/w1.gguf", model)
        kill_all(server)
        status, text = await asyncio.wait_for(long, 100)
        wrong = [] if status == 503 and words in text.decode() else [f"open: {status} {text!r:.200}"]
        for one in (ask("GET", "/ready"), ask("GET", "/health"), ask("POST", "/v1/completions", story(2))):
            began = time.monotonic()
            status, text = await server.fetch(one)
            said = json.loads(text)
            if status != 503 or words not in text.decode() or time.monotonic() - began > 10:
                wrong.append(f"{one[:20]}: {status} {said}")
            if said.get("seconds_since_progress", 0) < 0:
                wrong.append(f"{said}")
        if heals:
            shutil.copy(MODEL, f"{model}.whole")
            os.rename(f"{model}.whole", model)

            async def is_ready():
                return (await server.fetch(ask("GET", "/ready")))[0] == 200

            await until(is_ready)
            status, _ = await server.fetch(ask("GET", "/health"))
            again = await answer(server, 0) if status == 200 else f"health {status}: {server.said()[-600:]}"
            if again[:2] != wanted[:2]:
                wrong.append(f"then {again}")
        server.stop()
        report.say(f"an engine whose file is {what} is told, and comes back with it" if heals else
                   f"an engine whose file is {what} is told", wrong or None)


def replace_once_open(opened, name, other):
    """`other` gets the name as soon as the file `opened` was opened. The thread ends when that has happened."""
    system = ctypes.CDLL(None, use_errno=True)
    watch = system.inotify_init1(os.O_CLOEXEC)
    system.inotify_add_watch(watch, opened.encode(), 0x20)  # IN_OPEN

    def replace():
        os.read(watch, 4096)
        os.rename(other, name)
        os.close(watch)

    thread = threading.Thread(target=replace, daemon=True)
    thread.start()
    return thread


async def turned(make, report, folder):
    """A name that stands for another file between the server's reading and the engine's: nothing is mixed or kept."""
    link, name, cache = f"{folder}/link.gguf", f"{folder}/name.gguf", f"{folder}/cache"
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = cache
    wrong, refused = [], 0
    try:
        await asyncio.sleep(2.1)  # digests of files that changed just now are not kept
        for _ in range(5):  # a crowded machine may turn it too late
            if os.path.lexists(link):
                os.remove(link)
            os.symlink("w0.gguf", link)
            os.symlink("w1.gguf", f"{link}.other")
            thread = replace_once_open(f"{folder}/w0.gguf", link, f"{link}.other")
            server = make("-m", link, "--alias", "story")
            try:
                await server.start()
                server.stop()
            except RuntimeError as failure:
                refused += "changed between two readings" in str(failure)
            thread.join()
            if refused:
                break
        if refused == 0 or os.path.exists(f"{cache}/millrace/digests.json"):
            wrong.append(f"{refused} refused, {os.listdir(cache) if os.path.isdir(cache) else 'no cache'}")
        server = make("-m", f"{folder}/w2.gguf", "--alias", "story", "--weights-dir", folder)
        await server.start()
        first = await answer(server, 0)
        shutil.copy(f"{folder}/w0.gguf", name)
        shutil.copy(f"{folder}/w1.gguf", f"{name}.other")
        thread = replace_once_open(name, name, f"{name}.other")
        status, said = await do(server, "/update_weights_from_disk", {"model_path": "name.gguf"})
        thread.join()
        same = (await answer(server, 0))[:2] == first[:2]
        if status == 200 or "changed between two readings" not in str(said) or not same:
            wrong.append(f"reload: {status} {said}")
        server.stop()
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before
    report.say("a file that another replaces between two readings is refused", wrong or None)


def prepare(make_server, folder):
    """Weights to change between, bad ones, and keys; servers that have these."""
    shutil.copy(MODEL, f"{folder}/w0.gguf")
    for step in (1, 2):
        other_weights(MODEL, f"{folder}/w{step}.gguf", step)
    shutil.copy("models/stories-draft-1m-q8_0.gguf", f"{folder}/small.gguf")
    with open(MODEL, "rb") as good, open(f"{folder}/bad.gguf", "wb") as bad:
        bad.write(good.read(1 << 20))
    with open(f"{folder}/keys", "w", encoding="utf-8") as file:
        file.write(f"boss {KEYS['operator']} operator\nguest {KEYS['guest']}\n")
    return lambda *flags: make_server("-np", "8", "--api-key-file", f"{folder}/keys", *flags)


async def check(make_server, report, full):
    with tempfile.TemporaryDirectory() as folder:
        make = prepare(make_server, folder)
        seeds = 8
        known, order = await fresh_answers(make, [f"{folder}/w{i}.gguf" for i in range(3)], seeds)
        report.say("three weights, three fingerprints, other answers",
                   None if len(known) == 3 and len({str(one) for one in known.values()}) == 3 else f"{order}")
        await swaps(make, report, folder, known, order, 100 if full else 6, seeds, (), "beside the old ones")
        await swaps(make, report, folder, known, order, 20 if full else 2, seeds, ("--memory-limit", "100M"),
                    "after the old ones")
        await rollout(make, report, folder)
        await modes(make, report, folder, known, order)
        await rests(make, report, folder, known, order)
        await without_files(make, report, folder)
        await turned(make, report, folder)
