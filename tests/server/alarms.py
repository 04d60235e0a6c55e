"""An engine that hangs is found, and one that is only slow is not taken for one. Part of faults.py.

Hangs are a process that is stopped in the middle of streams. Slowness is a processor of which 30 % is taken away, in
slices, while models load, while streams run and in the longest steps of prompts. Times are printed, never judged.
"""
import asyncio
import os
import signal
import time

import crash

SLICE = 0.1  # seconds, of which 30 % are taken


async def hangs(make_server, request, report, count):
    server = make_server("-np", "20")
    try:
        await server.start()
        work = [{key: value for key, value in body.items() if key != "model"} for body in
                crash.bodies(len(crash.KINDS), 150)]
        wanted = [crash.meaning((await crash.stream(server, request, body))[0]) for body in work]
        wrong, times, tries = [], [], 0
        while len(times) < count and tries < 4 * count and not wrong:  # a fast machine may be done before it is struck
            tries += 1
            heard = {}
            tasks = [asyncio.create_task(crash.stream(server, request, body, heard)) for body in work]
            while not any(task.done() for task in tasks) and (len(heard) < len(work) or min(heard.values()) < 3):
                await asyncio.sleep(0.005)
            process = crash.engine_of(server)
            if not any(task.done() for task in tasks):
                os.kill(process, signal.SIGSTOP)
                began = time.monotonic()
                while process in crash.processes() and time.monotonic() - began < 120:
                    await asyncio.sleep(0.02)
                times.append(time.monotonic() - began)
            answers = [crash.meaning((await task)[0]) for task in tasks]
            wrong = [crash.difference(i, got, wanted[i]) for i, got in enumerate(answers) if got != wanted[i]]
        found = server.said().count("has not moved")
        report.say(f"{count} engines that hang are found and replaced, and streams go on byte for byte",
                   None if not wrong and found == len(times) == count else f"{wrong} {found} of {len(times)}")
        if times:
            print(f"  found after {min(times):.2f} to {max(times):.2f} s")
    finally:
        server.stop()


class Thief:
    """Takes 30 % of the processor from all processes of a server that compute."""

    def __init__(self, server):
        self.server, self.done, self.slices = server, False, 0
        self.task = asyncio.create_task(self.steal())

    async def steal(self):
        while not self.done and self.server.process.poll() is None:
            engines = [one for one in crash.descendants(self.server) if one not in
                       crash.descendants(self.server, "millrace-spare")]
            self.signal(engines, signal.SIGSTOP)
            await asyncio.sleep(0.3 * SLICE)
            self.signal(engines, signal.SIGCONT)
            self.slices += bool(engines)
            await asyncio.sleep(0.7 * SLICE)

    @staticmethod
    def signal(engines, how):
        for one in engines:
            try:
                os.kill(one, how)
            except ProcessLookupError:
                pass

    async def stop(self):
        self.done = True
        await self.task


async def slow(make_server, request, report, full):
    """No alarm, whatever is computed."""
    starts, prompts, rounds = (20, 40, 10) if full else (2, 3, 1)
    wrong, slices = [], 0
    for turn in range(starts):
        server = make_server("-np", "20", "-c", "4096", "--batch-size", "4096")
        thief = Thief(server)
        try:
            await server.start()
            work = [{key: value for key, value in body.items() if key != "model"} for body in
                    crash.bodies(len(crash.KINDS), 100)] if turn == 0 else []
            for _ in range(rounds):
                await asyncio.gather(*(crash.stream(server, request, body) for body in work))
            for number in range(prompts if turn == 0 else 1):
                prompt = [1] + [300 + (7 * i + 13 * (i + number) + turn) % 3000 for i in range(4000)]
                status, text = await server.fetch(request("/v1/completions", {"prompt": prompt, "max_tokens": 2,
                                                                            "temperature": 0}))
                if status != 200:
                    wrong.append(f"{status} {text!r:.200}")
            said = server.said()
            wrong += [line for line in said.splitlines() if "has not moved" in line or " ended " in line]
        finally:
            await thief.stop()
            slices += thief.slices
            server.stop()
    report.say(f"no alarm in {starts} starts, prompts in one step and streams, with 30 % of the processor taken away",
               wrong[:3] or (None if slices > 0 else "nothing was taken"))
    print(f"  {slices} slices were taken")


async def check(make_server, request, report, full):
    await hangs(make_server, request, report, 50 if full else 1)
    if full:
        await slow(make_server, request, report, full)
