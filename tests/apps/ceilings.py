#!/usr/bin/env python3
"""Ceilings that figures pass: whoever prints such a figure measures the machine again, and says why where it stays.

  tests/apps/ceilings.py build/release/bin/millrace

The ceilings are measured, written down as a fortieth of what they are, and the verbs have to find that out.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/stories-draft-1m-q8_0.gguf"
RATES = ("read_bytes", "int8_operations", "bf16_operations", "f32_operations", "f16_operations")

failures = 0


def check(name, good, more=""):
    global failures
    failures += not good
    print(f"{'ok' if good else 'not ok'} - {name}{'' if good else ': ' + str(more)[-600:]}", flush=True)


class Cache:
    """A folder of ceilings of its own."""

    def __init__(self, millrace, folder):
        self.millrace, self.environment = millrace, {**os.environ, "XDG_CACHE_HOME": str(folder)}
        self.run("bench", "op", "--size", "64x64", "--type", "F32", "--rows", 1, "-r", 1)
        self.path, = folder.glob("millrace/ceilings-*.json")
        self.measured = json.loads(self.path.read_text())

    def run(self, *args):
        return subprocess.run([self.millrace, *map(str, args), "--threads", "1"], text=True, capture_output=True,
                              check=False, env=self.environment)

    def rates(self):
        kept = json.loads(self.path.read_text())
        return [kept[name] for name in RATES]

    def lower(self):
        """Everything a fortieth; what it is then."""
        low = {**self.measured, **{name: self.measured[name] / 40 for name in RATES}}
        self.path.write_text(json.dumps(low))
        return self.rates()


def raised(low, now):
    return all(after > 5 * before for before, after in zip(low, now) if before > 0)


def explained(shares, why):
    """No share is over its limit without a word, and no word is said of nothing."""
    over = [share for share in shares if share > 1.005]
    return why.startswith("over 100 % of ") if why else not over


def smaller(cache, folder):
    """A verb that makes a model smaller ends with its speed before and after, and the most its bytes allow."""
    text = folder / "text.txt"
    text.write_text("\n\n".join(f"Once upon a time there was a dog named {name}. They played all day in the park."
                                for name in ("Lily", "Tom", "Sara", "Ben", "Mia")))
    low = cache.lower()
    done = cache.run("prune", MODEL, folder / "out.gguf", "--drop", 1, "--no-heal", "--most-kl", 100, "--calibrate",
                     text, "--documents")
    check("prune: ceilings that are passed are measured again", raised(low, cache.rates()), done)
    speed = re.search(r"^speed +generating ([\d.]+) -> ([\d.]+) .* at most ([\d.]+) -> ([\d.]+) ", done.stdout, re.M)
    before, after, most_before, most_after = map(float, speed.groups()) if speed else (0, 0, 0, 0)
    for name, rate, most in (("before", before, most_before), ("after", after, most_after)):
        said = re.search(rf"^limit +{name}: over 100 % of ", done.stdout, re.M) is not None
        check(f"prune: what is over 100 % is explained, {name}", speed and (said or rate <= 1.006 * most), done)


def main():
    with tempfile.TemporaryDirectory() as name:
        cache = Cache(os.path.abspath(sys.argv[1]), pathlib.Path(name))
        noise = cache.measured["noise"]
        check("each ceiling has a noise of its own",
              isinstance(noise, dict) and sorted(noise) == ["bf16", "f16", "f32", "int8", "read"] and
              all(0 <= each < 1 for each in noise.values()), noise)
        few = ("-m", MODEL, "--json")
        for title, args, shares in (
                ("explain", ("explain", *few, "-n", 4, "--growth", 64),
                 lambda found: [op["of_limit"] for part in ("prefill", "decode") for op in found[part]] +
                 [each["limit_seconds"] / each["seconds"] for part in ("prefill_growth", "decode_growth")
                  for each in found[part]["points"]]),
                ("plan --check", ("plan", "--check", *few),
                 lambda found: [each["limit_seconds"] / each["measured_seconds"] for each in found["times"]]),
                ("bench", ("bench", "-m", MODEL, "-p", 64, "-n", 8, "-r", 2, "-o", "json"), None),
                ("bench op", ("bench", "op", "--size", "512x512", "--type", "F32", "--rows", "64", "-r", 2, "-o",
                              "json"), None)):
            low = cache.lower()
            done = cache.run(*args)
            found = json.loads(done.stdout)  # plan --check fails on busy machines, and has said what it found
            check(f"{title}: ceilings that are passed are measured again",
                  raised(low, cache.rates()), (low, cache.rates()))
            if shares is not None:
                check(f"{title}: what is over 100 % is explained", explained(shares(found), found["over_limit"]), found)
            else:
                check(f"{title}: what is over 100 % is explained",
                      all("over_limit" in row and explained([row["of_limit"]], row["over_limit"]) for row in found),
                      found)
        smaller(cache, pathlib.Path(name))
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
