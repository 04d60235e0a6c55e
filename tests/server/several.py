"""Several models behind one server: --models. Part of faults.py.

Each answers as it does alone; a model that nobody has asked for has no engine; with room for one, the others sleep and
are woken by who asks for them; nobody's answer is lost, whatever is loaded meanwhile. Counted, never timed.
"""
import asyncio
import json
import os
import signal

SMALL = "models/stories-draft-1m-q8_0.gguf"
LARGE = "models/stories-14m-q8_0.gguf"


def ask(path, body):
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def body(model, seed):
    return {"model": model, "prompt": [1, 300 + seed, 400, 500], "max_tokens": 40, "temperature": 1, "seed": seed,
            "ignore_eos": True, "return_token_ids": True}


async def ids(server, model, seed):
    status, text = await server.fetch(ask("/v1/completions", body(model, seed)))
    if status != 200:
        raise RuntimeError(f"{model}: {status}: {text!r:.300}")
    said = json.loads(text)
    if model and said["model"] != model:
        raise RuntimeError(f"{said['model']} answered for {model}")
    return said["choices"][0]["token_ids"]


async def states(server):
    _, text = await server.fetch(get("/v1/models"))
    return {one["id"]: one["status"]["value"] for one in json.loads(text)["data"]}


def engines(server):
    """Processes that the server has started, but for those that keep weights for engines to come."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                name, _, rest = file.read().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if fields[0] != "Z" and "millrace-spare" not in name and int(fields[1]) == server.process.pid:
            found.append(int(entry))
    return found


async def alone(make, path, seeds):
    server = make("-m", path)
    await server.start()
    wanted = [await ids(server, "", seed) for seed in range(seeds)]
    server.stop()
    return wanted


async def by_name(make, report, wanted):
    server = make("-m", LARGE, "--alias", "large", "--models", f"small={SMALL},other={SMALL}")
    await server.start()
    before = await states(server), len(engines(server))
    report.say("a model that nobody asked for has no engine",
               None if before == ({"large": "loaded", "small": "unloaded", "other": "unloaded"}, 1) else f"{before}")
    asked = [asyncio.create_task(ids(server, name, seed)) for seed in range(4) for name in ("small", "large", "other")]
    got = await asyncio.gather(*asked)
    small, large = wanted["small"], wanted["large"]
    good = got == [one for seed in range(4) for one in (small[seed], large[seed], small[seed])]
    report.say("each answers as it does alone, and many wait for one that loads", None if good else f"{got}"[:300])
    report.say("without a name the first answers", None if await ids(server, "", 1) == wanted["large"][1] else "other")
    after = await states(server)
    report.say("all are awake where memory holds them",
               None if set(after.values()) == {"loaded"} and len(engines(server)) == 3 else f"{after}")
    status, text = await server.fetch(ask("/v1/completions", body("none", 1)))
    report.say("a model that is not there is 404", None if status == 404 else f"{status} {text!r:.200}")
    _, page = await server.fetch(get("/metrics"))
    lines = page.decode().splitlines()
    names = {f'vllm:num_requests_running{{model_name="{name}"}} 0' for name in ("large", "small", "other")}
    heads = [line for line in lines if line.startswith("# TYPE ")]
    series = [line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")]
    report.say("figures of all stand under one heading each",
               None if names <= set(lines) and len(heads) == len(set(heads)) and len(series) == len(set(series)) else
               f"{len(heads)} headings, {len(set(heads))} different")
    _, tags = await server.fetch(get("/api/tags"))
    report.say("Ollama's clients see them", None if len(json.loads(tags)["models"]) == 3 else f"{tags!r:.200}")
    for pid in engines(server):  # all of them die; open and new answers go on
        os.kill(pid, signal.SIGKILL)
    again = [await ids(server, name, 2) for name in ("small", "large", "other")]
    report.say("engines that die are replaced, each its own",
               None if again == [wanted["small"][2], wanted["large"][2], wanted["small"][2]] else f"{again}"[:300])
    code = server.stop()
    report.say("the server ends with all of them", None if code == 0 else f"{code}: {server.said()[-300:]}")


async def one_at_a_time(make, report, wanted):
    server = make("-m", LARGE, "--alias", "large", "--models", f"small={SMALL}", "--models-max", "1")
    await server.start()
    wrong = []
    for turn in range(6):
        for name in ("small", "large"):
            if await ids(server, name, turn % 4) != wanted[name][turn % 4]:
                wrong.append(f"{turn} {name}")
            awake = [one for one, state in (await states(server)).items() if state == "loaded"]
            if awake != [name] or len(engines(server)) > 1:
                wrong.append(f"{turn}: {awake}, {len(engines(server))} engines")
    report.say("with room for one the other sleeps and is woken", wrong[:3] or None)
    asked = [asyncio.create_task(ids(server, name, seed)) for seed in range(4) for name in ("small", "large")]
    got = await asyncio.gather(*asked, return_exceptions=True)
    right = [wanted[name][seed] for seed in range(4) for name in ("small", "large")]
    report.say("a crowd that wants both gets both", None if got == right else f"{got}"[:500])
    server.stop()


async def refused(make, report):
    wrong = []
    for flags, word in ((("--models", f"large={SMALL}"), "two models are called"),
                        (("--models", "none.gguf"), "no file"),
                        (("--models", SMALL, "--in-process"), "for one model")):
        server = make("-m", LARGE, "--alias", "large", *flags)
        code = server.process.wait(timeout=60)
        if code != 1 or word not in server.said():
            wrong.append(f"{flags}: {code}: {server.said()}")
    report.say("what cannot be is refused at the start", wrong or None)
    server = make("-m", LARGE, "--models", "bad=README.md", "--load-wait", "0")
    await server.start()
    status, text = await server.fetch(ask("/v1/completions", body("bad", 1)))
    report.say("whoever would wait too long is told to come again",
               None if status == 503 and b"being loaded" in text else f"{status} {text!r:.200}")
    server.stop()
    server = make("-m", LARGE, "--models", "bad=README.md")
    await server.start()
    status, text = await server.fetch(ask("/v1/completions", body("bad", 1)))
    still = (await server.fetch(ask("/v1/completions", body("", 1))))[0]
    report.say("a model that cannot be loaded is an error for those who asked",
               None if (status, still) == (503, 200) and b"cannot be loaded" in text else
               f"{status} {text!r:.200} {still}")
    server.stop()


async def check(make, report):
    wanted = {"small": await alone(make, SMALL, 4), "large": await alone(make, LARGE, 4)}
    await by_name(make, report, wanted)
    await one_at_a_time(make, report, wanted)
    await refused(make, report)
