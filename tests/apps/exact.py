#!/usr/bin/env python3
"""The first contract for every weight format on every instruction set: `millrace verify cache` for all of them.

  tests/apps/exact.py build/release/bin/millrace            # one line a test
  tests/apps/exact.py build/release/bin/millrace --table    # formats by instruction sets

Each test computes the same tokens in one pass, token by token and in uneven chunks, alone and in company, with 1, 2 and
4 threads; all logits must be the same to the last bit. The model is a small random one whose rows suit every format.
A planted fault must be found, or the check proves nothing.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMATS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
SHORT, LONG = 150, 560  # tokens: more than one chunk of attention; more than one run of chunks


def ids(count):
    return ",".join(str((i * 7919 + 3) % 512) for i in range(count))


def isas(millrace):
    """What this machine runs, from the error that lists it."""
    done = subprocess.run([millrace, "verify", "cache"], env={**os.environ, "MILLRACE_ISA": "none"}, text=True,
                          capture_output=True, check=False)
    found = re.search(r"it has: (.*)", done.stderr)
    if not found:
        sys.exit(f"not ok - the instruction sets of this machine: {done.stderr.strip()}")
    return found.group(1).strip().split(", ")


def verify(millrace, model, isa, kv, tokens, *more):
    """Number of ways computed and what went wrong, empty if nothing did."""
    command = [millrace, "verify", "cache", "-m", model, "--kv", kv, "--ids", ids(tokens), "--json", *more]
    done = subprocess.run(command, env={**os.environ, "MILLRACE_ISA": isa}, text=True, capture_output=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        return 0, f"exit code {done.returncode}: {done.stderr.strip()}"
    answer = json.loads(done.stdout)
    different = [f"{way['way']}, {way['threads']} threads" for way in answer["ways"] if not way["same"]]
    return len(answer["ways"]), "; ".join(different)


def main():
    millrace, table = os.path.abspath(sys.argv[1]), "--table" in sys.argv[2:]
    rows, ways_in_all, failures = {}, 0, 0

    def report(isa, weights, kv, tokens, outcome):
        nonlocal ways_in_all, failures
        ways, wrong = outcome
        ways_in_all += ways
        failures += wrong != ""
        rows.setdefault((weights, kv, tokens), {})[isa] = "DIFFERS" if wrong else f"{ways} same"
        if not table:
            print(f"{'not ok' if wrong else 'ok'} - {weights}, cache {kv}, {tokens} tokens, {isa}", flush=True)
        if wrong:
            print(f"  {wrong}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "tiny")
        subprocess.run([sys.executable, ROOT / "bench/peers/random_model.py", "tiny", source], check=True)
        models = {}
        for name in FORMATS:
            models[name] = os.path.join(folder, name + ".gguf")
            subprocess.run([millrace, "convert", source, models[name], "--type", name, "--quiet"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sets = isas(millrace)
        for isa in sets:
            for name in FORMATS:
                report(isa, name, "f16", SHORT, verify(millrace, models[name], isa, "f16", SHORT))
            for kv in ("f32", "bf16", "q8", "fp8", "q4"):
                report(isa, "Q8_0", kv, SHORT, verify(millrace, models["Q8_0"], isa, kv, SHORT))
            if isa == "scalar":
                continue  # slow
            for kv in ("f32", "f16", "bf16", "q8"):
                report(isa, "Q8_0", kv, LONG, verify(millrace, models["Q8_0"], isa, kv, LONG))
        _, wrong = verify(millrace, models["Q8_0"], sets[-1], "f16", SHORT, "--plant")
        failures += wrong == ""
        print(f"{'ok' if wrong else 'not ok'} - a planted fault is found", flush=True)
    if table:
        print("| weights | cache | tokens | " + " | ".join(sets) + " |")
        print("|---|---|---:|" + "---|" * len(sets))
        for (weights, kv, tokens), found in rows.items():
            print(f"| {weights} | {kv} | {tokens} | " + " | ".join(found.get(isa, "") for isa in sets) + " |")
    print(f"{ways_in_all} ways, {failures} tests failed")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
