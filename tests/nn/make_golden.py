#!/usr/bin/env python3
"""Writes tests/golden/nn/<family>_logits.json: what Hugging Face makes of tiny models whose weights are a formula.

Needs torch and transformers; run once by hand. The C++ test computes the weights again and reads only the files.
Whatever transformers computes in f32 whatever the model's type, norms and angles, is made to be f64 here.

    value(p, i) = scale (u - 1/2), u = hash(p, i) / 2^32: element i, row-major, of parameter p
    p counts the parameters of embedding, layers and head in the order of lockstep/arch; weights are [out, in], and
    query, key and value are three parameters also where Hugging Face keeps one; a tied head is the embedding again
    scale = 3.4 / sqrt(columns) for matrices, 0.6 for vectors; gains are 1 + value
    gradients are given by their norms and by their sums with weights hash(2000, i) / 2^32 - 1/2
    tokens are hash(1000, i) mod vocab, labels the next token in the flattened list, the last one's label 0
"""

import json
import math
import pathlib

import torch
import transformers

VOCAB, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS, BATCH, SEQ = 61, 32, 4, 2, 8, 48, 2, 2, 40
BIAS = "gate.e_score_correction_bias"
MASK = (1 << 32) - 1
POSITIONS = [0, 39, 79]


def hashed(p, i):
    x = (i * 2654435761 + p * 97531 + 12345) & MASK
    for factor in (0x45D9F3B, 0x119DE1F3):
        x = ((x ^ (x >> 16)) * factor) & MASK
    return x ^ (x >> 16)


def values(p, name, shape):
    scale = 3.4 / math.sqrt(shape[-1]) if len(shape) >= 2 else 0.6
    base = 1.0 if len(shape) == 1 and not name.endswith("bias") else 0.0
    flat = [base + scale * (hashed(p, i) / 2.0**32 - 0.5) for i in range(math.prod(shape))]
    return torch.tensor(flat, dtype=torch.float64).reshape(shape)


def selection_bias(experts):
    return torch.tensor([0.0625 * (expert * 7 % 5 - 2) for expert in range(experts)])


def weighted_sum(tensor):
    weights = torch.tensor([hashed(2000, i) / 2.0**32 - 0.5 for i in range(tensor.numel())], dtype=torch.float64)
    return (tensor.reshape(-1) * weights).sum().item()


def whole(tensor):
    return tensor


def part_of_three(index):
    def view(tensor):
        size = tensor.shape[-1] // 3
        return tensor.narrow(-1, index * size, size).t() if tensor.dim() == 2 else tensor.narrow(-1, index * size, size)

    return view


def half(index):
    def view(tensor):
        size = tensor.shape[1] // 2
        return tensor.narrow(1, index * size, size)

    return view


def experts(base, bias):
    yield base + "gate.weight", whole
    if bias:
        yield base + BIAS, whole
    yield from ((base + "experts.gate_up_proj", half(part)) for part in (0, 1))
    yield base + "experts.down_proj", whole


def shared_experts(base):
    yield from ((base + f"shared_experts.{part}_proj.weight", whole) for part in ("gate", "up", "down"))


def shared_expert(base):
    yield from ((base + f"shared_expert.{part}_proj.weight", whole) for part in ("gate", "up", "down"))
    yield base + "shared_expert_gate.weight", whole


def llama_parameters(tied, bias=False, head_norms=False, before=True, after=False, mixture=False, shared=None):
    yield "model.embed_tokens.weight", whole
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        if before:
            yield base + "input_layernorm.weight", whole
        for part in "qkv":
            yield base + f"self_attn.{part}_proj.weight", whole
            if bias:
                yield base + f"self_attn.{part}_proj.bias", whole
        if head_norms:
            yield from ((base + f"self_attn.{part}_norm.weight", whole) for part in "qk")
        yield base + "self_attn.o_proj.weight", whole
        yield base + "post_attention_layernorm.weight", whole
        if before and after:
            yield base + "pre_feedforward_layernorm.weight", whole
        if mixture:
            yield from experts(base + "mlp.", bias=shared is shared_experts)
            if shared:
                yield from shared(base + "mlp.")
        else:
            yield from ((base + f"mlp.{part}_proj.weight", whole) for part in ("gate", "up", "down"))
        if after:
            yield base + "post_feedforward_layernorm.weight", whole
    yield "model.norm.weight", whole
    if not tied:
        yield "lm_head.weight", whole


def gpt2_parameters():
    def linear(name):  # a Conv1D: [in, out]
        yield name + ".weight", torch.t
        yield name + ".bias", whole

    def norm(name):
        yield from ((name + ending, whole) for ending in (".weight", ".bias"))

    yield from ((f"transformer.{table}.weight", whole) for table in ("wte", "wpe"))
    for layer in range(LAYERS):
        base = f"transformer.h.{layer}."
        yield from norm(base + "ln_1")
        for part in range(3):
            yield from ((base + "attn.c_attn" + ending, part_of_three(part)) for ending in (".weight", ".bias"))
        yield from linear(base + "attn.c_proj")
        yield from norm(base + "ln_2")
        yield from linear(base + "mlp.c_fc")
        yield from linear(base + "mlp.c_proj")
    yield from norm("transformer.ln_f")


