"""Server and engine under a sanitizer while engines are killed: watched.py MILLRACE. A line per check.

A small model, because everything is many times slower then. What a sanitizer says in either process ends the test: an
engine that one ends would be replaced, and nobody would notice.
"""
import asyncio
import sys

import crash
import faults

SMALL = "models/stories-draft-1m-q8_0.gguf"


async def check(program, report):
    def make(*flags):
        return faults.Server(program, "-m", SMALL, "-np", "10", "-c", "512", *flags)

    await crash.check_ranks(make, faults.request, report, 6, (), what="an engine is killed")
    server = make()
    await server.start()
    work = [{key: value for key, value in body.items() if key != "model"} for body in crash.bodies(4, 60)]
    wanted = [crash.meaning((await crash.stream(server, faults.request, body))[0]) for body in work]
    wrong = []
    for stop, go in (("/pause?mode=keep", "/resume"), ("/sleep?level=1", "/wake_up")):
        heard = {}
        tasks = [asyncio.create_task(crash.stream(server, faults.request, body, heard)) for body in work]
        while len(heard) < len(work) and not any(task.done() for task in tasks):
            await asyncio.sleep(0.01)
        statuses = [(await server.fetch(faults.request(path, b"")))[0] for path in (stop, go)]
        got = [crash.meaning((await task)[0]) for task in tasks]
        if statuses != [200, 200] or got != wanted:
            wrong.append(f"{stop}: {statuses}")
    code = server.stop()
    report.say("streams go on after rests, and nothing is found in either process",
               wrong or (None if code == 0 else f"code {code}"))


def main():
    report = faults.Report()
    asyncio.run(check(sys.argv[1], report))
    return 0 if report.failures == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
