"""An engine that dies while answers are on their way: they go on byte for byte. Part of faults.py.

Streams of every kind of sampling, with adapters and without, run while the engine's process is killed or crashes again
and again; each must be what it is on a server that nobody disturbs, with its usage counted once.
"""
import asyncio
import json
import os
import random
import re
import shutil
import signal
import struct
import tempfile
import time

import alarms

SEED = 0  # of when engines are killed

KINDS = [
    {"temperature": 0},
    {"temperature": 1, "seed": 11},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "seed": 12},
    {"temperature": 1, "min_p": 0.05, "seed": 13, "frequency_penalty": 0.5, "presence_penalty": 0.2},
    {"temperature": 1, "seed": 14, "mirostat": 2, "mirostat_tau": 4},
    {"temperature": 1, "seed": 15, "logprobs": 3},
    {"temperature": 1, "seed": 16, "n": 3},
    {"temperature": 1, "seed": 17, "repetition_penalty": 1.1, "stop": ["dragon"]},
    {"temperature": 1, "seed": 18, "ignore_eos": False, "grammar": 'root ::= ([A-Z] [a-z]{3,9} [,.] " ")*'},
]


# By stream: an adapter that the server starts with, one that is loaded while it runs, or none.
ADAPTERS = [{}, {"model": "early"}, {"model": "late"}]


def bodies(count, tokens):
    return [{"prompt": [1, 403 + i, 500 + 7 * i], "max_tokens": tokens, "ignore_eos": True, "stream": True,
             "stream_options": {"include_usage": True}, **KINDS[i % len(KINDS)], **ADAPTERS[i % len(ADAPTERS)]}
            for i in range(count)]