def models():
    """{family: (model, its parameters in our order)}."""
    sizes = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
                 num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, rms_norm_eps=1e-5,
                 max_position_embeddings=512, tie_word_embeddings=False, attn_implementation="eager")  # fmt: skip
    stretched = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                 "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    t = transformers
    tied = {**sizes, "tie_word_embeddings": True, "rope_parameters": plain}
    yield "llama", t.LlamaForCausalLM(t.LlamaConfig(**sizes, rope_parameters=stretched)), llama_parameters(False)
    yield "mistral", t.MistralForCausalLM(t.MistralConfig(**sizes, rope_parameters=plain, sliding_window=SEQ // 2)), (
        llama_parameters(False)
    )
    yield "qwen2", t.Qwen2ForCausalLM(t.Qwen2Config(**tied)), llama_parameters(True, bias=True)
    yield "qwen3", t.Qwen3ForCausalLM(t.Qwen3Config(**{**sizes, "rms_norm_eps": 1e-6, "rope_parameters": plain})), (
        llama_parameters(False, head_norms=True)
    )
    yield "olmo2", t.Olmo2ForCausalLM(t.Olmo2Config(**sizes, rope_parameters=plain)), (
        llama_parameters(False, head_norms=True, before=False, after=True)
    )
    yield "gemma2", t.Gemma2ForCausalLM(t.Gemma2Config(
        **tied, hidden_activation="gelu_pytorch_tanh", sliding_window=SEQ // 2, query_pre_attn_scalar=12,
        attn_logit_softcapping=1.5, final_logit_softcapping=2.0,
    )), llama_parameters(True, after=True)  # fmt: skip
    mixed = {**sizes, "rope_parameters": plain, "intermediate_size": FFN // 2, "num_experts_per_tok": 2}
    yield "mixtral", t.MixtralForCausalLM(t.MixtralConfig(**mixed, num_local_experts=5, experts_implementation="eager")), (
        llama_parameters(False, mixture=True)
    )
    yield "olmoe", t.OlmoeForCausalLM(t.OlmoeConfig(**mixed, num_experts=5, experts_implementation="eager")), (
        llama_parameters(False, head_norms=True, mixture=True)
    )
    yield "qwen2_moe", t.Qwen2MoeForCausalLM(t.Qwen2MoeConfig(
        **mixed, num_experts=5, moe_intermediate_size=FFN // 2, shared_expert_intermediate_size=FFN,
        experts_implementation="eager",
    )), llama_parameters(False, bias=True, mixture=True, shared=shared_expert)  # fmt: skip
    yield "dots1", t.Dots1ForCausalLM(t.Dots1Config(
        **mixed, n_routed_experts=6, moe_intermediate_size=FFN // 2, n_shared_experts=2, norm_topk_prob=True, n_group=3,
        topk_group=2, routed_scaling_factor=2.5, sliding_window=None, experts_implementation="eager",
    )), llama_parameters(False, head_norms=True, mixture=True, shared=shared_experts)  # fmt: skip
    yield "gpt2", t.GPT2LMHeadModel(t.GPT2Config(
        vocab_size=VOCAB, n_positions=SEQ + 3, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_inner=FFN,
        layer_norm_epsilon=1e-5, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager",
    )), gpt2_parameters()  # fmt: skip


def golden(model, order):
    model = model.double().eval()
    parameters = dict(model.named_parameters())
    order = list(order)
    biases = {name: bias for name, bias in model.named_buffers() if name.endswith(BIAS)}
    parameters |= biases
    assert {name for name, _ in order} == set(parameters), {name for name, _ in order} ^ set(parameters)
    with torch.no_grad():
        for p, (name, view) in enumerate(order):
            into = view(parameters[name])
            into.copy_(selection_bias(len(into)) if name in biases else values(p, name, tuple(into.shape)))
    tokens = torch.tensor([hashed(1000, i) % VOCAB for i in range(BATCH * SEQ)]).reshape(BATCH, SEQ)
    labels = torch.cat([tokens.reshape(-1)[1:], torch.tensor([0])])
    log_probs = model(tokens).logits.reshape(-1, VOCAB).log_softmax(-1)
    losses = -log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    losses.sum().backward()
    for bias in biases.values():  # a number of its own, and no gradient
        bias.grad = torch.zeros_like(bias)
    return {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "losses": losses.tolist(),
        "positions": POSITIONS,
        "log_probs": [log_probs[t].tolist() for t in POSITIONS],
        "grad_norms": [view(parameters[name].grad).norm().item() for name, view in order],
        "grad_sums": [weighted_sum(view(parameters[name].grad)) for name, view in order],
    }


def main():
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    folder = pathlib.Path(__file__).resolve().parents[1] / "golden/nn"
    for family, model, order in models():
        (folder / f"{family}_logits.json").write_text(json.dumps(golden(model, order), indent=1) + "\n")


if __name__ == "__main__":
    main()
