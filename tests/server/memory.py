"""Memory that runs out takes the engine and never the server. Part of faults.py.

A control group of their own is filled by a process beside them until the system ends somebody in it, while streams of
every kind run. They go on byte for byte.
"""
import asyncio
import os
import signal
import subprocess
import sys
import tempfile

import crash

# Takes memory, a page after the other, until somebody in its group was ended.
BALLAST = r"""
import mmap, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
def ended():
    return sum(int(line.split()[1]) for line in open(sys.argv[1] + "/" + sys.argv[2]) if line.startswith("oom_kill "))
before, kept = ended(), []
for _ in range(4096):
    kept.append(mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    for at in range(0, 1 << 20, 4096):
        kept[-1][at] = 1
    if ended() > before:
        break
"""


class Group:
    """A control group with a limit of memory; no folder where the system does not let us make one."""

    def __init__(self):
        self.folder = self.events = None
        for parent, events, self.limit, self.usage in (
                ("/sys/fs/cgroup/memory", "memory.oom_control", "memory.limit_in_bytes", "memory.usage_in_bytes"),
                ("/sys/fs/cgroup", "memory.events", "memory.max", "memory.current")):
            folder = f"{parent}/millrace-test-{os.getpid()}"
            try:
                os.mkdir(folder)
            except OSError:
                continue
            try:
                with open(f"{folder}/{events}", encoding="ascii") as file:
                    counts = "oom_kill " in file.read()
                with open(f"{folder}/{self.limit}", "r+", encoding="ascii"):
                    pass
            except OSError:
                counts = False
            if counts:
                self.folder, self.events = folder, events
                return
            os.rmdir(folder)

    def allow(self, more):
        """So much more than is used; nothing: no limit."""
        with open(f"{self.folder}/{self.usage}", encoding="ascii") as file:
            used = int(file.read())
        with open(f"{self.folder}/{self.limit}", "w", encoding="ascii") as file:
            file.write(str(used + more) if more else "max" if self.limit == "memory.max" else "-1")

    def program(self, folder, program):
        """A script that starts the program within the group."""
        path = f"{folder}/within"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho $$ > {self.folder}/cgroup.procs\nexec {os.path.abspath(program)} "$@"\n')
        os.chmod(path, 0o755)
        return path

    async def end(self):
        for _ in range(100):
            try:
                os.rmdir(self.folder)
                return
            except OSError:
                await asyncio.sleep(0.05)


async def begun(server, request, work):
    """Streams that have all said something."""
    heard = {}
    tasks = [asyncio.create_task(crash.stream(server, request, body, heard)) for body in work]
    while not any(task.done() for task in tasks) and (len(heard) < len(work) or min(heard.values()) < 3):
        await asyncio.sleep(0.002)
    return tasks


async def ended(tasks, wanted):
    answers = [crash.meaning((await task)[0]) for task in tasks]
    return [crash.difference(i, got, wanted[i]) for i, got in enumerate(answers) if got != wanted[i]]


async def by_group(server_of, program, request, report, work, wanted, rounds):
    group = Group()
    if group.folder is None:
        print("skip - no control group can be made: nobody runs out of memory")
        return
    with tempfile.TemporaryDirectory() as folder:
        server = server_of(group.program(folder, program), "-np", "20")
        try:
            await server.start()
            wrong, engines = [], 0
            for _ in range(rounds):
                tasks = await begun(server, request, work)
                group.allow(16 << 20)
                ballast = await asyncio.create_subprocess_exec(sys.executable, "-c", BALLAST, group.folder,
                                                               group.events, stderr=subprocess.PIPE)
                _, said = await ballast.communicate()
                group.allow(0)
                wrong += await ended(tasks, wanted) + ([said.decode()[-300:]] if ballast.returncode else [])
            engines = server.said().count("by signal 9")
            stayed = server.process.poll() is None
            report.say(f"{rounds} times the system ends the engine for want of memory: streams go on byte for byte",
                       None if stayed and not wrong and engines > 0 else
                       f"{engines} engines, {'' if stayed else 'the server too, '}{wrong[:3]}: {server.said()[-800:]}")
            print(f"  {engines} engines ended in {rounds} rounds")
        finally:
            server.stop(signal.SIGTERM if server.process.poll() is None else signal.SIGKILL)
            await group.end()


async def check(server_of, program, request, report, full):
    work = [{key: value for key, value in body.items() if key != "model"}
            for body in crash.bodies(2 * len(crash.KINDS), 100)]
    quiet = server_of(program, "-np", "20", "--in-process")
    await quiet.start()
    wanted = [crash.meaning((await crash.stream(quiet, request, body))[0]) for body in work]
    quiet.stop()
    await by_group(server_of, program, request, report, work, wanted, 20 if full else 2)
