#!/usr/bin/env python3
"""Writes tests/golden/nn/llama_logits.json: what Hugging Face's llama makes of a tiny model whose weights are a formula.

Needs torch and transformers; run once by hand. The C++ test computes the weights again and reads only the file.

    value(p, i) = scale (u - 1/2), u = hash(p, i) / 2^32: element i, row-major, of parameter p
    p counts embedding, then per layer attn norm, q, k, v, o, mlp norm, gate, up, down, then final norm, head
    scale = 3.4 / sqrt(columns) for matrices; gains are 1 + value with scale 0.6
    tokens are hash(1000, i) mod vocab, labels the next token in the flattened list, the last one's label 0
"""

import json
import math
import pathlib

import torch
import transformers

VOCAB, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS, BATCH, SEQ = 61, 32, 4, 2, 8, 48, 2, 2, 40
SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
MASK = (1 << 32) - 1


def hashed(p, i):
    x = (i * 2654435761 + p * 97531 + 12345) & MASK
    for factor in (0x45D9F3B, 0x119DE1F3):
        x = ((x ^ (x >> 16)) * factor) & MASK
    return x ^ (x >> 16)


def values(p, shape):
    count = math.prod(shape)
    scale = 3.4 / math.sqrt(shape[-1]) if len(shape) == 2 else 0.6
    flat = [scale * (hashed(p, i) / 2.0**32 - 0.5) + (0.0 if len(shape) == 2 else 1.0) for i in range(count)]
    return torch.tensor(flat, dtype=torch.float64).reshape(shape)


def names():
    yield "model.embed_tokens.weight"
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        yield base + "input_layernorm.weight"
        yield from (base + f"self_attn.{part}_proj.weight" for part in "qkvo")
        yield base + "post_attention_layernorm.weight"
        yield from (base + f"mlp.{part}_proj.weight" for part in ("gate", "up", "down"))
    yield "model.norm.weight"
    yield "lm_head.weight"


def main():
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, max_position_embeddings=512, rms_norm_eps=1e-5,
        tie_word_embeddings=False, attn_implementation="eager",
        rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, **SCALING},
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).double().eval()
    parameters = dict(model.named_parameters())
    order = list(names())
    assert sorted(order) == sorted(parameters)
    with torch.no_grad():
        for p, name in enumerate(order):
            parameters[name].copy_(values(p, tuple(parameters[name].shape)))
    tokens = torch.tensor([hashed(1000, i) % VOCAB for i in range(BATCH * SEQ)]).reshape(BATCH, SEQ)
    labels = torch.cat([tokens.reshape(-1)[1:], torch.tensor([0])])
    log_probs = model(tokens).logits.reshape(-1, VOCAB).log_softmax(-1)
    losses = -log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    losses.sum().backward()
    positions = [0, 39, 79]
    golden = {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "losses": [round(x, 7) for x in losses.tolist()],
        "positions": positions,
        "log_probs": [[round(x, 7) for x in log_probs[t].tolist()] for t in positions],
        "grad_norms": [round(parameters[name].grad.norm().item(), 6) for name in order],
    }
    root = pathlib.Path(__file__).resolve().parents[1]
    path = root / "golden/nn/llama_logits.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
