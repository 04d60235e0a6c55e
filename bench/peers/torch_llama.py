#!/usr/bin/env python3
"""The same shapes in PyTorch, for comparison: random weights, steps captured in a CUDA graph, compiled where asked.

    bench/peers/torch_llama.py --shape llama-8b --batch 1,64 --depth 1024 --prefill 2048 [--compile]

Prints milliseconds and tokens a second, medians of the repetitions. Keys and values lie in dense tensors of the depth
asked for; attention is torch's scaled_dot_product_attention with grouped heads.
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F

SHAPES = {  # width, ffn, layers, heads, kv heads, head dim, vocab
    "llama-8b": (4096, 14336, 32, 32, 8, 128, 128256),
    "llama-1b": (2048, 8192, 16, 32, 8, 64, 128256),
}


class Layer:
    def __init__(self, shape):
        width, ffn, _, heads, kv_heads, dim, _ = shape
        def make(rows, cols):
            return torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) / cols**0.5
        self.qkv = make((heads + 2 * kv_heads) * dim, width)
        self.out = make(width, heads * dim)
        self.gate_up = make(2 * ffn, width)
        self.down = make(width, ffn)
        self.norms = [torch.ones(width, device="cuda", dtype=torch.bfloat16) for _ in range(2)]


def turn(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def layer_step(x, layer, shape, keys, values, position, cos, sin, causal):
    """x: [batch, tokens, width]; keys and values: [batch, kv heads, room, dim], filled up to `position`."""
    width, ffn, _, heads, kv_heads, dim, _ = shape
    batch, tokens, _ = x.shape
    h = F.rms_norm(x, (width,), layer.norms[0], 1e-5)
    q, k, v = F.linear(h, layer.qkv).split((heads * dim, kv_heads * dim, kv_heads * dim), dim=-1)
    q = turn(q.view(batch, tokens, heads, dim).transpose(1, 2), cos, sin)
    k = turn(k.view(batch, tokens, kv_heads, dim).transpose(1, 2), cos, sin)
    keys[:, :, position:position + tokens] = k
    values[:, :, position:position + tokens] = v.view(batch, tokens, kv_heads, dim).transpose(1, 2)
    mixed = F.scaled_dot_product_attention(q, keys[:, :, :position + tokens], values[:, :, :position + tokens],
                                           is_causal=causal, enable_gqa=True)
    x = x + F.linear(mixed.transpose(1, 2).reshape(batch, tokens, heads * dim), layer.out)
    h = F.rms_norm(x, (width,), layer.norms[1], 1e-5)
    gate, up = F.linear(h, layer.gate_up).split((ffn, ffn), dim=-1)
    return x + F.linear(F.silu(gate) * up, layer.down)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama-8b", choices=SHAPES)
    parser.add_argument("--batch", default="1")
    parser.add_argument("--depth", type=int, default=1024)
    parser.add_argument("--prefill", default="")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("-r", "--repetitions", type=int, default=10)
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    width, _, count, _, kv_heads, dim, vocab = shape
    torch.manual_seed(1)
    layers = [Layer(shape) for _ in range(count)]
    head = torch.randn(vocab, width, device="cuda", dtype=torch.bfloat16) / width**0.5
    one_layer = torch.compile(layer_step, dynamic=False) if arguments.compile else layer_step

    def measure(name, batch, tokens, depth):
        room = depth + tokens
        caches = [torch.randn(2, batch, kv_heads, room, dim, device="cuda", dtype=torch.bfloat16) for _ in layers]
        start = torch.randn(batch, tokens, width, device="cuda", dtype=torch.bfloat16)
        angles = torch.arange(depth, room, device="cuda")[:, None] * torch.rand(dim // 2, device="cuda")
        cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

        def step():
            x = start
            for layer, cache in zip(layers, caches):
                x = one_layer(x, layer, shape, cache[0], cache[1], depth, cos, sin, tokens > 1)
            return F.linear(F.rms_norm(x[:, -1], (width,)), head).argmax(-1)

        for _ in range(2):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        seconds = []
        for _ in range(arguments.repetitions + 2):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        median = statistics.median(seconds[2:])
        print(f"torch {torch.__version__} {arguments.shape} {name}: {median * 1e3:.2f} ms, "
              f"{batch * tokens / median:.0f} tokens/s", flush=True)

    with torch.inference_mode():
        for batch in (int(b) for b in arguments.batch.split(",")):
            measure(f"generation, batch {batch}, depth {arguments.depth}", batch, 1, arguments.depth)
        for tokens in (int(t) for t in arguments.prefill.split(",") if t):
            measure(f"prefill {tokens}", 1, tokens, 0)


if __name__ == "__main__":
    main()
