#!/usr/bin/env python3
"""Tokens a second of `lockstep generate` beside transformers' generate(), both with a cache and on one thread.

    PYTHONPATH=.deps/python:.deps/torch-2.13.0 bench/generate.py LOCKSTEP [--rounds 5] [--tokens 128] [--sizes 1 45] [--mkl SETTING]

Random llamas of about so many million parameters, greedy, 16 tokens of prompt. Each round asks one after the other;
ratios are taken inside a round. A rate leaves out the prompt and, of `lockstep`, the loading. --mkl sets MKL_CBWR
for `lockstep`, whose own is AUTO,STRICT.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
import transformers as t

SHAPES = {1: (128, 384, 4), 45: (768, 2048, 6), 120: (1024, 2816, 9)}  # hidden, ffn, layers
PROMPT = list(range(3, 19))


def model(millions, dtype):
    hidden, ffn, layers = SHAPES[millions]
    made = t.LlamaForCausalLM(t.LlamaConfig(
        vocab_size=2048, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 64, head_dim=64, max_position_embeddings=1024, tie_word_embeddings=False,
        eos_token_id=None))  # fmt: skip
    return made.to(dtype).eval()


@torch.no_grad()
def theirs(llama, tokens):
    """Tokens a second behind the first, and the tokens."""
    prompt = torch.tensor([PROMPT])
    how = {"attention_mask": torch.ones_like(prompt), "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    begun = time.perf_counter()
    llama.generate(prompt, max_new_tokens=1, **how)
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    made = llama.generate(prompt, max_new_tokens=tokens, **how)
    return (tokens - 1) / (time.perf_counter() - begun - first), made[0, len(PROMPT) :].tolist()


def ours(lockstep, folder, tokens, environment):
    ran = subprocess.run([lockstep, "generate", folder, "--json", "--temperature", "0", "--max-tokens", str(tokens),
                          "--prompt-ids", ",".join(map(str, PROMPT))], check=True, stdout=subprocess.PIPE, env=environment)  # fmt: skip
    answer = json.loads(ran.stdout)["answers"][0]
    return (tokens - 1) / answer["seconds"], answer["ids"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--sizes", type=int, nargs="+", choices=list(SHAPES), default=[1, 45])
    parser.add_argument("--types", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--mkl")
    options = parser.parse_args()
    environment = dict(os.environ, **({"MKL_CBWR": options.mkl} if options.mkl else {}))
    torch.manual_seed(8)
    torch.set_num_threads(1)
    t.logging.set_verbosity_error()
    t.logging.disable_progress_bar()
    for millions in options.sizes:
        for name in options.types:
            llama = model(millions, getattr(torch, name))
            with tempfile.TemporaryDirectory() as folder:
                llama.save_pretrained(folder)
                rounds = [(ours(options.lockstep, folder, options.tokens, environment), theirs(llama, options.tokens))
                          for _ in range(options.rounds)]  # fmt: skip
            rates = [statistics.median(one[side][0] for one in rounds) for side in (0, 1)]
            ratios = sorted(a[0] / b[0] for a, b in rounds)
            same = "" if rounds[0][0][1] == rounds[0][1][1] else ", other tokens"
            parameters = sum(one.numel() for one in llama.parameters()) / 1e6
            print(f"{parameters:6.1f}M {name:9} lockstep {rates[0]:7.1f}, transformers {rates[1]:7.1f} tokens/s: "
                  f"{statistics.median(ratios):.2f} x [{ratios[0]:.2f}, {ratios[-1]:.2f}]{same}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
