#!/usr/bin/env python3
"""Writes a GGUF file with random weights of a known shape directly in a weight format, for timing several engines.

  bench/peers/random_gguf.py llama-3.2-1b Q4_K /tmp/llama-1b-q4_k.gguf
  bench/peers/random_gguf.py olmoe-7b-a1b Q4_K /tmp/olmoe-q4_k.gguf
  bench/peers/random_gguf.py llama-3.1-8b Q4_K+Q6_K /tmp/llama-8b-q4_k_m.gguf

Nothing is quantised: codes are random, scales such that weights have the spread of trained ones. A megabyte of groups
is made and repeated, so a file is written at the disk's speed. All matrices have the one format, but for routers,
which are float32; of two formats, the other is of the matrices that Q4_K_M keeps in Q6_K: the head, and values and
the way down of half the layers. There is no tokenizer.
"""
import math
import random
import struct
import sys

from random_model import SHAPES, bf16_tables

# number in the file, values of a group, bytes of a group
FORMATS = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
           "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2), "IQ2_XXS": (16, 256, 66),
           "IQ2_XS": (17, 256, 74), "IQ3_XXS": (18, 256, 98), "IQ1_S": (19, 256, 50), "IQ3_S": (21, 256, 110),
           "IQ2_S": (22, 256, 82), "IQ1_M": (29, 256, 56), "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66),
           "NVFP4": (40, 64, 36), "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18)}
# Of formats whose codes and scales may be anything: a group's largest number for a factor of one, roughly; and those
# whose factor stands behind their codes.
SPREAD = {"IQ2_XXS": 100, "IQ2_XS": 100, "IQ3_XXS": 200, "IQ1_S": 15, "IQ3_S": 300, "IQ2_S": 100, "IQ1_M": 15,
          "TQ1_0": 1, "TQ2_0": 1, "Q1_0": 1, "Q2_0": 2}
FACTOR_LAST = ("TQ1_0", "TQ2_0")
ALIGNMENT = 32
# as SHAPES, and architecture, experts, experts of a token
EXPERT_SHAPES = {"olmoe-7b-a1b": ((16, 2048, 1024, 16, 16, 128, 50304, 4096, 1e4, False), ("olmoe", 64, 8))}
DENSE = ("llama", 0, 0)
ROUTER = "ffn_gate_inp.weight"


def half(value):
    return struct.pack("<e", value)


def group(source, name, deviation):
    """One group of random codes."""
    noise = source.randbytes
    if name == "Q8_0":
        return half(deviation / 73) + noise(32)
    if name == "Q4_0":
        return half(deviation / 4.6) + noise(16)
    if name in ("Q4_K", "Q5_K"):  # scales and minima of 32 on average
        most = 15 if name == "Q4_K" else 31
        d = deviation / (32 * most * 0.29)
        return half(d) + half(d * most / 2) + noise(12) + (noise(32) if name == "Q5_K" else b"") + noise(128)
    if name == "Q6_K":
        return noise(128 + 64 + 16) + half(deviation / (64 * 18))
    if name == "NVFP4":  # scales of E4M3
        return bytes(source.choices(range(16, 40), k=4)) + noise(32)
    factor = half(2 * deviation / SPREAD[name])
    if name == "IQ1_M":  # in the highest four bits of four numbers
        bits = int.from_bytes(factor, "little")
        return noise(48) + b"".join(struct.pack("<H", source.getrandbits(12) | (bits >> 4 * i & 15) << 12)
                                    for i in range(4))
    codes = noise(FORMATS[name][2] - 2)
    return codes + factor if name in FACTOR_LAST else factor + codes


