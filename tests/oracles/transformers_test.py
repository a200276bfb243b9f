#!/usr/bin/env python3
"""transformers and lockstep make the same logits of the same weights: of a directory that transformers wrote, and of
one that `lockstep convert` wrote after a step of training on a tensor rank for every head. Tiny random models of every
kind, in f32."""

import pathlib
import struct
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers as t

VOCAB, BATCH, SEQ, POSITIONS = 61, 2, 24, 32
BOUND = 1e-5  # f32 of both is that far from f64 when logits reach 6; here they reach 3
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
STRETCHED = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 16}  # fmt: skip


def models():
    """(name, model, keywords of save_pretrained)."""
    sizes = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=8, max_position_embeddings=POSITIONS, rms_norm_eps=1e-5)  # fmt: skip
    gpt2 = dict(vocab_size=VOCAB, n_positions=POSITIONS, n_embd=32, n_layer=2, n_head=4, n_inner=80)
    wide = {**sizes, "head_dim": 12, "tie_word_embeddings": False}
    yield "gpt2", t.GPT2LMHeadModel(t.GPT2Config(**gpt2)), {}
    yield "llama", t.LlamaForCausalLM(t.LlamaConfig(**sizes, rope_parameters=ROPE)), {}
    yield "llama3", t.LlamaForCausalLM(t.LlamaConfig(**sizes, rope_parameters=STRETCHED, tie_word_embeddings=True)), {}
    yield "mistral", t.MistralForCausalLM(t.MistralConfig(**wide, rope_parameters=ROPE, sliding_window=None)), {}
    yield "window", t.MistralForCausalLM(t.MistralConfig(**wide, rope_parameters=ROPE, sliding_window=7)), {}
    yield "gemma2", t.Gemma2ForCausalLM(t.Gemma2Config(
        **wide | {"tie_word_embeddings": True}, rope_parameters=ROPE, sliding_window=7, query_pre_attn_scalar=9,
        attn_logit_softcapping=1.5, final_logit_softcapping=3.0, attn_implementation="eager")), {}  # fmt: skip
    yield "qwen2", t.Qwen2ForCausalLM(t.Qwen2Config(**sizes, rope_parameters=ROPE, tie_word_embeddings=True)), {}
    yield "olmo2", t.Olmo2ForCausalLM(t.Olmo2Config(**sizes, rope_parameters=ROPE)), {}
    # Two key-value heads for eight tensor ranks, and vocabularies of which one is not cut evenly.
    eight = {**wide, "hidden_size": 16, "head_dim": 4, "num_attention_heads": 8}
    for vocab, tied in ((50257, True), (128256, False)):
        yield str(vocab), t.LlamaForCausalLM(t.LlamaConfig(
            **eight | {"vocab_size": vocab, "tie_word_embeddings": tied}, rope_parameters=ROPE)), {}  # fmt: skip
    expert = dict(num_experts_per_tok=2)
    yield "mixtral", t.MixtralForCausalLM(t.MixtralConfig(
        **wide | expert, rope_parameters=ROPE, num_local_experts=5, sliding_window=None)), {}  # fmt: skip
    narrow = {key: value for key, value in wide.items() if key != "head_dim"}
    yield "qwen2_moe", t.Qwen2MoeForCausalLM(t.Qwen2MoeConfig(
        **narrow | expert, rope_parameters=ROPE, num_experts=5, moe_intermediate_size=16,
        shared_expert_intermediate_size=24, norm_topk_prob=True)), {}  # fmt: skip
    yield "qwen3_moe", t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(
        **wide | expert, rope_parameters=ROPE, num_experts=5, moe_intermediate_size=16, norm_topk_prob=True)), {}  # fmt: skip
    yield "olmoe", t.OlmoeForCausalLM(t.OlmoeConfig(**narrow | expert, rope_parameters=ROPE, num_experts=5)), {}
    yield "dots1", t.Dots1ForCausalLM(t.Dots1Config(
        **wide | expert, rope_parameters=ROPE, n_routed_experts=6, moe_intermediate_size=16, n_shared_experts=1,
        norm_topk_prob=True, n_group=3, topk_group=2, routed_scaling_factor=2.5, first_k_dense_replace=1,
        sliding_window=None)), {}  # fmt: skip
    yield "qwen3", t.Qwen3ForCausalLM(t.Qwen3Config(**wide, rope_parameters=ROPE)), {"max_shard_size": "20KB"}