def write_adapter(folder, rank, seed):
    """A PEFT directory for the shipped model: random changes of all queries."""
    os.mkdir(folder)
    dice, header, data = random.Random(seed), {}, b""
    for layer in range(8):
        for side, shape in (("A", [rank, 384]), ("B", [384, rank])):
            numbers = struct.pack(f"<{rank * 384}f", *(dice.uniform(-0.3, 0.3) for _ in range(rank * 384)))
            header[f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{side}.weight"] = {
                "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
            data += numbers
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{folder}/adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    with open(f"{folder}/adapter_config.json", "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}, file)


async def load_late(server, request, report):
    status, body = await server.fetch(request("/v1/load_lora_adapter", {"lora_name": "late", "lora_path": "late"}))
    report.say("an adapter is loaded while the server runs", None if status == 200 else f"{status} {body!r:.200}")


def meaning(events):
    """What a stream says, whatever its pieces: by choice its text, log-probabilities and end; and its usage."""
    said, usage = {}, None
    for event in events:
        if event == "[DONE]":
            continue
        data = json.loads(event)
        if "error" in data:
            return {"error": data["error"]}
        usage = data.get("usage") or usage
        for choice in data["choices"]:
            mine = said.setdefault(choice["index"], {"text": "", "logprobs": [], "end": None})
            mine["text"] += choice.get("text") or ""
            mine["logprobs"] += (choice.get("logprobs") or {}).get("token_logprobs") or []
            mine["end"] = choice.get("finish_reason") or mine["end"]
    if usage:
        usage = {key: usage[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return {"said": said, "usage": usage}


async def stream(server, request, body, heard=None):
    """The events of a stream, and when they came. `heard` counts what came; none once it has ended."""
    heard = heard if heard is not None else {}
    mine = heard.setdefault(id(body), 0)
    reader, writer = await server.connect()
    try:
        writer.write(request("/v1/completions", body))
        await reader.readuntil(b"\r\n\r\n")
        text, times = b"", [time.monotonic()]
        while True:
            size = int(await reader.readline(), 16)
            chunk = await reader.readexactly(size + 2)
            if size == 0:
                break
            text += chunk[:-2]
            if b"data: " in chunk:  # and not a sign of life
                times.append(time.monotonic())
                mine = heard[id(body)] = mine + 1
        return [part[6:] for part in text.decode().split("\n\n") if part.startswith("data: ")], times
    finally:
        heard.pop(id(body))
        writer.close()


def difference(number, got, wanted):
    """Where an answer departs from what it should be, in a few words."""
    if "error" in got:
        return f"{number}: {got['error']}"
    for index, right in wanted["said"].items():
        mine = got["said"].get(index, {"text": "", "logprobs": [], "end": None})
        for key, value in right.items():
            if mine[key] != value:
                same = next((i for i, (a, b) in enumerate(zip(mine[key] or "", value or "")) if a != b), "the end")
                return f"{number}: {key} of choice {index} differs at {same}: {mine[key]!r:.80}"
    return f"{number}: {got['usage']} instead of {wanted['usage']}"


def engine_of(server):
    """The process that computes, as the server's log names it last."""
    found = re.findall(r"engine process (\d+)(?: is ready|$)", server.said(), re.M)
    return int(found[-1]) if found else None


def silences_of(strikes, streams):
    """For each strike and each stream that was open, the longest silence of the stream until the next strike."""
    found = []
    for times in streams:
        for strike, following in zip(strikes, [*strikes[1:], float("inf")]):
            found += [max((b - a for a, b in zip(times, times[1:]) if strike < b and a < following), default=0)]
    return sorted(one for one in found if one > 0)


async def under(server, request, wanted, work, disturb):
    """Runs the streams while `disturb` is called again and again; what differs, how often it struck, silences."""
    done, heard, dice, strikes = False, {}, random.Random(7 + SEED), []

    async def disturber():
        count = 0
        while not done:
            # All have moved since the last strike: whoever was computed at three deaths in a row would be refused.
            # Twice, because what the dead one said last may come late.
            before = dict(heard)
            while not done and any(heard.get(key, count + 2) < count + 2 for key, count in before.items()):
                await asyncio.sleep(0.005)
            await asyncio.sleep(dice.random() * 0.05)
            process = engine_of(server)
            struck = await disturb(count)
            count += struck
            strikes.extend([time.monotonic()] * struck)
            while not done and struck and engine_of(server) == process:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.1)  # what the last one said may still be on its way, and is no move of the next
        return count

    task = asyncio.create_task(disturber())
    answers = await asyncio.gather(*(stream(server, request, body, heard) for body in work))
    done = True
    count = await task
    wrong = [difference(i, meaning(events), wanted[i]) for i, (events, _) in enumerate(answers)
             if meaning(events) != wanted[i]]
    return wrong, count, silences_of(strikes, [times for _, times in answers])


async def check(make_server, request, report, rounds):
    await check_spare(make_server, request, report)
    await alarms.check(make_server, request, report, rounds >= 100)
    with tempfile.TemporaryDirectory() as folder:
        write_adapter(f"{folder}/early", 4, 1)
        write_adapter(f"{folder}/late", 6, 2)
        # A place for every answer: who waits for one is silent for as long as it takes.
        flags = ("-np", "24", "--lora", f"{folder}/early", "--lora-dir", folder)
        await check_with(lambda *more: make_server(*flags, *more), request, report, rounds)


def kill_engine(server, _):
    """How often it struck."""
    try:
        os.kill(engine_of(server), signal.SIGKILL)
    except (ProcessLookupError, TypeError):
        return 0
    return 1


def processes():
    """By number what each process of this machine is called, and its parent."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                head, _, rest = file.read().rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if state != "Z":
            found[int(entry)] = (head.partition("(")[2], int(parent))
    return found


def descendants(server, name=None):
    """Processes that the server has started, and those have; of a name."""
    known, family = processes(), {server.process.pid}
    for _ in known:
        family |= {one for one, (_, parent) in known.items() if parent in family}
    return sorted(one for one in family - {server.process.pid} if name in (None, known[one][0]))


def beyond_plan(spares):
    """What a process that keeps weights has for itself beyond `spare_bytes` of src/process/spare.h."""
    for one in spares:
        with open(f"/proc/{one}/smaps_rollup", encoding="ascii") as file:
            sizes = {line.split()[0]: int(line.split()[1]) << 10 for line in file if line.endswith(" kB\n")}
        if sizes["Private_Dirty:"] > (1 << 20) + sizes["Rss:"] // 512:
            return f"{sizes}"
    return None


async def check_spare(make_server, request, report):
    """A dead engine is replaced from memory: the model's file may be gone. Without that memory, the file will do."""
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model.gguf"
        shutil.copy("models/stories-14m-q8_0.gguf", model)
        server = make_server("-m", model, "-np", "20")
        try:
            await server.start()
            work = [{key: value for key, value in body.items() if key != "model"} for body in bodies(len(KINDS), 150)]
            wanted = [meaning((await stream(server, request, body))[0]) for body in work]
            os.remove(model)
            wrong, strikes = [], 0

            async def disturb(_):
                return kill_engine(server, _)

            while strikes < 5 and not wrong:
                wrong, count, _ = await under(server, request, wanted, work, disturb)
                strikes += count
            from_files = "started from its files" in server.said()
            spares, all_of_them = descendants(server, "millrace-spare"), descendants(server)
            report.say("engines come back without the model's file",
                       f"{wrong} differ after {strikes}: {server.said()[-2000:]}" if wrong or from_files else None)
            report.say("the weights are kept by one process", None if (len(spares), len(all_of_them)) == (1, 2) else
                       f"{spares} of {all_of_them}")
            report.say("which has no more for itself than the plan for memory counts", beyond_plan(spares))
            with open(f"/proc/{engine_of(server)}/oom_score_adj", encoding="ascii") as file:
                engine_goes = int(file.read())
            with open(f"/proc/{server.process.pid}/oom_score_adj", encoding="ascii") as file:
                server_goes = int(file.read())
            report.say("of the two the system ends the engine when memory runs out",
                       None if engine_goes > server_goes else f"{engine_goes} and {server_goes}")
            shutil.copy("models/stories-14m-q8_0.gguf", model)
            for spare in spares:
                os.kill(spare, signal.SIGKILL)
            wrong, count = [], 0
            while count == 0 and not wrong:
                wrong, count, _ = await under(server, request, wanted, work, disturb)
            report.say("without the process that keeps the weights they are read again",
                       None if not wrong and "started from its files" in server.said() else server.said()[-2000:])
            report.say("and are kept again", None if descendants(server, "millrace-spare") else "they are not")
            family = descendants(server)
            code = server.stop()
            left = [one for one in family if one in processes()]
            report.say("nothing outlives the server", None if code == 0 and not left else f"code {code}, {left}")
        finally:
            if server.process.poll() is None:
                server.stop()


async def check_ranks(make_server, request, report, rounds, flags=("--ranks", "2", "-t", "2"), strike=kill_engine,
                      what="an engine of two ranks is killed"):
    """An engine of several ranks dies with any of them; its streams go on, and are those of one rank."""
    work = [{key: value for key, value in body.items() if key != "model"} for body in bodies(len(KINDS), 80)]
    quiet = make_server("--in-process")
    await quiet.start()
    wanted = [meaning((await stream(quiet, request, body))[0]) for body in work]
    quiet.stop()
    server = make_server(*flags)
    try:
        await server.start()
        await stream(server, request, work[0])  # how long a step may take is known after some of them
        wrong, strikes = [], 0

        async def disturb(count):
            return strike(server, count)

        while strikes < rounds and not wrong:
            wrong, count, _ = await under(server, request, wanted, work, disturb)
            strikes += count
        report.say(f"{len(work)} streams go on byte for byte while {what} {rounds} times",
                   f"{wrong} differ after {strikes}: {server.said()[-2000:]}" if wrong else None)
    finally:
        server.stop()


async def check_with(make_server, request, report, rounds):
    quiet = make_server("--in-process")
    await quiet.start()
    await load_late(quiet, request, report)
    work = bodies(2 * len(KINDS), 150)
    wanted = [meaning((await stream(quiet, request, body))[0]) for body in work]
    quiet.stop()
    broken = [i for i, answer in enumerate(wanted) if "error" in answer]
    report.say("answers nobody disturbs", f"{broken}: {wanted[broken[0]]}" if broken else None)

    server = make_server()
    try:
        await server.start()
        await load_late(server, request, report)
        await disturbed(server, request, report, rounds, work, wanted)
    finally:
        server.stop()


async def unloaded(server, request, report, work, wanted):
    """Answers go on with an adapter that was unloaded before the engine died."""
    mine = [i for i, body in enumerate(work) if body.get("model") == "late"]
    heard = {}
    tasks = [asyncio.create_task(stream(server, request, work[i], heard)) for i in mine]
    # An answer may be over in a few events, or before it is struck.
    while not all(task.done() for task in tasks) and (len(heard) < len(mine) or min(heard.values()) < 3):
        await asyncio.sleep(0.002)
    status, text = await server.fetch(request("/v1/unload_lora_adapter", {"lora_name": "late"}))
    try:
        os.kill(engine_of(server), signal.SIGKILL)
    except ProcessLookupError:
        pass
    answers = [meaning((await task)[0]) for task in tasks]
    wrong = [difference(i, got, wanted[i]) for i, got in zip(mine, answers) if got != wanted[i]]
    report.say("answers go on with an adapter that was unloaded before the engine died",
               wrong or (None if status == 200 else f"{status} {text!r:.200}"))
    late = {**work[mine[0]], "stream": False}
    status, _ = await server.fetch(request("/v1/completions", late))
    report.say("and nobody new gets it", None if status == 404 else f"{status}")


async def disturbed(server, request, report, rounds, work, wanted):
    apart = [meaning((await stream(server, request, body))[0]) for body in work]
    report.say("an engine in a process of its own gives the same bytes", None if apart == wanted else "they differ")

    async def strike(how):
        try:
            os.kill(engine_of(server), how)
        except (ProcessLookupError, TypeError):
            return 0
        return 1

    for name, how in (("killed", signal.SIGKILL), ("crashed", signal.SIGSEGV)):
        wrong, strikes, silences = [], 0, []
        while strikes < rounds and not wrong:
            wrong, count, more = await under(server, request, wanted, work, lambda _, how=how: strike(how))
            strikes, silences = strikes + count, sorted(silences + more)
        report.say(f"{len(work)} streams go on byte for byte while the engine is {name} {rounds} times",
                   f"{wrong} differ after {strikes}" if wrong else None)
        print(f"  {strikes} times, silence of a stream after each: median {silences[len(silences) // 2]:.3f} s, "
              f"99 % {silences[len(silences) * 99 // 100]:.3f} s, most {silences[-1]:.3f} s, "
              f"{sum(one > 0.5 for one in silences)} of {len(silences)} over 0.5 s")
        if silences[-1] > 5:
            print("  what the server said of it: " + "\n  ".join(line for line in server.said().splitlines() if
                                                                re.search("has not moved|from its files", line)))

    await unloaded(server, request, report, work, wanted)
    report.say("the server stayed", None if server.process.poll() is None else server.said()[-500:])
