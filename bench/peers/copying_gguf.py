#!/usr/bin/env python3
"""Writes a GGUF file of TinyLlama 1.1B's shape in Q8_0 that copies its prompt with edits: copying_gguf.py FILE.

For timing guesses from text (`--speculate ngram`) in several engines on the same answers: random weights say nothing
that a prompt foretells. Two layers are written by hand. In the first, attention finds the token before each; in the
second, what followed the present token when it was there before; the head says that token, or the other spelling of
one in EVERY. The other layers are random and all but silent, so that they take their time and change nothing.
`editing.py` has the prompts.

Numbers of the stream: 0 to 255 who the token is (signs, by the token), 256 a constant, 512 to 767 who the one before it
was, 1024 to 1279 who comes next.
"""
import math
import random
import struct
import sys

LAYERS, WIDTH, FFN, HEADS, KV_HEADS, HEAD, VOCAB, CONTEXT = 22, 2048, 5632, 32, 4, 64, 32000, 2048
THETA = 1e12  # so that most of a head turns slowly and can compare tokens far apart
TURNING = 9   # pairs of a head that turn fast enough to tell the token before
FIRST, EVERY = 300, 12  # tokens from FIRST on are words; one in EVERY of them has another spelling, SECOND further on
SECOND = 15000
PART, CONSTANT, SELF, BEFORE, NEXT = 256, 8.0, 0, 512, 1024
BLOCK, ALIGNMENT, Q8_0, F32 = 32, 32, 8, 0


def spelling(token):
    """The token that `token` is another spelling of; itself if it is none."""
    plain = token - SECOND
    return plain if plain >= FIRST and plain < SECOND and plain % EVERY == 0 else token


def signs(token):
    """256 codes of 127 or -127, told by the token."""
    return random.Random(spelling(token)).randbytes(PART).translate(bytes(127 if b < 128 else 129 for b in range(256)))


def half(value):
    return struct.pack("<e", value)


