"""Ranks that are processes of an MPI job: the bits of one rank, and streams that go on when a rank dies or hangs.

Usage: mpi.py PROGRAM [--full | --kills N [--device NAME]]. With --kills ranks are killed so often, and nothing else is
done. The program is built with MILLRACE_MPI=ON; mpirun is Open MPI's.
"""
import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys

import crash
from faults import Report, Server, request

# More ranks than processors, and tests may run as root.
OPTIONS = ["--oversubscribe", "--allow-run-as-root"]
PATIENCE = 300


def mpirun(program, ranks, *words):
    return subprocess.run(["mpirun", "--quiet", "-np", str(ranks), "--bind-to", "none", *OPTIONS, program, *words],
                          capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)


def check_bits(program, report):
    for ranks, more in ((2, []), (4, []), (2, ["--pipeline"]), (4, ["--pipeline"])):
        name = " ".join(["verify ranks over", str(ranks), "processes", *more])
        ended = mpirun(program, ranks, "verify", "ranks", "--transport", "mpi", "--json", *more)
        try:
            told = json.loads(ended.stdout)
            good = ended.returncode == 0 and told["differences"] == 0
        except (ValueError, KeyError):
            good = False
        report.say(name, None if good else f"{ended.returncode}: {ended.stdout[-500:]} {ended.stderr[-500:]}")
    words = ["run", "-p", "Once upon a time", "-n", "60", "--temp", "0"]
    alone = subprocess.run([program, *words], capture_output=True, text=True, timeout=PATIENCE)
    both = mpirun(program, 2, *words, "--transport", "mpi")
    report.say("run over 2 processes tells the same story",
               None if alone.stdout == both.stdout and alone.stdout else f"{both.stdout!r} {both.stderr[-500:]}")


def check_plan(program, report):
    """What is planned for ranks is what they hold, and links between processes are measured."""
    held = mpirun(program, 2, "verify", "ranks", "--transport", "mpi", "--json")
    planned = mpirun(program, 2, "plan", "--transport", "mpi", "--json")
    try:
        taken, plan = json.loads(held.stdout)["ranks"][-1], json.loads(planned.stdout)["ranks"][-1]
        good = (planned.returncode == 0 and plan["ranks"] == taken["ranks"] == 2 and plan["ranks_of_a_machine"] == 2
                and plan["weights"] == taken["weight_bytes"] and plan["link_seconds_per_exchange"] > 0
                and plan["link_bytes_per_second"] > 0 and plan["sent_bytes_per_token"] > 0)
    except (ValueError, KeyError):
        good = False
    report.say("plan measures links over MPI and knows what ranks hold",
               None if good else f"{planned.returncode}: {planned.stdout[-500:]} {planned.stderr[-500:]}")
    other = mpirun(program, 2, "plan", "--transport", "mpi", "--ranks", "3")
    report.say("plan for other ranks than there are is refused",
               None if other.returncode != 0 and "2 processes" in other.stderr else f"{other.stderr[-500:]}")


def ranks_of(server):
    """Process ids by rank of the job that now computes for a server."""
    place, found = None, {}
    launcher = crash.engine_of(server)
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = dict(part.split(b"=", 1) for part in file.read().split(b"\0") if b"=" in part)
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        here = variables.get(b"MILLRACE_ENGINE_AT")
        if here is None:
            continue
        if parent == launcher:
            place = here
        if b"OMPI_COMM_WORLD_RANK" in variables:
            found.setdefault(here, {})[int(variables[b"OMPI_COMM_WORLD_RANK"])] = int(entry)
    return found.get(place, {})


def striker(sent, everyone, most=None):
    """Sends a signal to one rank after the other, or to the last one always; at most so often to one server."""
    def strike(server, count):
        ranks = ranks_of(server)
        if not ranks or count == most:
            return 0
        chosen = count % len(ranks) if everyone else max(ranks)
        try:
            os.kill(ranks[chosen], sent)
        except (ProcessLookupError, KeyError):
            return 0
        return 1
    return strike


async def check_serving(program, report, full, kills=0, device="cpu"):
    flags = ("--ranks", "2", "-t", "2", "--transport", "mpi", "--mpirun-options", " ".join(OPTIONS))

    def make(*more):
        return Server(program, "-c", "512", "--device", device, *more)

    await crash.check_ranks(make, request, report, kills or (100 if full else 6), flags,
                            striker(signal.SIGKILL, True), "one of two processes over MPI is killed")
    if kills > 0:
        return
    await crash.check_ranks(make, request, report, 1, flags, striker(signal.SIGSTOP, False, 1),
                            "one of two processes over MPI is stopped")
    await crash.check_ranks(make, request, report, 10 if full else 2, (*flags, "--pipeline"),
                            striker(signal.SIGKILL, True), "one of two processes with half of the layers is killed")


def check_refused(program, report):
    for name, words, said in (("serve under mpirun is refused", None, "without mpirun"),
                              ("ranks over MPI in one process are refused", ["--in-process"], "--in-process"),
                              ("ranks over MPI without a number are refused", ["--ranks", "1"], "--ranks N")):
        words = ["serve", "--port", "0", "--transport", "mpi", "--ranks", "2", *(words or [])]
        if name.startswith("serve"):
            ended = mpirun(program, 1, *words)
        else:
            ended = subprocess.run([program, *words], capture_output=True, text=True, timeout=PATIENCE)
        good = ended.returncode != 0 and said in ended.stderr
        report.say(name, None if good else f"{ended.returncode}: {ended.stderr[-500:]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    report = Report()
    if chosen.kills > 0:
        asyncio.run(check_serving(chosen.program, report, False, chosen.kills, chosen.device))
        return 0 if report.failures == 0 else 1
    check_plan(chosen.program, report)
    check_bits(chosen.program, report)
    check_refused(chosen.program, report)
    asyncio.run(check_serving(chosen.program, report, chosen.full))
    return 0 if report.failures == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