def some_groups(name, deviation):
    """About a megabyte of groups."""
    source = random.Random(3)
    if name in ("BF16", "F16", "F32"):
        low, high = bf16_tables(deviation)
        if name == "BF16":
            table = [bytes((a, b)) for a, b in zip(low, high)]
        else:
            code = "<e" if name == "F16" else "<f"
            table = [struct.pack(code, struct.unpack("<f", bytes((0, 0, a, b)))[0]) for a, b in zip(low, high)]
        return b"".join(table[byte] for byte in source.randbytes(1 << 19))
    size = FORMATS[name][2]
    return b"".join(group(source, name, deviation) for _ in range((1 << 20) // size))


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def metadata(shape, kind):
    architecture, experts, used = kind
    layers, width, ffn, heads, kv_heads, head, vocab, context, theta, _ = shape
    yield "general.architecture", architecture
    yield "tokenizer.ggml.model", "none"
    for key, value in (("context_length", context), ("embedding_length", width), ("block_count", layers),
                       ("feed_forward_length", ffn), ("attention.head_count", heads),
                       ("attention.head_count_kv", kv_heads), ("attention.key_length", head),
                       ("attention.value_length", head), ("rope.dimension_count", head), ("vocab_size", vocab)):
        yield f"{architecture}.{key}", value
    if experts:
        yield f"{architecture}.expert_count", experts
        yield f"{architecture}.expert_used_count", used
    yield f"{architecture}.rope.freq_base", theta
    yield f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5


def tensors(shape, kind):
    """Name and sizes, inputs first; a vector has one, experts three."""
    layers, width, ffn, heads, kv_heads, head, vocab, _, _, tied = shape
    _, experts, _ = kind
    yield "token_embd.weight", (width, vocab)
    for i in range(layers):
        base = f"blk.{i}."
        yield base + "attn_norm.weight", (width,)
        yield base + "attn_q.weight", (width, heads * head)
        yield base + "attn_k.weight", (width, kv_heads * head)
        yield base + "attn_v.weight", (width, kv_heads * head)
        yield base + "attn_output.weight", (heads * head, width)
        yield base + "ffn_norm.weight", (width,)
        if experts:
            yield base + "attn_q_norm.weight", (heads * head,)
            yield base + "attn_k_norm.weight", (kv_heads * head,)
            yield base + ROUTER, (width, experts)
            yield base + "ffn_gate_exps.weight", (width, ffn, experts)
            yield base + "ffn_up_exps.weight", (width, ffn, experts)
            yield base + "ffn_down_exps.weight", (ffn, width, experts)
        else:
            yield base + "ffn_gate.weight", (width, ffn)
            yield base + "ffn_up.weight", (width, ffn)
            yield base + "ffn_down.weight", (ffn, width)
    yield "output_norm.weight", (width,)
    if not tied:
        yield "output.weight", (width, vocab)


def kept_wider(tensor, layers):
    """Whether Q4_K_M has more bits for it."""
    if tensor == "output.weight":
        return True
    if not tensor.endswith(("attn_v.weight", "ffn_down.weight", "ffn_down_exps.weight")):
        return False
    layer, eighth = int(tensor.split(".")[1]), layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def up_to(value, multiple):
    return (value + multiple - 1) // multiple * multiple


def main():
    shapes = {name: (shape, DENSE) for name, shape in SHAPES.items()} | EXPERT_SHAPES
    names = sys.argv[2].split("+") if len(sys.argv) == 4 else []
    if not 1 <= len(names) <= 2 or sys.argv[1] not in shapes or any(name not in FORMATS for name in names):
        sys.exit(f"usage: random_gguf.py {{{','.join(shapes)}}} {{{','.join(FORMATS)}}}[+FORMAT] FILE")
    shape, kind = shapes[sys.argv[1]]
    head, at, runs = b"", 0, []
    listed = list(tensors(shape, kind))
    for tensor, sizes in listed:
        name = names[-1] if kept_wider(tensor, shape[0]) else names[0]
        what = "ones" if len(sizes) == 1 else "F32" if tensor.endswith(ROUTER) else name
        number, values, size = FORMATS["F32" if what == "ones" else what]
        if sizes[0] % values != 0:
            sys.exit(f"{tensor}: rows of {sizes[0]} do not divide into groups of {values}")
        length = math.prod(sizes) // values * size
        head += text(tensor) + struct.pack("<I", len(sizes)) + b"".join(struct.pack("<Q", d) for d in sizes)
        head += struct.pack("<IQ", number, at)
        runs.append((what, length))
        at += up_to(length, ALIGNMENT)
    pairs = b""
    entries = list(metadata(shape, kind))
    for key, value in entries:
        if isinstance(value, str):
            pairs += text(key) + struct.pack("<I", 8) + text(value)
        elif isinstance(value, float):
            pairs += text(key) + struct.pack("<If", 6, value)
        else:
            pairs += text(key) + struct.pack("<II", 4, value)
    front = struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(entries)) + pairs + head
    deviation = 1 / math.sqrt(shape[1])
    some = {what: some_groups(what, deviation) for what in {*names, "F32"}}
    some |= {"ones": struct.pack("<f", 1.0) * (1 << 18)}
    with open(sys.argv[3], "wb") as file:
        file.write(front + bytes(up_to(len(front), ALIGNMENT) - len(front)))
        for what, length in runs:
            data, left = some[what], length
            while left > 0:
                file.write(data[:left])
                left -= min(left, len(data))
            file.write(bytes(up_to(length, ALIGNMENT) - length))


if __name__ == "__main__":
    main()
