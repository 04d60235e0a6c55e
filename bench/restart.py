#!/usr/bin/env python3
"""What a restart costs who asks for a known prefix: restart.py MILLRACE [ROUNDS] [FLAGS of serve...].

Each round starts a server on the cache's file that the last one left, and asks for prompts of 1,000 tokens that begin
alike: first after the start, and then again with another end, when the prefix is in memory for sure. Medians of the
times to the first token; of a cold server too, which computes all of it.
"""
import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time

PREFIX = [1] + [300 + (7 * i) % 3000 for i in range(991)]  # of whole pages


class Server:
    def __init__(self, program, *flags):
        self.log = tempfile.NamedTemporaryFile("w+")
        self.process = subprocess.Popen([program, "serve", "--port", "0", "--no-log-requests", *flags],
                                        stderr=self.log, stdin=subprocess.DEVNULL)
        while True:
            with open(self.log.name, encoding="utf-8") as file:
                said = file.read()
            found = re.search(r"serving http://\S+?:(\d+)", said)
            if found and "ready " in said:
                self.port = int(found.group(1))
                return
            if self.process.poll() is not None:
                sys.exit(said)
            time.sleep(0.02)

    def first_token(self, end):
        """Seconds until something is said, and how many tokens were found."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.connect()
        body = json.dumps({"prompt": PREFIX + [400 + end] * 8, "max_tokens": 2, "temperature": 0, "ignore_eos": True,
                           "stream": True, "stream_options": {"include_usage": True}})
        began = time.perf_counter()
        connection.request("POST", "/v1/completions", body)
        answer = connection.getresponse()
        answer.readline()
        took = time.perf_counter() - began
        rest = answer.read().decode()
        connection.close()
        return took, int(re.search(r'"cached_tokens": ?(\d+)', rest).group(1))

    def stop(self):
        self.process.terminate()
        self.process.wait()


def main():
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    times = {"cold": [], "after a restart": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--cache-file", f"{folder}/prefixes", *sys.argv[3:]]
        for turn in range(rounds + 1):
            server = Server(program, *flags)
            for at in range(8):  # the first of each kind, then some more that are warm
                took, found = server.first_token(8 * turn + at)
                kind = "warm" if at else "after a restart" if turn else "cold"
                if (found >= 960) != (kind != "cold"):
                    sys.exit(f"{kind}: {found} tokens were found")
                times[kind].append(took)
            server.stop()
        for turn in range(rounds):
            server = Server(program, *sys.argv[3:])
            times["cold"].append(server.first_token(turn)[0])
            server.stop()
    middle = {kind: statistics.median(all_of) for kind, all_of in times.items()}
    for kind, all_of in times.items():
        print(f"{kind}: {1000 * middle[kind]:.2f} ms ({1000 * min(all_of):.2f} to {1000 * max(all_of):.2f}, "
              f"{len(all_of)} times)")
    print(f"after a restart: {middle['after a restart'] / middle['warm']:.2f} of warm, "
          f"{middle['after a restart'] / middle['cold']:.3f} of cold")


if __name__ == "__main__":
    main()
