#!/usr/bin/env python3
"""Products and attention of a prompt in PyTorch (cuBLAS, cuDNN, FlashAttention), one operation at a time.

    bench/peers/torch_products.py --shape llama-8b --rows 2048,8192

Prints microseconds (medians) and TFLOP/s. Random numbers, two matrices in turn, and a run-up of 200 products, so that
the GPU is as warm as in a long prompt. Compare with lab/cuda_products.cu and lab/cuda_attend.cu in the same run.
"""
import argparse
import itertools
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = {  # width, ffn, heads, kv heads, head dim
    "llama-8b": (4096, 14336, 32, 8, 128),
    "llama-1b": (2048, 8192, 32, 8, 64),
}


def median_us(call, repetitions=30):
    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(repetitions):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="llama-8b")
    parser.add_argument("--rows", default="2048,8192", help="tokens of a prompt, by comma")
    options = parser.parse_args()
    width, ffn, heads, kv_heads, dim = SHAPES[options.shape]

    def random(*size):
        return torch.randn(*size, device="cuda", dtype=torch.bfloat16)

    for rows in map(int, options.rows.split(",")):
        for name, outputs, inputs in (("qkv", (heads + 2 * kv_heads) * dim, width), ("o", width, heads * dim),
                                      ("gate and up", 2 * ffn, width), ("down", width, ffn)):
            x, matrices = random(rows, inputs), itertools.cycle([random(outputs, inputs) * 0.02 for _ in range(2)])
            for _ in range(200):
                x @ next(matrices).T
            us = median_us(lambda: x @ next(matrices).T)
            print(f"{name}, {rows} rows: {us:.0f} us, {2 * rows * outputs * inputs / us / 1e6:.0f} TFLOP/s", flush=True)
        q, k, v = (random(1, heads, rows, dim) for _ in range(3))
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            with sdpa_kernel(backend):
                def attend():
                    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
                for _ in range(50):
                    attend()
                us = median_us(attend)
            print(f"attention ({backend.name.lower()}), {rows} rows: {us:.0f} us, "
                  f"{rows * rows / 2 * heads * dim * 4 / us / 1e6:.0f} TFLOP/s", flush=True)


if __name__ == "__main__":
    main()
