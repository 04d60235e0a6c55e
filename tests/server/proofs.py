"""The long proofs in pieces: proofs.py MILLRACE WHAT COUNT [--seed N]. A line per check.

What `faults.py --full` does one after the other, so that several processors or machines can share it: `kills` (as many
by SIGKILL as by SIGSEGV, under 18 streams with and without adapters), `hangs`, `alarms` (20 starts with 30 % of the
processor taken away), `flips` of the cache's file, `saves` (kills while it is saved), `swaps` of weights under load,
`memory`.
"""
import argparse
import asyncio
import resource
import sys
import tempfile

import alarms
import crash
import faults
import memory
import warm
import weights


def maker(program, *more):
    return lambda *flags: faults.Server(program, *more, *flags)


async def kills(program, report, count):
    with tempfile.TemporaryDirectory() as folder:
        crash.write_adapter(f"{folder}/early", 4, 1)
        crash.write_adapter(f"{folder}/late", 6, 2)
        await crash.check_with(maker(program, "-np", "24", "--lora", f"{folder}/early", "--lora-dir", folder),
                               faults.request, report, count)


async def hangs(program, report, count):
    await alarms.hangs(maker(program), faults.request, report, count)


async def slow(program, report, _count):
    await alarms.slow(maker(program), faults.request, report, True)


async def with_file(program, report, work):
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/prefixes"
        make = maker(program, "-np", "8", "--cache-file", file)
        await work(make, file, await warm.restarted(make, faults.request, report, file))


async def flips(program, report, count):
    await with_file(program, report,
                    lambda make, file, wanted: warm.refused(make, faults.request, report, file, wanted, count))


async def saves(program, report, count):
    await with_file(program, report, lambda make, file, _: warm.killed(make, faults.request, report, file, count))


async def swaps(program, report, count):
    with tempfile.TemporaryDirectory() as folder:
        make = weights.prepare(maker(program), folder)
        known, order = await weights.fresh_answers(make, [f"{folder}/w{i}.gguf" for i in range(3)], 8)
        await weights.swaps(make, report, folder, known, order, count, 8, (), "beside the old ones")


async def want(program, report, _count):
    await memory.check(faults.Server, program, faults.request, report, True)


ALL = {"kills": kills, "hangs": hangs, "alarms": slow, "flips": flips, "saves": saves, "swaps": swaps, "memory": want}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("what", choices=sorted(ALL))
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0, help="of where files are damaged and when engines are killed")
    chosen = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    crash.SEED = warm.SEED = chosen.seed
    report = faults.Report()
    asyncio.run(ALL[chosen.what](chosen.program, report, chosen.count))
    return 0 if report.failures == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