def row(inputs, entries):
    """A row of Q8_0 with these numbers {input: value} and zeros."""
    blocks = {}
    for at, value in entries.items():
        if value == 0:
            continue
        blocks.setdefault(at // BLOCK, {})[at % BLOCK] = value
    out = bytearray(inputs // BLOCK * 34)
    for number, values in blocks.items():
        scale = struct.unpack("<e", half(max(abs(v) for v in values.values()) / 127))[0]
        out[number * 34:number * 34 + 2] = half(scale)
        for at, value in values.items():
            out[number * 34 + 2 + at] = max(-127, min(127, round(value / scale))) & 255
    return bytes(out)


def coded(inputs, at, codes, scale):
    """A row of Q8_0 with these codes from input `at` on."""
    out = bytearray(inputs // BLOCK * 34)
    for i in range(0, len(codes), BLOCK):
        place = (at + i) // BLOCK * 34
        out[place:place + 34] = half(scale) + codes[i:i + BLOCK]
    return out


def noise(rows, inputs, deviation):
    """Random rows; a megabyte of them is made and repeated."""
    source = random.Random(rows * inputs)
    some = b"".join(half(deviation / 73) + source.randbytes(32) for _ in range(32768))
    left = rows * inputs // BLOCK * 34
    while left > 0:
        yield some[:left]
        left -= min(left, len(some))


def embeddings():
    for token in range(VOCAB):
        out = coded(WIDTH, SELF, signs(token), 1 / 127)
        place = PART // BLOCK * 34
        out[place:place + 3] = half(CONSTANT / 127) + bytes((127,))
        yield out


def output():
    for token in range(VOCAB):
        edited = FIRST <= token < SECOND and token % EVERY == 0
        yield coded(WIDTH, NEXT, signs(token), (0.2 if edited else 0.3) / 127)


def heads(count, make):
    """Rows of a matrix of heads of which every group's first does something."""
    for head in range(count):
        for at in range(HEAD):
            yield make(head * KV_HEADS // count, at) if head % (count // KV_HEADS) == 0 else row(WIDTH, {})


def turned(at, phase):
    """Number `at` of a head that looks at one distance: pair by pair a direction, by the constant."""
    pair = at // 2
    if pair >= TURNING:
        return row(WIDTH, {})
    angle = -phase * THETA ** (-pair / (HEAD // 2))
    return row(WIDTH, {PART: math.cos(angle) if at % 2 == 0 else math.sin(angle)})


def compared(group, at, part):
    """Number `at` of a head that compares who tokens are: a random sum over their signs."""
    if at < 2 * TURNING:
        return row(WIDTH, {})
    source = random.Random(1000 * group + at)
    return row(WIDTH, {part + i: source.choice((-0.15, 0.15)) for i in range(PART)})


def brought(scale, to):
    """The matrix behind attention: what the first heads of groups brought, to numbers `to` and on of the stream."""
    for out in range(WIDTH):
        at = out - to
        if 0 <= at < PART:
            yield row(WIDTH, {at // HEAD * (HEADS // KV_HEADS) * HEAD + at % HEAD: scale})
        else:
            yield row(WIDTH, {})


def layer(number):
    """Name, inputs, rows and bytes of a layer's matrices."""
    usual, silent = 1 / math.sqrt(WIDTH), 2e-4
    kv = KV_HEADS * HEAD
    # What a norm makes of a sign: the stream has 256 of them and the constant at first, 512 and it later.
    sign = [1 / math.sqrt((k * PART + CONSTANT ** 2) / WIDTH) for k in (1, 2)]
    if number == 0:
        yield "attn_q", WIDTH, WIDTH, heads(HEADS, lambda _, at: turned(at, 1))
        yield "attn_k", WIDTH, kv, heads(KV_HEADS, lambda _, at: turned(at, 0))
    elif number == 1:
        yield "attn_q", WIDTH, WIDTH, heads(HEADS, lambda group, at: compared(group, at, SELF))
        yield "attn_k", WIDTH, kv, heads(KV_HEADS, lambda group, at: compared(group, at, BEFORE))
    else:
        yield "attn_q", WIDTH, WIDTH, noise(WIDTH, WIDTH, usual)
        yield "attn_k", WIDTH, kv, noise(kv, WIDTH, usual)
    if number < 2:
        yield "attn_v", WIDTH, kv, heads(KV_HEADS, lambda group, at: row(WIDTH, {SELF + group * HEAD + at: 1.0}))
        yield "attn_output", WIDTH, WIDTH, brought(1 / sign[number], (BEFORE, NEXT)[number])
    else:
        yield "attn_v", WIDTH, kv, noise(kv, WIDTH, usual)
        yield "attn_output", WIDTH, WIDTH, noise(WIDTH, WIDTH, silent)
    yield "ffn_gate", WIDTH, FFN, noise(FFN, WIDTH, usual)
    yield "ffn_up", WIDTH, FFN, noise(FFN, WIDTH, usual)
    yield "ffn_down", FFN, WIDTH, noise(WIDTH, FFN, silent)


def tensors():
    """Name, sizes and bytes; a vector has one size and ones."""
    yield "token_embd.weight", (WIDTH, VOCAB), embeddings()
    for i in range(LAYERS):
        yield f"blk.{i}.attn_norm.weight", (WIDTH,), None
        yield f"blk.{i}.ffn_norm.weight", (WIDTH,), None
        for name, inputs, rows, data in layer(i):
            yield f"blk.{i}.{name}.weight", (inputs, rows), data
    yield "output_norm.weight", (WIDTH,), None
    yield "output.weight", (WIDTH, VOCAB), output()


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def metadata():
    def number(key, value):
        return text(key) + struct.pack("<II", 4, value)

    def real(key, value):
        return text(key) + struct.pack("<If", 6, value)

    def words(key, value):
        return text(key) + struct.pack("<I", 8) + text(value)

    def many(key, kind, values):
        return text(key) + struct.pack("<IIQ", 9, kind, len(values)) + b"".join(values)

    yield words("general.architecture", "llama")
    for key, value in (("context_length", CONTEXT), ("embedding_length", WIDTH), ("block_count", LAYERS),
                       ("feed_forward_length", FFN), ("attention.head_count", HEADS),
                       ("attention.head_count_kv", KV_HEADS), ("rope.dimension_count", HEAD), ("vocab_size", VOCAB)):
        yield number(f"llama.{key}", value)
    yield real("llama.rope.freq_base", THETA)
    yield real("llama.attention.layer_norm_rms_epsilon", 1e-6)
    # Words "_wN", the three usual special tokens and one for every byte.
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    names += [f"\u2581w{i}" for i in range(len(names), VOCAB)]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259)
    yield words("tokenizer.ggml.model", "llama")
    yield many("tokenizer.ggml.tokens", 8, [text(name) for name in names])
    yield many("tokenizer.ggml.scores", 6, [struct.pack("<f", -i) for i in range(VOCAB)])
    yield many("tokenizer.ggml.token_type", 5, [struct.pack("<i", kind) for kind in kinds])
    yield number("tokenizer.ggml.bos_token_id", 1)
    yield number("tokenizer.ggml.eos_token_id", 2)


def up_to(value):
    return (value + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: copying_gguf.py FILE")
    listed, head, at = list(tensors()), b"", 0
    for name, sizes, data in listed:
        length = math.prod(sizes) // BLOCK * 34 if data else 4 * sizes[0]
        head += text(name) + struct.pack("<I", len(sizes)) + b"".join(struct.pack("<Q", size) for size in sizes)
        head += struct.pack("<IQ", Q8_0 if data else F32, at)
        at += up_to(length)
    pairs = list(metadata())
    front = struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(pairs)) + b"".join(pairs) + head
    with open(sys.argv[1], "wb") as file:
        file.write(front + bytes(up_to(len(front)) - len(front)))
        for _, sizes, data in listed:
            for piece in data or [struct.pack("<f", 1.0) * sizes[0]]:
                file.write(piece)
            file.write(bytes(-file.tell() % ALIGNMENT))


if __name__ == "__main__":
    main()
