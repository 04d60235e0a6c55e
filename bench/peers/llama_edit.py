#!/usr/bin/env python3
"""A given text written again with a word changed: `millrace serve --speculate ngram` beside each way llama.cpp's server
guesses from text, in turn, on the same file and the same prompt.

  bench/peers/llama_edit.py --llama-server ~/llama.cpp/build/bin/llama-server -t 2 model-q8_0.gguf

Every server gets the prompt twice: once to have it in its cache, then timed. Temperature 0. Tokens a second are what
the server says of the second answer. A table of medians, each answer compared with the same engine's plain one.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PORT = 18231
THEIRS = {
    "none": [],
    "ngram-simple": ["--spec-type", "ngram-simple"],
    "ngram-simple, 4 and 16": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "4",
                               "--spec-ngram-simple-size-m", "16"],
    "ngram-map-k": ["--spec-type", "ngram-map-k"],
    "ngram-map-k, 4 and 16": ["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "4",
                              "--spec-ngram-map-k-size-m", "16"],
    "ngram-map-k4v, 4 and 8": ["--spec-type", "ngram-map-k4v", "--spec-ngram-map-k4v-size-n", "4",
                               "--spec-ngram-map-k4v-size-m", "8"],
    "ngram-mod": ["--spec-type", "ngram-mod"],
    "ngram-mod, 4 and up to 16": ["--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "4",
                                  "--spec-ngram-mod-n-min", "1", "--spec-ngram-mod-n-max", "16"],
    "ngram-cache": ["--spec-type", "ngram-cache"],
}
OURS = {"none": [], "ngram, up to 4": ["--speculate", "ngram", "--draft-max", "4"],
        "ngram, up to 8": ["--speculate", "ngram", "--draft-max", "8"],
        "ngram, up to 16": ["--speculate", "ngram", "--draft-max", "16"]}


def post(body, seconds):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=seconds))


def ready():
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=1).status == 200
    except (OSError, urllib.error.URLError):
        return False


def answers(command, prompt, tokens):
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if ready():
                break
            if server.poll() is not None:
                sys.exit(f"{' '.join(command)}\nended with {server.returncode}")
            time.sleep(0.1)
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "cache_prompt": True}
        post(body, 600)
        said = post({**body, "n_predict": tokens}, 600)
        return said["timings"]["predicted_per_second"], said["timings"]["predicted_n"], said["content"]
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--millrace", default=str(ROOT / "build/release/bin/millrace"))
    parser.add_argument("--text", default=str(ROOT / "docs/page.md"), help="what is written again")
    parser.add_argument("--bytes", type=int, default=1600, help="of it")
    parser.add_argument("--change", default="page=screen", help="A=B: every A becomes B")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-n", "--generate", type=int, default=320)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="parts of names in the table, by semicolons: others are left out")
    args = parser.parse_args()
    text = pathlib.Path(args.text).read_text()[:args.bytes]
    before, after = args.change.split("=")
    # The beginning of the answer is given, so that a small model knows what is wanted.
    given = text[:text.index(before)].replace(before, after) + after
    prompt = (f"Here is a text:\n\n{text}\n\nHere is the same text with the word \"{before}\" replaced by \"{after}\" "
              f"everywhere:\n\n{given}")
    common = ["--port", str(PORT), "-t", str(args.threads), "-np", "1", "-c", "4096"]
    ways = [("llama.cpp", name, [args.llama_server, "-m", args.model, *common, *flags])
            for name, flags in THEIRS.items()]
    ways += [("millrace", name, [args.millrace, "serve", "-m", args.model, *common, *flags])
             for name, flags in OURS.items()]
    wanted = [part.strip() for part in args.only.split(";") if part.strip()]
    ways = [way for way in ways if not wanted or any(part in f"{way[0]} {way[1]}" for part in wanted)]
    rates, plain, same, count = {}, {}, {}, {}
    for _ in range(args.rounds):
        for engine, name, command in ways:
            rate, tokens, said = answers(command, prompt, args.generate)
            rates.setdefault((engine, name), []).append(rate)
            plain.setdefault(engine, said)
            same[engine, name] = said == plain[engine] and same.get((engine, name), True)
            count[engine, name] = tokens
            print(f"{engine}, {name}: {rate:.1f} tok/s of {tokens}", file=sys.stderr, flush=True)
    print("| engine | guesses | tok/s | times its plain | answer is the plain one | tokens |")
    print("|---|---|---:|---:|---|---:|")
    for (engine, name), all_rates in rates.items():
        rate = statistics.median(all_rates)
        base = statistics.median(rates.get((engine, "none"), all_rates))
        print(f"| {engine} | {name} | {rate:.1f} | {rate / base:.2f} | {'yes' if same[engine, name] else 'no'} | "
              f"{count[engine, name]} |")
    first = next(iter(plain.values()))
    print(f"\nThe answer begins: {first[:200]!r}")


if __name__ == "__main__":
    main()
