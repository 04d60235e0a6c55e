#!/usr/bin/env python3
"""What the program shows of models with experts and latents: how many parameters and experts a token needs, where a
prompt's tokens went, and single operations.

  tests/apps/experts.py build/release/bin/millrace

Models are tiny ones of the tree, with a tokenizer of bytes beside them, since they have none.
"""
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
import fixtures  # noqa: E402
import shrink  # noqa: E402
from shrink import ROOT, check, run  # noqa: E402

PROMPT = "The mill by the river ground wheat, rye and barley; when the water was low, the wheel stood still."
MARKS = " .:-=+*#@"
# Experts of a layer, how many a token has, and which layers have them.
MODELS = {"qwen2_moe": (8, 2, [0, 1, 2]), "glm4_moe": (8, 2, [1, 2]), "gemma4_experts": (8, 2, [0, 1, 2, 3])}


def marks_of(counts):
    """An even share is the fifth mark, twice that the last; whoever had a token has some mark."""
    even = sum(counts) / len(counts)
    return "".join(MARKS[int(min(max(count / even * 4 + 0.5, 1 if count else 0), 8))] for count in counts)


def with_tokenizer(folder, name):
    model = folder / name
    shutil.copytree(ROOT / "tests/model/golden" / name, model)
    (model / "tokenizer.json").write_text(fixtures.byte_tokenizer())
    return model


def explained(millrace, model, prompt, *more):
    done = run(millrace, "explain", "-m", model, "-p", prompt, "-n", 5, "--temp", 0, "--ignore-eos", "--growth", 0,
               "-t", 1, *more)
    check(f"{model.name}: explain runs {' '.join(map(str, more[:1]))}", done.returncode == 0, done.stderr)
    return done.stdout


def load_is_drawn(millrace, folder, name):
    experts, chosen, layers = MODELS[name]
    model = with_tokenizer(folder, name)
    sums = []
    for prompt in (PROMPT, PROMPT[:10]):
        found = json.loads(explained(millrace, model, prompt, "--json"))
        computed = found["prompt_tokens"] + found["answer_tokens"] - 1  # the last token is not computed any more
        loads = found["experts"]
        check(f"{name}: a prompt of {len(prompt)} characters has as many tokens, or one less for each 'he'",
              found["prompt_tokens"] in range(len(prompt) - prompt.count("he"), len(prompt) + 2), found)
        check(f"{name}: layers that have experts", [each["layer"] for each in loads] == layers, loads)
        # The last layer computes only rows that a token is chosen from.
        rows = [found["answer_tokens"] if layer == layers[-1] else computed for layer in layers]
        check(f"{name}: every token has {chosen} experts in every layer",
              all(len(each["tokens_by_expert"]) == experts and sum(each["tokens_by_expert"]) == chosen * count and
                  max(each["tokens_by_expert"]) <= count for each, count in zip(loads, rows)), (rows, loads))
        sums.append(sum(loads[0]["tokens_by_expert"]))
    check(f"{name}: a longer prompt has more", sums[0] > sums[1], sums)
    check(f"{name}: not all parameters are a token's", 0 < found["active_parameters"] < found["parameters"] and
          found["bytes_per_token"] > 0, found)
    check(f"{name}: experts by batch", [(each["batch"], each["of"]) for each in found["experts_touched"]] ==
          [(batch, experts) for batch in (1, 4, 16, 64)] and found["experts_touched"][0]["experts"] == chosen,
          found["experts_touched"])
    text, page = explained(millrace, model, PROMPT[:10]), folder / f"{name}.html"
    line = r"^ *(\d+) \|(.{%d})\| busiest ([\d.]+) %%, (\d+) unused, of (\d+) choices$" % experts
    drawn = re.findall(line, text, re.M)
    wanted = [(str(each["layer"]), marks_of(each["tokens_by_expert"]),
               f"{100 * max(each['tokens_by_expert']) / sum(each['tokens_by_expert']):.1f}",
               str(each["tokens_by_expert"].count(0)), str(sum(each["tokens_by_expert"]))) for each in loads]
    check(f"{name}: what is drawn are these counts", drawn == wanted, (drawn, wanted))
    check(f"{name}: parameters in words", re.search(r"parameters, [^;]+ for a token; a token reads", text) and
          f"of a layer's {experts} experts" in text, text)
    explained(millrace, model, PROMPT[:10], "--html", page)
    html = page.read_text() if page.exists() else ""
    check(f"{name}: a chart on the page", ">Experts<" in html and all(
        f"layer {layer}" in html for layer in (layers[0], layers[-1])))


