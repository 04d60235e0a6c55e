#!/usr/bin/env python3
"""Writes a Hugging Face directory with random weights of a model with states, for timing several engines.

  bench/peers/random_states.py mamba-130m /tmp/mamba
  ./millrace convert /tmp/mamba /tmp/mamba-q8_0.gguf --type Q8_0

Shapes are those of published models.
"""
import sys

from random_model import write_model


def mamba():
    layers, width, inner, state, rank, vocab = 24, 768, 1536, 16, 48, 50280
    config = {"model_type": "mamba", "hidden_size": width, "intermediate_size": inner, "state_size": state,
              "num_hidden_layers": layers,
              "time_step_rank": rank, "vocab_size": vocab, "conv_kernel": 4, "tie_word_embeddings": True}

    def tensors():
        yield "backbone.embeddings.weight", (vocab, width)
        for i in range(layers):
            at = f"backbone.layers.{i}."
            yield at + "norm.weight", (width,)
            yield at + "mixer.in_proj.weight", (2 * inner, width)
            yield at + "mixer.conv1d.weight", (inner, 1, 4)
            yield at + "mixer.conv1d.bias", (inner,)
            yield at + "mixer.x_proj.weight", (rank + 2 * state, inner)
            yield at + "mixer.dt_proj.weight", (inner, rank)
            yield at + "mixer.dt_proj.bias", (inner,)
            yield at + "mixer.A_log", (inner, state)
            yield at + "mixer.D", (inner,)
            yield at + "mixer.out_proj.weight", (width, inner)
        yield "backbone.norm_f.weight", (width,)
    return config, tensors()


def mamba2():
    layers, width, heads, dim, state, vocab = 24, 768, 24, 64, 128, 50288
    inner = heads * dim
    config = {"model_type": "mamba2", "hidden_size": width, "num_heads": heads, "head_dim": dim, "state_size": state,
              "n_groups": 1,
              "num_hidden_layers": layers, "vocab_size": vocab, "conv_kernel": 4, "tie_word_embeddings": True}

    def tensors():
        yield "backbone.embeddings.weight", (vocab, width)
        for i in range(layers):
            at = f"backbone.layers.{i}."
            yield at + "norm.weight", (width,)
            yield from second_kind(at + "mixer.", width, inner, state, heads)
            yield at + "mixer.norm.weight", (inner,)
        yield "backbone.norm_f.weight", (width,)
    return config, tensors()


def second_kind(at, width, inner, state, heads):
    yield at + "in_proj.weight", (2 * inner + 2 * state + heads, width)
    yield at + "conv1d.weight", (inner + 2 * state, 1, 4)
    yield at + "conv1d.bias", (inner + 2 * state,)
    for name in ("dt_bias", "A_log", "D"):
        yield at + name, (heads,)
    yield at + "out_proj.weight", (width, inner)


def attention(at, width, heads, kv_heads, dim, times=1):
    yield at + "q_proj.weight", (times * heads * dim, width)
    yield at + "k_proj.weight", (kv_heads * dim, width)
    yield at + "v_proj.weight", (kv_heads * dim, width)


def falcon_h1():
    layers, width, ffn, heads, kv_heads, dim, state, inner, vocab = 36, 1024, 2048, 8, 2, 64, 128, 1536, 32784
    config = {"model_type": "falcon_h1", "hidden_size": width, "intermediate_size": ffn, "num_hidden_layers": layers,
              "vocab_size": vocab, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": dim,
              "mamba_d_ssm": inner, "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": state,
              "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_rms_norm": False, "mamba_norm_before_gate": False,
              "max_position_embeddings": 16384, "rope_theta": 1e11, "tie_word_embeddings": False}

    def tensors():
        yield "model.embed_tokens.weight", (vocab, width)
        for i in range(layers):
            at = f"model.layers.{i}."
            yield at + "input_layernorm.weight", (width,)
            yield from second_kind(at + "mamba.", width, inner, state, 24)
            yield from attention(at + "self_attn.", width, heads, kv_heads, dim)
            yield at + "self_attn.o_proj.weight", (width, heads * dim)
            yield at + "pre_ff_layernorm.weight", (width,)
            yield at + "feed_forward.gate_proj.weight", (ffn, width)
            yield at + "feed_forward.up_proj.weight", (ffn, width)
            yield at + "feed_forward.down_proj.weight", (width, ffn)
        yield "model.final_layernorm.weight", (width,)
        yield "lm_head.weight", (vocab, width)
    return config, tensors()


