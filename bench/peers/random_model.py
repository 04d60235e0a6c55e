#!/usr/bin/env python3
"""Writes a Hugging Face directory with random weights of a known Llama shape, for timing several engines.

  bench/peers/random_model.py tinyllama-1.1b /tmp/tinyllama
  ./millrace convert /tmp/tinyllama /tmp/tinyllama-q4_0.gguf --type Q4_0

The numbers mean nothing; their spread is that of trained weights, so that no format meets values it would never see.
"""
import json
import math
import os
import random
import struct
import sys

# layers, width, ffn, heads, kv heads, head size, vocabulary, context, theta, tied
SHAPES = {
    "tiny": (2, 256, 768, 12, 4, 64, 512, 2048, 1e4, False),  # rows divisible by 256, so that every format fits
    "small": (4, 1024, 3072, 8, 2, 128, 4096, 4096, 1e6, False),  # wide enough for every way of cutting products
    "smollm2-135m": (30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, True),
    "tinyllama-1.1b": (22, 2048, 5632, 32, 4, 64, 32000, 2048, 1e4, False),
    "llama-3.2-1b": (16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, True),
    "llama-3.1-8b": (32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, False),
}


def tensors(shape):
    layers, width, ffn, heads, kv_heads, head, vocab, _, _, tied = shape
    yield "model.embed_tokens.weight", (vocab, width)
    for i in range(layers):
        base = f"model.layers.{i}."
        yield base + "input_layernorm.weight", (width,)
        yield base + "self_attn.q_proj.weight", (heads * head, width)
        yield base + "self_attn.k_proj.weight", (kv_heads * head, width)
        yield base + "self_attn.v_proj.weight", (kv_heads * head, width)
        yield base + "self_attn.o_proj.weight", (width, heads * head)
        yield base + "post_attention_layernorm.weight", (width,)
        yield base + "mlp.gate_proj.weight", (ffn, width)
        yield base + "mlp.up_proj.weight", (ffn, width)
        yield base + "mlp.down_proj.weight", (width, ffn)
    yield "model.norm.weight", (width,)
    if not tied:
        yield "lm_head.weight", (vocab, width)


def bf16_tables(deviation):
    """Two tables that turn a random byte into the low and high byte of a bfloat16 of that spread."""
    chooser = random.Random(1)
    values = sorted(chooser.gauss(0, deviation) for _ in range(256))
    bits = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]
    return bytes(b & 255 for b in bits), bytes(b >> 8 for b in bits)


def write(file, count, width):
    low, high = bf16_tables(1 / math.sqrt(width))
    source = random.Random(2)
    while count > 0:
        some = min(count, 1 << 22)
        noise = source.randbytes(some)
        out = bytearray(2 * some)
        out[0::2] = noise.translate(low)
        out[1::2] = noise.translate(high)
        file.write(out)
        count -= some


def write_model(directory, config, tensors):
    """config.json and model.safetensors; vectors are ones, matrices have the spread of trained ones."""
    tensors = list(tensors)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    header, offset = {}, 0
    for name, dims in tensors:
        size = 2 * math.prod(dims)
        header[name] = {"dtype": "BF16", "shape": list(dims), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(directory, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, dims in tensors:
            if len(dims) == 1:
                file.write(b"\x80\x3f" * dims[0])
            else:
                write(file, math.prod(dims), dims[-1])
    print(f"{directory}: {offset / 1e6:.0f} MB in {len(header)} tensors")


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(f"usage: random_model.py {{{'|'.join(SHAPES)}}} DIRECTORY")
    shape, directory = SHAPES[sys.argv[1]], sys.argv[2]
    layers, width, ffn, heads, kv_heads, head, vocab, context, theta, tied = shape
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": ffn,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head,
        "vocab_size": vocab, "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": theta,
        "hidden_act": "silu",
        "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
    }
    write_model(directory, config, tensors(shape))


if __name__ == "__main__":
    main()
