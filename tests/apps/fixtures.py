"""Small files for command_line.py, good and bad, written byte by byte so that they do not depend on the program."""
import json
import os
import struct


def gguf_string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(name="small"):
    """A GGUF v3 file with one float32 tensor of 2 x 32 and a vocabulary of three words."""
    pairs = [
        gguf_string("general.architecture") + struct.pack("<I", 8) + gguf_string("llama"),
        gguf_string("general.name") + struct.pack("<I", 8) + gguf_string(name),
        gguf_string("llama.context_length") + struct.pack("<II", 4, 64),
        gguf_string("llama.block_count") + struct.pack("<II", 4, 1),
        gguf_string("tokenizer.ggml.model") + struct.pack("<I", 8) + gguf_string("gpt2"),
        gguf_string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + b"".join(map(gguf_string, "abc")),
    ]
    tensor = gguf_string("token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 2, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(pairs)) + b"".join(pairs) + tensor
    return head + b"\0" * (-len(head) % 32) + struct.pack("<64f", *range(64))


def safetensors(values=6):
    header = json.dumps({"embed.weight": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + struct.pack(f"<{values}f", *range(values))


def fp8_safetensors():
    header = json.dumps({"a.weight": {"dtype": "F8_E4M3", "shape": [2, 3], "data_offsets": [0, 6]},
                         "a.weight_scale": {"dtype": "F32", "shape": [2, 1], "data_offsets": [6, 14]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + bytes(6) + struct.pack("<2f", 1, 2)


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 2,
          "num_attention_heads": 1, "vocab_size": 3, "max_position_embeddings": 64}
POINTER = ("version https://git-lfs.github.com/spec/v1\n"
           "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 4661211808\n")


def byte_tokenizer():
    """tokenizer.json of a byte-level BPE: three marks, every byte, and "he"."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    vocab = {"<pad>": 0, "<s>": 1, "</s>": 2}
    for byte in range(256):
        vocab[chr(byte) if byte in kept else chr(next(spare))] = len(vocab)
    vocab["he"] = len(vocab)
    marks = [{"id": i, "content": each, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, each in enumerate(["<pad>", "<s>", "</s>"])]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": marks, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                  "merges": [["h", "e"]]}})


def write_all(folder):
    os.makedirs(os.path.join(folder, "hf"))
    os.makedirs(os.path.join(folder, "empty_folder"))
    files = {
        "small.gguf": gguf(),
        "escape.gguf": gguf("a \x1b[31mred name"),
        "cut.gguf": gguf()[:-40],
        "empty.gguf": b"",
        "page.gguf": b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n",
        "words.txt": b"hello there\n",
        "hf/config.json": json.dumps(CONFIG).encode(),
        "hf/model.safetensors": safetensors(),
        "fp8.safetensors": fp8_safetensors(),
        "cut.safetensors": safetensors(4096)[:2000],
        "pointer.safetensors": POINTER.encode(),
        "pickle.bin": b"\x80\x02}q\x00(X\x05\x00\x00\x00modelq\x01",
        "zipped.bin": b"PK\x03\x04" + b"\0" * 22 + b"\x10\0\0\0archive/data.pkl",
    }
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