def dense_has_none(millrace):
    found = json.loads(explained(millrace, shrink.MODEL, "Once", "--json"))
    check("a dense model has no experts, and needs all parameters", not found["experts"] and
          not found["experts_touched"] and found["active_parameters"] == found["parameters"], found)


def planned(millrace):
    """Experts that a batch touches if tokens choose evenly and by themselves: E (1 - (1 - k/E)^T)."""
    for shape, experts, chosen, active in (("olmoe-7b", 64, 8, 1.18e9), ("qwen3-30b-a3b", 128, 8, 3.04e9)):
        done = run(millrace, "plan", "--shape", shape, "--hw", "h200", "--json")
        plan = json.loads(done.stdout) if done.returncode == 0 else {"experts_touched": [], "active_parameters": 0}
        wanted = [(batch, experts * (1 - (1 - chosen / experts) ** batch)) for batch in (1, 4, 16, 64)]
        check(f"plan {shape}: experts by batch", len(plan["experts_touched"]) == 4 and all(
            each["batch"] == batch and each["of"] == experts and abs(each["experts"] - count) <= 1
            for each, (batch, count) in zip(plan["experts_touched"], wanted)), plan["experts_touched"])
        check(f"plan {shape}: active parameters", abs(plan["active_parameters"] / active - 1) < 0.01, plan)
        bytes_of = [each["bytes_per_token"] for each in plan["experts_touched"]]
        check(f"plan {shape}: a token of a batch reads less", bytes_of == sorted(bytes_of, reverse=True) and
              bytes_of[3] < bytes_of[0], bytes_of)


def operations(millrace, folder):
    """Single operations, and what they count: in attention products and ten operations a pair for the softmax."""
    few = ("-r", 1, "-t", 1, "-o", "json")
    for name, flops, args in (
            ("a product for each head", 2 * 4 * 32 * 64 * 3,
             ("heads", "--heads", "4/1x8", "--size", "32x64", "--type", "F32", "--rows", 3)),
            ("values of a width of their own", (2 * (32 + 16) + 10) * 4 * (1 + 2 + 3),
             ("attend", "--heads", "4/4x32+16", "--rows", 3, "-d", 0)),
            ("values that are a part of keys", (2 * (48 + 32) + 10) * 4 * (1 + 2 + 3),
             ("attend", "--heads", "4/1x48x32", "--rows", 3, "-d", 0))):
        done = run(millrace, "bench", "op", "--op", *args, *few, env={**os.environ, "HOME": str(folder)})
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        check(f"bench op: {name}", len(rows) == 1 and rows[0]["flops"] == flops and rows[0]["seconds"] > 0,
              done.stderr or (rows, flops))
    for bad in ("4/4x32+", "4/4x32+0", "4/4x", "4/1x48x64"):
        done = run(millrace, "bench", "op", "--op", "attend", "--heads", bad, *few)
        check(f"bench op: --heads {bad} is refused", done.returncode == 1 and not done.stdout and
              done.stderr.count("\n") == 1, done.stderr)


def main():
    millrace = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model in MODELS:
            load_is_drawn(millrace, folder, model)
        dense_has_none(millrace)
        planned(millrace)
        operations(millrace, folder)
    sys.exit(shrink.failures > 0)


if __name__ == "__main__":
    main()
