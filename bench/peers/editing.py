#!/usr/bin/env python3
"""Times an answer that repeats a text with edits, guessed from the text, here and by llama.cpp's llama-server.

  bench/peers/copying_gguf.py /tmp/copying.gguf
  bench/peers/editing.py --llama-server ~/llama.cpp/build/bin/llama-server -t 2 /tmp/copying.gguf

Every way is a server of its own, asked several rounds. A prompt is a text
of WORDS different tokens and its first; one word in twelve is written differently in the answer, at places that differ
from round to round. Greedy; the prompt is computed before the clock starts. Tokens a second, and whether the answer is
the one that is right.
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request

import copying_gguf as model

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Server:
    def __init__(self, command, ready):
        self.log = tempfile.NamedTemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log, stdin=subprocess.DEVNULL)
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"{' '.join(command)}\nended:\n{pathlib.Path(self.log.name).read_text()[-2000:]}")
            found = re.search(ready, pathlib.Path(self.log.name).read_text(errors="replace"))
            if found:
                self.url = found.group(1)
                break
            time.sleep(0.2)
        deadline = time.monotonic() + 300  # the model is loaded after it listens
        while True:
            try:
                self.ask([1, model.FIRST + 1], 1)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def ask(self, prompt, tokens):
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        sent = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                      {"Content-Type": "application/json"})
        start = time.monotonic()
        answer = json.load(urllib.request.urlopen(sent))
        return time.monotonic() - start, answer["choices"][0]["text"], answer["usage"]["completion_tokens"]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def text(seed, words, edited):
    """A text as tokens, and what is to be answered after it and its first token."""
    source = random.Random(seed)
    every = [t for t in range(model.FIRST, model.SECOND)]
    plain = [t for t in every if t % model.EVERY != 0]
    other = [t for t in every if t % model.EVERY == 0]
    count = words // model.EVERY if edited else 0
    tokens = source.sample(plain, words - count) + source.sample(other, count)
    source.shuffle(tokens)
    if edited and tokens[0] in other:
        tokens[0], tokens[1] = tokens[1], tokens[0]
    wanted = [t + model.SECOND if t % model.EVERY == 0 else t for t in tokens[1:]]
    return [1, *tokens, tokens[0]], wanted


def named(tokens):
    return re.sub(r"\s", "", "".join(f"w{t}" for t in tokens))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="COPYING.gguf")
    parser.add_argument("--llama-server", help="path of llama.cpp's llama-server")
    parser.add_argument("--millrace", default=str(ROOT / "build/release/bin/millrace"))
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-w", "--words", type=int, default=300)
    parser.add_argument("--verbatim", action="store_true", help="nothing is written differently")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    size = str(2 * args.words + 64)
    ours = [args.millrace, "serve", "-m", args.model, "-t", str(args.threads), "-np", "1", "-c", size, "--port", "0"]
    ways = {"millrace, plain": (ours, r"serving (http://\S+?:\d+)")}
    for most in ("4", "8", "16"):
        ways[f"millrace, ngram, up to {most}"] = ([*ours, "--speculate", "ngram", "--draft-max", most],
                                                  r"serving (http://\S+?:\d+)")
    if args.llama_server:
        theirs = [args.llama_server, "-m", args.model, "-t", str(args.threads), "-np", "1", "-c", size, "-fa", "on"]
        kinds = {"plain": [], "ngram-simple": [], "ngram-map-k": [], "ngram-map-k4v": [], "ngram-mod": [],
                 "ngram-cache": [],
                 "ngram-simple, 3 to 16": ["--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "16"],
                 "ngram-simple, 2 to 12": ["--spec-ngram-simple-size-n", "2", "--spec-ngram-simple-size-m", "12"],
                 "ngram-mod, 3 to 16": ["--spec-ngram-mod-n-match", "3", "--spec-ngram-mod-n-min", "1",
                                        "--spec-ngram-mod-n-max", "16"]}
        for port, (kind, more) in enumerate(kinds.items(), 18080):
            guesses = ["--spec-type", kind.split(",")[0], *more] if kind != "plain" else []
            ways[f"llama.cpp, {kind}"] = ([*theirs, *guesses, "--port", str(port)],
                                          r"listening on (http://\S+?:\d+)")
    rates, right = {way: [] for way in ways}, {way: 0 for way in ways}
    for way, command in ways.items():
        server = Server(*command)
        for turn in range(args.rounds):
            prompt, wanted = text(turn, args.words, not args.verbatim)
            server.ask(prompt, 1)
            seconds, answer, tokens = server.ask(prompt, len(wanted))
            rates[way].append(tokens / seconds)
            right[way] += re.sub(r"\s", "", answer) == named(wanted)
        server.stop()
        print(f"{way:32} {statistics.median(rates[way]):8.1f} tok/s ({min(rates[way]):.1f} to {max(rates[way]):.1f}), "
              f"{right[way]} of {args.rounds} answers right", flush=True)
    for maker in ("millrace", "llama.cpp"):
        of = {way: statistics.median(rate) for way, rate in rates.items()
              if way.startswith(maker) and "plain" not in way}
        if of:
            best = max(of, key=of.get)
            print(f"{best}: {of[best] / statistics.median(rates[f'{maker}, plain']):.2f} times plain")


if __name__ == "__main__":
    main()
