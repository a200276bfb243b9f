#!/usr/bin/env python3
"""`lockstep generate` and transformers make the same tokens of the same weights, the likeliest ones and drawn ones, with
a cache of keys and without: tiny random models of every kind in f32, 32 tokens behind a prompt that is longer than
windows; LOCKSTEP_GENERATE_TOKENS=200 tries more. The draws are repeated from what lockstep/generate/sampler.h and
lockstep/base/random.h promise."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers as t
import transformers_test as tiny

tiny.POSITIONS = 224
TOKENS = int(os.environ.get("LOCKSTEP_GENERATE_TOKENS", "32"))
PROMPT = [7, 3, 3, 58, 0, 41, 12, 19, 33, 2, 5]
SAMPLING = {"temperature": 0.7, "top-k": 20, "top-p": 0.9, "seed": 2**40 + 3}


def philox(counter, key):
    """Philox4x32 with 10 rounds (Salmon et al., SC 2011)."""
    low = 2**32 - 1
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [second >> 32 ^ counter[1] ^ key[0], second & low, first >> 32 ^ counter[3] ^ key[1], first & low]
        key = [key[0] + 0x9E3779B9 & low, key[1] + 0xBB67AE85 & low]
    return counter


def uniform(seed, stream, index):
    xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    xxh3.restype, xxh3.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    halves = [word >> shift & 2**32 - 1 for word in (index, xxh3(stream, len(stream)), seed) for shift in (0, 32)]
    block = philox(halves[:4], halves[4:])
    return ((block[1] << 32 | block[0]) >> 11) * 2.0**-53


def likeliest(logits, _):
    return int(numpy.argmax(logits))


def drawn(logits, index):
    scaled = logits.astype(numpy.float64) / SAMPLING["temperature"]
    order = numpy.argsort(-logits, kind="stable")[: SAMPLING["top-k"]]
    shares = numpy.exp(scaled[order] - scaled[order[0]])
    kept = numpy.searchsorted(numpy.cumsum(shares), SAMPLING["top-p"] * shares.sum()) + 1
    ids = sorted(order[:kept])
    sums = numpy.cumsum(numpy.exp(scaled[ids] - scaled[ids].max()))
    place = numpy.searchsorted(sums, uniform(SAMPLING["seed"], b"generate.0", index) * sums[-1], side="right")
    return int(ids[place])


def ours(lockstep, folder, *words):
    prompt = ",".join(map(str, PROMPT))
    made = subprocess.run([lockstep, "generate", folder, "--json", "--prompt-ids", prompt, "--max-tokens", str(TOKENS), *words],
                          check=True, stdout=subprocess.PIPE).stdout  # fmt: skip
    return json.loads(made)["answers"][0]["ids"]


@torch.no_grad()
def with_cache(model, choose):
    ids, fed, cache = [], PROMPT, None
    for index in range(TOKENS):
        made = model(torch.tensor([fed]), past_key_values=cache, use_cache=True)
        cache = made.past_key_values
        fed = [choose(made.logits[0, -1].numpy(), index)]
        ids += fed
    return ids


@torch.no_grad()
def without_cache(model, choose, ids):
    """Each token from all before it, which a causal model computes at once."""
    logits = model(torch.tensor([PROMPT + ids[:-1]]), use_cache=False).logits[0, len(PROMPT) - 1 :].numpy()
    return [choose(row, index) for index, row in enumerate(logits)]


def check(name, model, keywords, lockstep, folder):
    model.save_pretrained(folder / "theirs", **keywords)
    subprocess.run([lockstep, "convert", folder / "theirs", folder / "start"], check=True, stdout=subprocess.DEVNULL)
    sampling = [word for key, value in SAMPLING.items() for word in (f"--{key}", str(value))]
    made = {}
    for choose, words in ((likeliest, ["--temperature", "0"]), (drawn, sampling)):
        made[choose] = ours(lockstep, folder / "theirs", *words)
        assert len(made[choose]) == TOKENS
        assert made[choose] == ours(lockstep, folder / "start", *words), f"{name}: a checkpoint says something else"
        assert made[choose] == with_cache(model, choose), f"{name}: {choose.__name__} with a cache"
        assert made[choose] == without_cache(model, choose, made[choose]), f"{name}: {choose.__name__} without a cache"
    prompt = torch.tensor([PROMPT])
    greedy = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=TOKENS,
                            eos_token_id=None, pad_token_id=0)  # fmt: skip
    assert greedy[0, len(PROMPT) :].tolist() == made[likeliest], f"{name}: generate()"
    print(f"{name:10} {TOKENS} likeliest and {TOKENS} drawn tokens; {len(set(made[drawn]))} different ones drawn", flush=True)


if __name__ == "__main__":
    torch.manual_seed(8)
    t.logging.set_verbosity_error()
    t.logging.disable_progress_bar()
    for case in tiny.models():
        with tempfile.TemporaryDirectory() as scratch:
            check(case[0], tiny.randomised(case[1]), case[2], sys.argv[1], pathlib.Path(scratch))