def lfm2():
    layers, width, ffn, heads, kv_heads, dim, vocab = 16, 1024, 4608, 16, 8, 64, 65536
    full = (2, 5, 8, 10, 12, 14)
    config = {"model_type": "lfm2", "hidden_size": width, "intermediate_size": ffn, "num_hidden_layers": layers,
              "vocab_size": vocab, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "conv_L_cache": 3,
              "block_auto_adjust_ff_dim": False,
              "layer_types": ["full_attention" if i in full else "conv" for i in range(layers)],
              "max_position_embeddings": 32768,
              "rope_theta": 1e6, "tie_word_embeddings": True}

    def tensors():
        yield "model.embed_tokens.weight", (vocab, width)
        for i in range(layers):
            at = f"model.layers.{i}."
            yield at + "operator_norm.weight", (width,)
            if i in full:
                yield from attention(at + "self_attn.", width, heads, kv_heads, dim)
                yield at + "self_attn.out_proj.weight", (width, heads * dim)
                yield at + "self_attn.q_layernorm.weight", (dim,)
                yield at + "self_attn.k_layernorm.weight", (dim,)
            else:
                yield at + "conv.in_proj.weight", (3 * width, width)
                yield at + "conv.conv.weight", (width, 1, 3)
                yield at + "conv.out_proj.weight", (width, width)
            yield at + "ffn_norm.weight", (width,)
            yield at + "feed_forward.w1.weight", (ffn, width)
            yield at + "feed_forward.w3.weight", (ffn, width)
            yield at + "feed_forward.w2.weight", (width, ffn)
        yield "model.embedding_norm.weight", (width,)
    return config, tensors()


def qwen35():
    layers, width, ffn, heads, kv_heads, dim, vocab = 24, 1024, 3584, 8, 2, 256, 65536
    k_heads, v_heads, state = 16, 32, 128
    keys, values = k_heads * state, v_heads * state
    config = {"model_type": "qwen3_5_text", "hidden_size": width, "intermediate_size": ffn,
              "num_hidden_layers": layers, "vocab_size": vocab, "num_attention_heads": heads,
              "num_key_value_heads": kv_heads, "head_dim": dim, "linear_num_key_heads": k_heads,
              "linear_num_value_heads": v_heads, "linear_key_head_dim": state, "linear_value_head_dim": state,
              "max_position_embeddings": 32768, "rope_theta": 1e7, "tie_word_embeddings": True}

    def tensors():
        yield "model.embed_tokens.weight", (vocab, width)
        for i in range(layers):
            at = f"model.layers.{i}."
            yield at + "input_layernorm.weight", (width,)
            if (i + 1) % 4 == 0:
                yield from attention(at + "self_attn.", width, heads, kv_heads, dim, 2)  # queries and their gates
                yield at + "self_attn.o_proj.weight", (width, heads * dim)
                yield at + "self_attn.q_norm.weight", (dim,)
                yield at + "self_attn.k_norm.weight", (dim,)
            else:
                own = at + "linear_attn."
                yield own + "in_proj_qkv.weight", (2 * keys + values, width)
                yield own + "in_proj_z.weight", (values, width)
                yield own + "in_proj_b.weight", (v_heads, width)
                yield own + "in_proj_a.weight", (v_heads, width)
                yield own + "conv1d.weight", (2 * keys + values, 1, 4)
                yield own + "dt_bias", (v_heads,)
                yield own + "A_log", (v_heads,)
                yield own + "norm.weight", (state,)
                yield own + "out_proj.weight", (width, values)
            yield at + "post_attention_layernorm.weight", (width,)
            yield at + "mlp.gate_proj.weight", (ffn, width)
            yield at + "mlp.up_proj.weight", (ffn, width)
            yield at + "mlp.down_proj.weight", (width, ffn)
        yield "model.norm.weight", (width,)
    return config, tensors()


SHAPES = {"mamba-130m": mamba, "mamba2-130m": mamba2, "falcon-h1-0.5b": falcon_h1, "lfm2-350m": lfm2,
          "qwen3.5-1b": qwen35}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(f"usage: random_states.py {{{'|'.join(SHAPES)}}} DIRECTORY")
    config, tensors = SHAPES[sys.argv[1]]()
    write_model(sys.argv[2], config | {"torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}, tensors)


if __name__ == "__main__":
    main()
