#!/usr/bin/env python3
"""tools/tokenize writes what the tokenizer says, whatever packs the input and however many processes run."""

import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import tokenizers
import zstandard

TOOL = pathlib.Path(__file__).parents[2] / "tools/tokenize"
EOD = "<|endoftext|>"


def texts():
    words = ["loss", "rank", "Schritt", "\u00fcberall", "\u6570\u636e", "\U0001f642", "a b", "\n", "\ttab", '"quoted"', "x" * 50]
    return ["", " "] + [" ".join(words[(i * k) % len(words)] for k in range(1, i % 40 + 2)) for i in range(1500)]


def make_tokenizer(path):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=[EOD], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.save(str(path))
    return tokenizer


def write_inputs(folder):
    """The same lines in three files, each packed in another way."""
    lines = [json.dumps({"text": text, "id": i}, ensure_ascii=i % 2 == 0) + "\n" for i, text in enumerate(texts())]
    parts = ["".join(lines[:500]), "\n" + "".join(lines[500:900]), "".join(lines[900:])]
    parts = [part.encode() for part in parts]
    (folder / "a.jsonl").write_bytes(parts[0])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(parts[1]))
    half = len(parts[2]) // 2  # two frames, as of files that were joined
    frames = [zstandard.compress(parts[2][:half]), zstandard.compress(parts[2][half:])]
    (folder / "c.jsonl.zst").write_bytes(b"".join(frames))
    return [folder / name for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst")]


def tokenize(folder, *words):
    return subprocess.run([TOOL, "--tokenizer", folder / "tokenizer.json", *words], capture_output=True, text=True)


def documents_of(prefix):
    index = prefix.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\0\0" and index[17] == 8, "u16"
    count = int.from_bytes(index[18:26], "little")
    lengths = numpy.frombuffer(index, dtype=numpy.int32, count=count, offset=34)
    tokens = numpy.fromfile(prefix.with_suffix(".bin"), dtype=numpy.uint16)
    ends = numpy.cumsum(lengths)
    return [tokens[end - length : end].tolist() for end, length in zip(ends, lengths)]


def check_result(lockstep, folder, tokenizer, inputs):
    eod = tokenizer.token_to_id(EOD)
    wanted = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts()]
    wanted = [ids + [eod] if ids else ids for ids in wanted]
    for workers in (1, 3):
        out = folder / f"out{workers}"
        ran = tokenize(folder, "--append-eod", EOD, "--workers", str(workers), "--out", out, *inputs)
        assert ran.returncode == 0 and ran.stderr == "", ran.stderr
        assert documents_of(out) == wanted, f"{workers} workers"
    assert (folder / "out1.bin").read_bytes() == (folder / "out3.bin").read_bytes()
    subprocess.run([lockstep, "data", "verify", folder / "out1", "--vocab", str(tokenizer.get_vocab_size())], check=True, stdout=subprocess.DEVNULL)
    ran = tokenize(folder, "--out", folder / "plain", inputs[0])
    assert documents_of(folder / "plain") == [ids[:-1] if ids else ids for ids in wanted[:500]], "without --append-eod"


def check_refusals(folder, inputs):
    (folder / "bad.jsonl").write_text('{"text": "a"}\n{"body": "b"}\n')
    (folder / "worse.jsonl").write_text('{"text": "a"}\nnot json\n')
    cases = [
        ((folder / "bad.jsonl",), f"{folder}/bad.jsonl, line 2: no text under the key `text`"),
        ((folder / "worse.jsonl",), f"{folder}/worse.jsonl, line 2: not JSON"),
        ((folder / "none.jsonl",), f"{folder}/none.jsonl: no such file"),
        (("--append-eod", "<none>", inputs[0]), "has no token `<none>` for --append-eod"),
        (("--out", folder / "out1", inputs[0]), f"{folder}/out1.bin exists"),
    ]
    for words, message in cases:
        before = sorted(folder.iterdir())
        ran = tokenize(folder, "--out", folder / "refused", *words)
        assert ran.returncode == 2 and message in ran.stderr, (words, ran)
        assert sorted(folder.iterdir()) == before, f"{words} left something behind"


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokenizer = make_tokenizer(folder / "tokenizer.json")
        inputs = write_inputs(folder)
        check_result(sys.argv[1], folder, tokenizer, inputs)
        check_refusals(folder, inputs)


if __name__ == "__main__":
    main()
