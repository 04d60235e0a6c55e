#!/usr/bin/env python3
"""Times llama.cpp's llama-bench and `millrace bench` alternately on the same GGUF files and prints the ratios.

  bench/peers/llama_bench.py --llama-bench ~/llama.cpp/build/bin/llama-bench -t 2 -p 512 -n 64 q8_0.gguf q4_0.gguf

Both run the same tests for the same files in turn, several rounds, because machines are shared: a ratio of medians from
one run is worth something, a figure from last week is not.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ask(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def peer_rates(args, model, depth):
    command = [args.llama_bench, "-m", model, "-o", "json", "-t", str(args.threads), "-p", args.prompt,
               "-n", args.generate, "-d", str(depth), "-r", str(args.repetitions), "-fa", "1"]
    return {key(row["n_prompt"], row["n_gen"], depth): row["avg_ts"] for row in ask(command)}


def our_rates(args, model, depth):
    command = [args.millrace, "bench", "-m", model, "-o", "json", "-t", str(args.threads), "-p", args.prompt,
               "-n", args.generate, "-d", str(depth), "-r", str(args.repetitions)]
    rows = ask(command)
    return ({key(row["n_prompt"], row["n_gen"], depth): row["avg_ts"] for row in rows},
            {key(row["n_prompt"], row["n_gen"], depth): (row["of_limit"], row["bound"]) for row in rows})


def key(prompt, generated, depth):
    name = f"pp{prompt}" if prompt else f"tg{generated}"
    return name + (f" @ d{depth}" if depth else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--llama-bench", required=True, help="path of llama.cpp's llama-bench")
    parser.add_argument("--millrace", default=str(ROOT / "build/release/bin/millrace"))
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--prompt", default="512", help="prompt lengths, by comma; 0: none")
    parser.add_argument("-n", "--generate", default="64", help="tokens to generate, by comma; 0: none")
    parser.add_argument("-d", "--depth", default="0", help="tokens already in the cache, by comma")
    parser.add_argument("-r", "--repetitions", type=int, default=3, help="within a round")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print("| model | test | llama.cpp t/s | millrace t/s | ratio | of limit | bound by |")
    print("|---|---|---:|---:|---:|---:|---|")
    for model in args.models:
        for depth in (int(d) for d in args.depth.split(",")):
            theirs, ours, limits = {}, {}, {}
            for _ in range(args.rounds):
                for test, rate in peer_rates(args, model, depth).items():
                    theirs.setdefault(test, []).append(rate)
                rates, limits = our_rates(args, model, depth)
                for test, rate in rates.items():
                    ours.setdefault(test, []).append(rate)
            for test, rates in ours.items():
                mine, peer = statistics.median(rates), statistics.median(theirs.get(test, [float("nan")]))
                of_limit, bound = limits[test]
                print(f"| {pathlib.Path(model).stem} | {test} | {peer:.1f} | {mine:.1f} | {mine / peer:.2f} | "
                      f"{100 * of_limit:.0f} % | {bound} |", flush=True)


if __name__ == "__main__":
    main()
