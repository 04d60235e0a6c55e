#!/usr/bin/env python3
"""What an engine in a process of its own costs: apart.py MILLRACE [ROUNDS] [FLAGS of serve...].

Two servers of the same model, one with its engine in another process and one in one process, are loaded in turn; the
median over rounds of tokens a second with 16 streams, and of the time to the first token of one short prompt at a time.
"""
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time


class Server:
    def __init__(self, program, *flags):
        self.log = tempfile.NamedTemporaryFile("w+")
        self.process = subprocess.Popen([program, "serve", "--port", "0", "--no-log-requests", "-np", "16", *flags],
                                        stderr=self.log, stdin=subprocess.DEVNULL)
        while True:
            with open(self.log.name, encoding="utf-8") as file:
                said = file.read()
            found = re.search(r"serving (http://\S+?:\d+)", said)
            if found and "ready " in said:
                self.url = found.group(1)
                return
            time.sleep(0.05)


def load(program, server, *flags):
    done = subprocess.run([program, "bench", "serve", "--base-url", server.url, "--temperature", "0", "--json", *flags],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    servers = {"apart": Server(program, *sys.argv[3:]), "one process": Server(program, "--in-process", *sys.argv[3:])}
    speeds, firsts = {name: [] for name in servers}, {name: [] for name in servers}
    for turn in range(rounds):
        for name in list(servers)[::1 if turn % 2 else -1]:
            many = load(program, servers[name], "--max-concurrency", "16", "--num-prompts", "96", "--random-input-len",
                        "16", "--random-output-len", "256", "--seed", str(turn))
            speeds[name].append(many["output_throughput"])
            few = load(program, servers[name], "--max-concurrency", "1", "--num-prompts", "60", "--random-input-len",
                       "8", "--random-output-len", "2", "--seed", str(100 + turn))
            firsts[name].append(few["median_ttft_ms"])
    for server in servers.values():
        server.process.terminate()
        server.process.wait()
    speed = {name: statistics.median(all_of) for name, all_of in speeds.items()}
    first = {name: statistics.median(all_of) for name, all_of in firsts.items()}
    for name in servers:
        print(f"{name}: {speed[name]:.0f} tok/s ({min(speeds[name]):.0f} to {max(speeds[name]):.0f}), first token "
              f"{first[name]:.3f} ms ({min(firsts[name]):.3f} to {max(firsts[name]):.3f})")
    ratios = [1 - a / b for a, b in zip(speeds["apart"], speeds["one process"])]
    waits = [1000 * (a - b) for a, b in zip(firsts["apart"], firsts["one process"])]
    print(f"cost: {100 * statistics.median(ratios):.1f} % of tok/s, {statistics.median(waits):.0f} us of the first "
          "token (medians of rounds)")


if __name__ == "__main__":
    main()