def randomised(model):
    """Weights that make logits of a useful size; norms and biases too, which a fresh model leaves at 1 and 0."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, 0.15)
            else:
                parameter.normal_(0.0, 0.1).add_(0.0 if name.endswith("bias") else 1.0)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0.0, 0.1)
    return model.float().eval()


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens).logits


class Ours:
    def __init__(self, lockstep, worker):
        self.lockstep, self.worker = lockstep, worker

    def convert(self, source, made, *words):
        subprocess.run([self.lockstep, "convert", source, made, *words], check=True, stdout=subprocess.DEVNULL)

    def logits(self, checkpoint, tokens):
        raw = struct.pack(f"{tokens.numel()}q", *tokens.reshape(-1).tolist())
        words = [self.worker, "logits", checkpoint, str(tokens.shape[0]), str(tokens.shape[1])]
        made = subprocess.run(words, check=True, input=raw, stdout=subprocess.PIPE).stdout
        return torch.frombuffer(bytearray(made), dtype=torch.float32).reshape(*tokens.shape, -1)

    def train(self, checkpoint, folder, tp):
        subprocess.run([self.worker, "train", checkpoint, folder, str(SEQ), str(tp)], check=True)


def difference(a, b):
    return (a.double() - b.double()).abs().max().item()


def loaded(folder, like):
    """With the attention of `like`: soft caps are in the eager one alone."""
    return t.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=like.config._attn_implementation)


def check(name, model, keywords, ours, folder):
    tokens = torch.randint(0, VOCAB, (BATCH, SEQ))
    theirs = logits(model, tokens)
    model.save_pretrained(folder / "theirs", **keywords)
    ours.convert(folder / "theirs", folder / "start")
    start = folder / "start/step-00000000"
    imported = difference(theirs, ours.logits(start, tokens))
    assert imported <= BOUND, f"{name}: logits differ by {imported} after import"

    ours.convert(start, folder / "back")
    back = loaded(folder / "back", model)
    assert type(back) is type(model), f"{name} came back as {type(back).__name__}"
    pairs = zip(back.state_dict().items(), model.state_dict().items(), strict=True)
    assert all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs), f"{name}: weights came back changed"
    assert torch.equal(logits(back, tokens), theirs), f"{name}: config came back changed"

    ours.train(start, folder / "run", model.config.num_attention_heads)
    step = folder / "run/step-00000001"
    trained = ours.logits(step, tokens)
    moved = difference(trained, theirs)
    assert moved > 1000 * BOUND, f"{name}: a step of training moved logits by {moved} only"
    ours.convert(folder / "run", folder / "trained", "--dtype", "f32", "--shard", "16kB")
    exported = difference(logits(loaded(folder / "trained", model), tokens), trained)
    assert exported <= BOUND, f"{name}: logits differ by {exported} after training and export"

    ours.convert(step, folder / "narrow", "--dtype", "bf16")
    wide = {}
    for file in (folder / "trained").glob("*.safetensors"):
        wide.update(safetensors.torch.load_file(file))
    narrow = safetensors.torch.load_file(folder / "narrow/model.safetensors")
    assert narrow.keys() == wide.keys()
    for key, value in narrow.items():
        kept = key.endswith("e_score_correction_bias")  # in f32, as transformers keeps it
        due = wide[key] if kept else wide[key].to(torch.bfloat16)
        assert value.dtype == due.dtype, f"{name}: {key} is {value.dtype}"
        assert torch.equal(value, due), f"{name}: {key} is rounded otherwise than by torch"
    size = theirs.abs().max().item()
    print(f"{name:8} import {imported:.1e}  after a step (moved {moved:.1e}) {exported:.1e}  logits up to {size:.1f}")


if __name__ == "__main__":
    torch.manual_seed(8)
    t.logging.set_verbosity_error()
    t.logging.disable_progress_bar()
    for case in models():
        with tempfile.TemporaryDirectory() as scratch:
            check(case[0], randomised(case[1]), case[2], Ours(*sys.argv[1:3]), pathlib.Path(scratch))
