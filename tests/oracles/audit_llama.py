"""A tiny llama under Hugging Face's names, which DTensor, FSDP2 and pipelines can cut, and batches for it."""

import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, HIDDEN, HEADS, KV_HEADS, FFN, SEQ, SAMPLES = 96, 64, 8, 4, 128, 16, 8
IGNORED = -100


def config(layers=2):
    return {
        "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "max_position_embeddings": 64, "tie_word_embeddings": False, "hidden_act": "silu",
    }  # fmt: skip


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def turned(x):
    tokens, width = x.shape[-2:]
    wide = torch.promote_types(x.dtype, torch.float32)
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=wide) / width)
    angles = torch.arange(tokens, dtype=wide)[:, None] * rates
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    other = torch.cat([-x[..., width // 2 :], x[..., : width // 2]], -1)
    return (x.to(wide) * cos + other.to(wide) * sin).to(x.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = HIDDEN // HEADS
        self.q_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * self.width, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * self.width, bias=False)
        self.o_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x):
        parts = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        rows, tokens = parts[0].shape[:2]  # heads of a tensor rank are its own
        q, k, v = (part.view(rows, tokens, -1, self.width).transpose(1, 2) for part in parts)
        out = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(rows, tokens, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, FFN, bias=False)
        self.up_proj = nn.Linear(HIDDEN, FFN, bias=False)
        self.down_proj = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), Mlp()
        self.input_layernorm, self.post_attention_layernorm = Norm(HIDDEN), Norm(HIDDEN)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        # By number, so that a stage without the first ones keeps its names.
        self.layers = nn.ModuleDict({str(i): Layer() for i in range(layers)})
        self.norm = Norm(HIDDEN)


class Llama(nn.Module):
    def __init__(self, layers=2, seed=0):
        super().__init__()
        self.model = Body(layers)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(1 + 0.1 * drawn if parameter.ndim == 1 else drawn / math.sqrt(parameter.shape[1]))

    def forward(self, x):
        if self.model.embed_tokens is not None:
            x = self.model.embed_tokens(x)
        for layer in self.model.layers.values():
            x = layer(x)
        if self.model.norm is not None:
            x = self.model.norm(x)
        return x if self.lm_head is None else self.lm_head(x)


def batch(seed=1, even=False, samples=SAMPLES):
    """Tokens, and labels that follow them; samples have very different counts of labels that count."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (samples, SEQ + 1), generator=generator)
    labels = ids[:, 1:].clone()
    for i in range(0 if even else samples):
        labels[i, : (5 * i) % (SEQ - 1)] = IGNORED
    return ids[:, :-1].contiguous(), labels


def loss_sum(logits, labels):
    wide = torch.promote_types(logits.dtype, torch.float32)
    return F.cross_entropy(logits.flatten(0, 1).to(wide), labels.flatten(), ignore_index=IGNORED, reduction="sum")
