#!/usr/bin/env python3
"""Verbs that make models smaller, with models of experts, any number of threads, and input that is bad: every verb
works or is refused with a sentence, and a target is there whole or not at all.

  tests/apps/shrink_any.py build/release/bin/millrace

Models are a tiny one with experts and the small one that is shipped; the text is made up, and the same in every run.
"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile

import fixtures
import shrink
from shrink import MODEL, ROOT, check, run, story

ENDING = re.compile(r"^result +[\d.]+ \S+ +KL [\d.]+ \+- [\d.]+, .* perplexity [\d.]+ -> [\d.]+.*\n"
                    r"speed +generating [\d.]+ -> [\d.]+ tokens a second .* at most [\d.]+ -> [\d.]+ ", re.M)


def with_experts(folder):
    """A golden of experts with a tokenizer of bytes, since its own has none."""
    model = folder / "experts"
    shutil.copytree(ROOT / "tests/model/golden/qwen2_moe", model)
    (model / "tokenizer.json").write_text(fixtures.byte_tokenizer())
    return model


def every_verb(millrace, folder, model, cut):
    """Every verb, of a model with experts; what comes out runs."""
    imatrix, coded = folder / "experts.imatrix", folder / "experts-gptq.gguf"
    done = run(millrace, "calibrate", "-m", model, "-f", cut[1], "--documents", "-o", imatrix)
    check("experts: calibrate", done.returncode == 0 and imatrix.exists(), done.stderr)
    weighed = folder / "experts-imatrix.gguf"
    done = run(millrace, "convert", model, weighed, "--type", "Q4_0", "--imatrix", imatrix)
    check("experts: convert --imatrix", done.returncode == 0 and weighed.exists(), done.stderr)
    check("experts: without a text it is said how figures are had", "millrace eval report" in done.stderr, done.stderr)
    made = [("gptq", coded, ["convert", model, coded, "--type", "Q4_0", "--method", "gptq", *cut])]
    for name, args in (("awq", ["convert", "--type", "Q4_0", "--method", "awq"]),
                       ("awq-gptq", ["convert", "--type", "Q4_0", "--method", "awq-gptq"]),
                       ("smoothquant", ["convert", "--type", "Q8_0", "--method", "smoothquant"]),
                       ("budget", ["convert", "--budget", 12, "--tensor-type", "ffn_gate_exps=Q8_0"]),
                       ("layers", ["prune", "--layers", 1]), ("drop", ["prune", "--drop", 1]),
                       ("kv-heads", ["prune", "--kv-heads", 1]), ("width", ["prune", "--width", 32]),
                       ("to-awq", ["convert", "--to", "awq", "--method", "awq", "--group", 32]),
                       ("to-gptq", ["convert", "--to", "gptq", "--method", "gptq", "--group", 32]),
                       ("to-ct", ["convert", "--to", "compressed-tensors", "--method", "awq", "--group", 32])):
        out = folder / f"experts-{name}{'' if name.startswith('to-') else '.gguf'}"
        made.append((name, out, [args[0], model, out, *args[1:], *cut]))
    out = folder / "experts-distil.gguf"
    made.append(("distil", out, ["distil", coded, model, out, *cut]))
    for name, out, args in made:
        done = run(millrace, *args)
        check(f"experts: {name}", done.returncode == 0 and out.exists(), done.stderr)
        check(f"experts: {name} ends with bytes, KL, perplexity and speeds", ENDING.search(done.stdout), done.stdout)
        said = run(millrace, "run", "-m", out, "-p", "Once", "-n", 2, "--temp", 0)
        check(f"experts: what {name} wrote runs", said.returncode == 0, said.stderr)
    out = folder / "no.gguf"
    odd = run(millrace, "prune", model, out, "--ffn", 0.5, *cut)
    check("experts: --ffn is refused with a sentence", odd.returncode == 1 and "must all be dense" in odd.stderr and
          not out.exists(), odd.stderr)


def same_for_any_threads(millrace, folder, cut):
    coded = folder / "threads-convert-1.gguf"
    for name, args in (("convert", ["convert", MODEL, None, "--type", "Q4_0", "--method", "awq-gptq"]),
                       ("prune", ["prune", MODEL, None, "--drop", 1]), ("distil", ["distil", coded, MODEL, None])):
        bytes_of = []
        for threads in (1, 2, 3):
            out = folder / f"threads-{name}-{threads}.gguf"
            done = run(millrace, *[out if each is None else each for each in args], "--threads", threads, *cut)
            check(f"{name} with {threads} threads", done.returncode == 0, done.stderr)
            bytes_of.append(out.read_bytes() if out.exists() else None)
        check(f"{name}: the same bytes with 1, 2 and 3 threads", bytes_of[0] and bytes_of[0] == bytes_of[1] ==
              bytes_of[2], [len(each or b"") for each in bytes_of])


def with_nan(folder, model):
    """The model with one weight that is no number."""
    broken = folder / "broken"
    shutil.copytree(model, broken)
    path = broken / "model.safetensors"
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    name = next(each for each in head if each.endswith("layers.0.self_attn.o_proj.weight"))
    at = 8 + size + head[name]["data_offsets"][0]
    data[at:at + 2] = struct.pack("<H", 0x7FC0)  # bf16
    path.write_bytes(data)
    return broken


def refusals(millrace, folder, model, cut):
    """Bad input that a person can give: named, with numbers, and no file."""
    target = folder / "refused.gguf"

    def refused(name, sentence, *args):
        done = run(millrace, *args)
        check(f"refused: {name}", done.returncode == 1 and re.search(sentence, done.stderr) and not target.exists()
              and not list(folder.glob("refused.gguf*")), done.stderr)

    convert = ["convert", MODEL, target]
    imatrix = folder / "experts.imatrix"
    refused("an imatrix of another model", r"imatrix|importance", *convert, "--type", "Q4_0", "--imatrix", imatrix)
    refused("an imatrix that is none", r"text\.txt", *convert, "--type", "Q4_0", "--imatrix", cut[1])
    refused("a budget below the smallest format", r"[\d.]+ bits a number are too few: .* takes [\d.]+", *convert,
            "--budget", 0.6, *cut)
    refused("layers that are not there", r"has layers 0 to \d", "prune", MODEL, target, "--drop", 99, *cut)
    refused("all layers", r"one must stay", "prune", MODEL, target, "--layers", 99, *cut)
    refused("a text with nothing to hold out", r"at least 5", *convert, "--type", "Q4_0", "--method", "gptq",
            "--calibrate", cut[1], "--documents", "--limit", 4)
    gptq = ["--type", "Q4_0", "--method", "gptq", *cut]
    for name, args in (("convert", [*convert, *gptq]), ("prune", ["prune", MODEL, target, "--layers", 1, *cut]),
                       ("distil", ["distil", MODEL, MODEL, target, *cut])):
        for limit in (300_000, 3_000_000):  # less than the model, and less than what goes beside it
            refused(f"{name} in {limit} bytes", r"[\d.]+ [KM]iB", *args, "--memory-limit", limit)
    broken = with_nan(folder, model)
    for name, args in (("calibrate", ["-m", broken, "-f", cut[1], "--documents", "-o", target]),
                       ("convert", [broken, target, *gptq]), ("prune", [broken, target, "--drop", 1, *cut])):
        refused(f"{name}: a weight that is no number", r"not finite", name, *args)
    few = folder / "few.txt"
    few.write_text("\n\n".join("Once upon a time." for _ in range(6)))
    done = run(millrace, "convert", MODEL, target, "--type", "Q4_0", "--method", "gptq", "--calibrate", few,
               "--documents")
    check("a text shorter than the widest input raises the ridge and says so", done.returncode == 0 and
          "(ridge 0.1)" in done.stderr, done.stderr)
    target.unlink(missing_ok=True)


def full_disk(millrace, folder, cut):
    """A file that outgrows its limit fails as one on a full disk does."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as a shell starts it
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    target = folder / "full"
    for name, args in (("calibrate", ["calibrate", "-m", MODEL, "-f", cut[1], "--documents", "-o", target]),
                       ("convert", ["convert", MODEL, target, "--type", "Q4_0"]),
                       ("convert --to", ["convert", folder / "experts", target, "--to", "gptq", "--group", 32]),
                       ("distil", ["distil", MODEL, MODEL, target, *cut])):
        done = run(millrace, *args, preexec_fn=limit)
        check(f"a full disk: {name} ends with an error", done.returncode == 1 and done.stderr, done.stderr)
        left = [each.name for each in folder.glob("full*") if each.name != "full.part"]
        check(f"a full disk: {name} leaves no target", not left, left)
        (folder / "full.part").unlink(missing_ok=True)


def main():
    millrace = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = folder / "text.txt"
        text.write_text("\n\n".join(story(i) for i in range(10)))
        cut = ["--calibrate", text, "--documents"]
        model = with_experts(folder)
        every_verb(millrace, folder, model, cut)
        same_for_any_threads(millrace, folder, cut)
        refusals(millrace, folder, model, cut)
        full_disk(millrace, folder, cut)
    sys.exit(shrink.failures > 0)


if __name__ == "__main__":
    main()
