#!/usr/bin/env python3
"""Verbs that make models smaller, as a person meets them: what they end with, runs that are killed and go on, a full
disk, refusals, and the page that compares variants.

  tests/apps/shrink.py build/release/bin/millrace

The model is the small one that is shipped; the text is made up, and the same in every run.
"""
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/stories-draft-1m-q8_0.gguf"
NAMES, THINGS = ["Lily", "Tom", "Sara", "Ben", "Mia"], ["ball", "tree", "dog", "boat", "cake", "bird", "hat"]


def story(i):
    name, thing, other = NAMES[i % 5], THINGS[i % 7], THINGS[(i * 3 + 1) % 7]
    return (f"Once upon a time there was a child named {name}. {name} had a big {thing}. One day {name} saw a {other} "
            f"in the park. \"I like the {other},\" said {name}. The {other} was happy too. They played all day, and "
            f"then {name} went home with the {thing}.")


failures = 0


def check(name, good, more=""):
    global failures
    failures += not good
    print(f"{'ok' if good else 'not ok'} - {name}{'' if good else ': ' + str(more)[-600:]}", flush=True)


def run(millrace, *args, **more):
    return subprocess.run([millrace, *map(str, args)], text=True, capture_output=True, check=False, **more)


def killed(millrace, args, target, number, steps):
    """Starts a run and ends it once that many steps are written down. Whether it was still at work."""
    part = pathlib.Path(f"{target}.part")
    process = subprocess.Popen([millrace, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen, last = 0, -1
    while process.poll() is None and seen < steps:
        size = part.stat().st_size if part.exists() else 0
        seen += size > last and size > 0
        last = max(size, last)
        time.sleep(0.002)
    process.send_signal(number)
    process.wait()
    return part.exists() and not target.exists()


def goes_on(millrace, folder, name, make):
    """A run that is killed twice and interrupted once ends with the bytes of one that was left alone."""
    whole, target = folder / f"{name}-whole.gguf", folder / f"{name}.gguf"
    done = run(millrace, *make(whole))
    check(f"{name}: ends well", done.returncode == 0, done.stderr)
    check(f"{name}: bytes, KL with its error, perplexity", re.search(
        r"^result +[\d.]+ \S+ +KL [\d.]+ \+- [\d.]+, .* perplexity [\d.]+ -> [\d.]+", done.stdout, re.M), done.stdout)
    check(f"{name}: speed, measured and foreseen", re.search(
        r"^speed +generating [\d.]+ -> [\d.]+ tokens a second .* at most [\d.]+ -> [\d.]+ ", done.stdout, re.M),
        done.stdout)
    check(f"{name}: no journal is left", not pathlib.Path(f"{whole}.part").exists())
    for _ in range(10):
        stopped = 0
        for number, steps in ((signal.SIGKILL, 1), (signal.SIGINT, 2), (signal.SIGKILL, 1)):
            stopped += not target.exists() and killed(millrace, make(target), target, number, steps)
        if not target.exists():
            break
        target.unlink()  # a run was over before it was struck: once more from the beginning
    again = run(millrace, *make(target))
    check(f"{name}: goes on after {stopped} stops", stopped > 0 and "going on after" in again.stderr, again.stderr)
    check(f"{name}: the same bytes", target.exists() and target.read_bytes() == whole.read_bytes())
    return whole


def full_disk(millrace, folder, make):
    target = folder / "full.gguf"

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as a shell starts it
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    done = run(millrace, *make(target), preexec_fn=limit)
    check("a full disk: an error and no file", done.returncode not in (0, 139, 134) and not target.exists() and
          "cannot write" in done.stderr, done.stderr)
    left = [each.name for each in folder.iterdir() if each.name.startswith("full.gguf") and "tmp" in each.name]
    check("a full disk: nothing half written stays", not left, left)
    for each in folder.glob("full.gguf*"):
        each.unlink()


def report(millrace, folder, text, files):
    page = folder / "report.html"
    done = run(millrace, "eval", "report", *files, "-f", text, "--documents", "--html", page, "--json")
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    check("eval report: a row a file", [row["model"] for row in rows] == [each.stem for each in files], done.stderr)
    check("eval report: the base has no KL, others have", rows and rows[0]["kl_mean"] < 1e-9 and
          all(row["kl_mean"] > 0 and row["kl_mean_error"] > 0 for row in rows[1:]), rows)
    check("eval report: speeds were measured", all(row["decode_tokens_per_second"] > 0 for row in rows), rows)
    html = page.read_text() if page.exists() else ""
    check("eval report: every file on the page", all(each.stem in html for each in files) and "<svg" in html)


def cache_and_activations(millrace, folder, text):
    """Weights, activations and cache on one page."""
    page = folder / "all.html"
    done = run(millrace, "eval", "report", MODEL, "-f", text, "-c", 128, "--limit", 1, "--activations", "float32,fast",
               "--kv-types", "f16,q8,fp8,q4", "--html", page, "--json")
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    check("eval report: each activation with each cache", len(rows) == 8 and rows[0]["kl_mean"] < 1e-9 and
          len({row["model"] for row in rows}) == 8, done.stderr or rows)
    html = page.read_text() if page.exists() else ""
    check("eval report: cache and depth are drawn", "bytes of the cache" in html and "By depth" in html and
          all(row["model"] in html for row in rows), html[:300])
    done = run(millrace, "eval", "report", MODEL, "-f", text, "--activations", "slow")
    check("eval report: an unknown arithmetic is named", done.returncode != 0 and "'slow' is no arithmetic"
          in done.stderr, done.stderr)


def forgets(millrace, text):
    """A cache that forgets: what it costs and saves, for all layers and ranked layer by layer."""
    rule, cut = "sinks:4,window:32", ["-f", text, "-c", 256, "--limit", 2]
    done = run(millrace, "eval", "report", MODEL, *cut, "--kv-keep", rule, "--json")
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    check("eval report: a cache that forgets is a row", len(rows) == 2 and rows[1]["model"].endswith(rule) and
          rows[1]["kl_mean"] > 0 and rows[1]["kv_bytes_of_text"] < rows[0]["kv_bytes_of_text"] / 2, done.stderr or rows)
    whole = text.with_name("whole.txt")
    whole.write_text(text.read_text().replace("\n\n", "\n"))  # one document: every depth of it is scored
    wide = ["-f", whole, "--documents", "--variant-kv-keep", "sinks:4,window:400"]
    page = text.with_name("depth.html")
    done = run(millrace, "eval", "kl", "-m", MODEL, *wide, "--json", "--html", page)
    depths = json.loads(done.stdout)["depths"] if done.returncode == 0 else []
    check("eval kl: nothing differs before something is forgotten", len(depths) == 4 and depths[0]["to"] < 404 and
          depths[0]["kl_mean"] == 0 and depths[-1]["kl_mean"] > 0, done.stderr or depths)
    html = page.read_text() if page.exists() else ""
    check("eval kl: every depth is drawn", "<svg" in html and all(
        f"positions {each['from']} to {each['to'] - 1}," in html for each in depths), html[:300])
    done = run(millrace, "eval", "streaming", "-m", MODEL, *cut, "--kv-keep", rule, "--sets", 2, "--json")
    rank = json.loads(done.stdout) if done.returncode == 0 else {"alone": [], "together": []}
    losses = [each["kl"] for each in rank["alone"]]
    check("eval streaming: layers from the cheapest on", len(losses) > 1 and losses == sorted(losses) and
          losses[0] > 0, done.stderr or rank)
    sets = rank["together"]
    check("eval streaming: more layers, fewer bytes", len(sets) == 2 and sets[1]["kv_bytes"] < sets[0]["kv_bytes"] <
          rank["kv_bytes"] and sets[1]["layers"] == len(losses), rank)
    found = sets[0]["keep"] if sets else ""
    done = run(millrace, "eval", "kl", "-m", MODEL, *cut, "--variant-kv-keep", found, "--json")
    again = json.loads(done.stdout) if done.returncode == 0 else {}
    check("eval streaming: --kv-keep takes what it found", again and abs(again["kl_mean"] - sets[0]["kl"]) < 1e-12,
          done.stderr or again)
    one = ["-m", MODEL, "--kv-keep", rule, "--json"]
    done = run(millrace, "eval", "needle", "-f", text, "-c", 256, "--tries", 1, *one)
    sides = json.loads(done.stdout) if done.returncode == 0 else []
    check("eval needle: both caches, every place", len(sides) == 2 and sides[1]["keep"] == rule and
          all(len(side["places"]) == 9 for side in sides) and sides[1]["kv_bytes"] < sides[0]["kv_bytes"],
          done.stderr or sides)
    done = run(millrace, "eval", "streaming", "-m", MODEL, *cut, "--kv-keep", rule + ",layers:99")
    check("eval streaming: it says what it expects", done.returncode == 2 and "--kv-keep sinks:4" in done.stderr, done)
    done = run(millrace, "run", "-m", MODEL, "--kv-keep", rule + ",layers:99", "-p", "Once", "-n", 2)
    check("--kv-keep: layers that are not there", done.returncode == 1 and
          "layers, counted from 0" in done.stderr, done)


def main():
    millrace = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = folder / "text.txt"
        text.write_text("\n\n".join(story(i) for i in range(15)))
        cut = ["--calibrate", text, "--documents"]
        fewer = goes_on(millrace, folder, "prune", lambda out: ["prune", MODEL, out, "--layers", 1, *cut])
        coded = goes_on(millrace, folder, "convert", lambda out: [
            "convert", MODEL, out, "--type", "Q4_0", "--method", "gptq", "--budget", 6, *cut])
        goes_on(millrace, folder, "distil", lambda out: ["distil", coded, MODEL, out, *cut])
        narrow = goes_on(millrace, folder, "width", lambda out: [
            "prune", MODEL, out, "--width", 96, "--most-kl", 100, *cut])
        forgets(millrace, text)
        cache_and_activations(millrace, folder, text)
        shape = run(millrace, "inspect", narrow).stdout
        check("width: heads stay, the stream is narrower", re.search(r"width +96\n", shape) and
              re.search(r"heads +4 \(2", shape), shape)
        said = run(millrace, "run", "-m", narrow, "-p", "Once upon", "-n", 4, "--temp", 0)
        check("width: the file runs", said.returncode == 0, said.stderr)
        refused = run(millrace, "prune", MODEL, folder / "no.gguf", "--width", 32, "--no-heal", *cut)
        check("width: refused with its KL", refused.returncode != 0 and "has a KL of" in refused.stderr and
              not (folder / "no.gguf").exists(), refused.stderr)
        odd = run(millrace, "prune", MODEL, folder / "no.gguf", "--width", 100, *cut)
        check("width: multiples of the format's groups", odd.returncode != 0 and "multiples of 32" in odd.stderr,
              odd.stderr)
        full_disk(millrace, folder, lambda out: ["prune", MODEL, out, "--drop", 1, "--no-heal", *cut])
        other = folder / "prune-other.gguf"
        pathlib.Path(f"{other}.part").write_text("not a journal")
        refused = run(millrace, "prune", MODEL, other, "--layers", 1, *cut)
        check("a .part that is no journal is refused", refused.returncode != 0 and "remove it" in refused.stderr,
              refused.stderr)
        report(millrace, folder, text, [MODEL, fewer, coded])
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
