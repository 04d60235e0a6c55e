"""A request that ends every engine that computes it: poison.py MILLRACE_PLANTED [--seeds N] [--first-seed K].

MILLRACE_PLANTED is the server with a planted mistake: a step that computes one certain token of a prompt ends its
process. Such requests must fail, each with an error of its own and after three restarts at the most; streams of every
kind of sampling beside them must say, byte for byte, what they say on a quiet server, with their usage counted once.
"""
import argparse
import asyncio
import json
import random
import sys

import crash
import faults

TOKEN = 4001  # of the shipped model; nobody else asks for it
REFUSED = "the engine stopped 3 times in a row while it computed this request"


def poison(dice):
    """Somewhere in a prompt, that takes one step or many; streamed or not, one answer or several."""
    prompt = [1] + [dice.randrange(300, 3300) for _ in range(dice.choice((3, 40, 700)))]
    prompt[dice.randrange(1, len(prompt))] = TOKEN
    return {"prompt": prompt, "max_tokens": 20, "temperature": 1, "seed": dice.randrange(1000),
            "stream": dice.random() < 0.5, "n": dice.choice((1, 1, 3))}


async def say(server, body):
    """What is wrong with the answer that a poisoned request gets."""
    if body["stream"]:
        events, _ = await crash.stream(server, faults.request, body)
        text = json.dumps(crash.meaning(events))
        return None if REFUSED in text else f"a stream said {text:.300}"
    status, text = await server.fetch(faults.request("/v1/completions", body))
    return None if status == 500 and REFUSED in text.decode() else f"{status} {text!r:.300}"


async def restarts(server):
    return (await server.metrics())["engine_restarts_total"]


async def round_of(server, work, wanted, dice, count):
    """Streams, and as many poisoned requests beside them; what is wrong."""
    heard, before = {}, await restarts(server)
    tasks = [asyncio.create_task(crash.stream(server, faults.request, body, heard)) for body in work]
    while len(heard) < len(work) and not any(task.done() for task in tasks):
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.1 * dice.random())
    said = await asyncio.gather(*(say(server, poison(dice)) for _ in range(count)))
    answers = [crash.meaning((await task)[0]) for task in tasks]
    wrong = [one for one in said if one]
    wrong += [crash.difference(i, got, wanted[i]) for i, got in enumerate(answers) if got != wanted[i]]
    more = await restarts(server) - before
    if more > 3 * count:
        wrong.append(f"{more} restarts for {count} requests")
    return wrong


async def check(program, report, first, seeds):
    work = [{key: value for key, value in body.items() if key != "model"}
            for body in crash.bodies(2 * len(crash.KINDS), 100)]
    quiet = faults.Server(program, "-np", "24", "--in-process")
    await quiet.start()
    wanted = [crash.meaning((await crash.stream(quiet, faults.request, body))[0]) for body in work]
    quiet.stop()
    server = faults.Server(program, "-np", "24", env={"MILLRACE_PLANTED_TOKEN": str(TOKEN)})
    try:
        await server.start()
        for count in (1, 3):
            wrong = []
            for seed in range(first, first + seeds):
                found = await round_of(server, work, wanted, random.Random(seed), count)
                wrong += [f"seed {seed}: {one}" for one in found]
            report.say(f"{seeds} times {count} poisoned beside {len(work)} streams: they alone fail, after three "
                       "restarts at the most", wrong[:3] or None)
        print(f"  {await restarts(server):.0f} restarts")
        report.say("the server stayed", None if server.process.poll() is None and await server.quiet() is None else
                   server.said()[-500:])
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    chosen = parser.parse_args()
    report = faults.Report()
    asyncio.run(check(chosen.program, report, chosen.first_seed, chosen.seeds))
    return 0 if report.failures == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
