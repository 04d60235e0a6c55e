#!/usr/bin/env python3
"""What each weight format and its arithmetic cost in quality: perplexity, and divergence from the model as stored.

  bench/quality.py MODEL_DIRECTORY TEXT --limit 60

The base is the model's own weights in a file of F32, which are multiplied in float32, with a float32 cache.
Each variant is a file of that format, computed as it is by default: int8 activations where the format has them, a
float16 cache. The last rows change one thing at a time.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def ask(command):
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a Hugging Face directory or a GGUF file")
    parser.add_argument("text")
    parser.add_argument("--millrace", default=str(ROOT / "build/release/bin/millrace"))
    parser.add_argument("--types", default="F32,F16,BF16,Q8_0,Q6_K,Q5_K,Q5_1,Q5_0,Q4_K,Q4_1,Q4_0,Q3_K,Q2_K")
    parser.add_argument("--limit", default="60", help="documents to score")
    parser.add_argument("-t", "--threads", default="0")
    args = parser.parse_args()
    common = ["-f", args.text, "--documents", "--limit", args.limit, "-t", args.threads, "--json", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        def file_of(kind):
            path = os.path.join(folder, kind + ".gguf")
            if not os.path.exists(path):
                subprocess.run([args.millrace, "convert", args.model, path, "--type", kind, "--quiet"], check=True,
                               stdout=subprocess.DEVNULL)
            return path

        print("| weights | arithmetic | cache | MB | perplexity | change, % | KL, mean nat | KL, 99 % below | "
              "same likeliest |")
        print("|---|---|---|---:|---:|---:|---:|---:|---:|", flush=True)
        cases = [(kind, "fast", "f16") for kind in args.types.split(",")]
        cases += [("F32", "fast", "bf16"), ("F32", "float32", "f16"), ("Q8_0", "float32", "f16"),
                  ("Q4_0", "float32", "f16"), ("Q8_0", "fast", "bf16")]
        for kind, arithmetic, kv in cases:
            variant = file_of(kind)
            found = ask([args.millrace, "eval", "kl", "-m", file_of("F32"), "--kv", "f32", "--variant", variant,
                         "--variant-kv", kv, "--variant-activations", arithmetic, *common])
            print(f"| {kind} | {arithmetic} | {kv} | {os.path.getsize(variant) / 1e6:.1f} | "
                  f"{found['ppl_variant']:.4f} | {100 * found['ppl_change']:+.3f} ± "
                  f"{100 * found['ppl_change_error']:.3f} | {found['kl_mean']:.2e} | "
                  f"{found['kl_p99']:.1e} | {100 * (1 - found['flip_share']):.2f} % |", flush=True)


if __name__ == "__main__":
    main()
