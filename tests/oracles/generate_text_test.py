#!/usr/bin/env python3
"""Text out of `lockstep generate`, by bytes and by tokenizers of Hugging Face's, as a person and a pipe get it."""

import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers as t
import transformers_test as tiny

tiny.VOCAB, tiny.POSITIONS = 257, 128
UEBER = "\u00fcber"
TEXTS = ["Schritt \u00fcberall", "\u6570\u636e and \U0001f642\U0001f642", "a b  c\n\td", ""]


def model(vocab, folder, bos=None, eos=None):
    made = tiny.randomised(t.LlamaForCausalLM(t.LlamaConfig(
        vocab_size=vocab, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=tiny.POSITIONS, rope_parameters=tiny.ROPE,
        bos_token_id=bos, eos_token_id=eos)))  # fmt: skip
    made.generation_config.eos_token_id = eos
    made.save_pretrained(folder)
    return folder


def trained_tokenizer(folder):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<end>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())  # fmt: skip
    tokenizer.train_from_iterator(TEXTS * 9, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


class Program:
    def __init__(self, lockstep):
        self.lockstep = lockstep

    def run(self, *words, **how):
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 120} | how
        return subprocess.run([self.lockstep, "generate", *words], **how)

    def answers(self, *words):
        ran = self.run(*words, "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)["answers"]

    def refused(self, code, words, *parts, **how):
        ran = self.run(*words, **how)
        told = ran.stderr.decode()
        assert ran.returncode == code and ran.stdout == b"", (words, ran)
        assert all(part in told for part in parts), (words, told)


def check_bytes(program, folder):
    words = (folder, "--prompt", UEBER, "--seed", "3", "--max-tokens", "100")
    (answer,) = program.answers(*words)
    assert answer["prompt_ids"] == list(UEBER.encode())
    ids = [i for i in answer["ids"] if i != 256]
    text = bytes(ids).decode(errors="replace")
    assert answer["text"].rstrip("\ufffd") == text.rstrip("\ufffd"), (answer["text"], text)
    # Typed out: UTF-8 whatever the model says, no control characters, and the same at every run.
    shown = program.run(*words).stdout
    assert shown == program.run(*words).stdout and shown.decode().startswith(UEBER)
    assert not any(byte < 32 and byte not in b"\n\t" for byte in shown), shown
    assert program.answers(folder, "--prompt", b"\xff\xc3", "--max-tokens", "1")[0]["prompt_ids"] == [0xFF, 0xC3]
    assert program.answers(folder, "--prompt", "", "--max-tokens", "1")[0]["prompt_ids"] == [256]
    stop = next(letter for letter in answer["text"][5:] if letter.isascii() and letter.isalnum())
    (cut,) = program.answers(*words, "--stop", stop)
    assert cut["text"] == answer["text"][: answer["text"].index(stop)] and cut["ended_by"] == "stop", cut


def check_prompt_files(program, folder):
    plain, lines = folder / "prompts.txt", folder / "prompts.jsonl"
    plain.write_bytes(b"one\r\n\ntwo \xff\n")
    lines.write_text('"one\\ntwo"\n\n{"prompt": "three"}\n')
    few = ("--max-tokens", "5")
    made = program.answers(folder, "--prompt-file", plain, *few)
    assert [bytes(answer["prompt_ids"]) for answer in made] == [b"one", b"two \xff"]
    assert made[0]["ids"] == program.answers(folder, "--prompt", "one", *few)[0]["ids"], "others have no say"
    assert [answer["prompt"] for answer in program.answers(folder, "--prompt-file", lines, *few)] == ["one\ntwo", "three"]
    shown = program.run(folder, "--prompt-file", lines, *few).stdout.decode()
    assert shown.startswith("prompt 1 of 2\none\ntwo") and "\n\nprompt 2 of 2\nthree" in shown, shown
    lines.write_text('"one"\n[1]\n')
    program.refused(2, (folder, "--prompt-file", lines), "prompts.jsonl:2")
    plain.write_text("\n\n")
    program.refused(3, (folder, "--prompt-file", plain), "has no prompts")


def check_exported(program, folder):
    """A directory that `convert` writes of a model of bytes has a tokenizer that says the same as none."""
    for made in (("bytes", "start"), ("start", "exported")):
        subprocess.run([program.lockstep, "convert", *made], check=True, stdout=subprocess.DEVNULL, cwd=folder)
    tokenizer = t.AutoTokenizer.from_pretrained(folder / "exported")
    assert len(tokenizer) == 257 and tokenizer.eos_token_id == 256
    for text in [*TEXTS[:3], "".join(map(chr, range(1, 800)))]:
        assert tokenizer.encode(text) == list(text.encode()), text
        assert tokenizer.decode(list(text.encode())) == text
        words = ("--prompt", text[:50], "--seed", "4", "--max-tokens", "40")
        (native,), (read) = program.answers(folder / "bytes", *words), program.answers(folder / "exported", *words)
        assert native["ids"] == read[0]["ids"] and native["text"] == read[0]["text"], (native, read)


def check_tokenizer(program, folder):
    tokenizer = trained_tokenizer(folder)
    for text in TEXTS[:3]:
        (answer,) = program.answers(folder, "--prompt", text, "--seed", "5", "--max-tokens", "60")
        assert answer["prompt_ids"] == tokenizer.encode(text).ids
        whole = tokenizer.decode(answer["prompt_ids"] + answer["ids"])
        assert text + answer["text"] == whole, (answer["text"], whole)
        shown = program.run(folder, "--prompt", text, "--seed", "5", "--max-tokens", "60").stdout.decode()
        assert shown[: len(text)] == text
    # The end: the first token that the model says, said to be one.
    config = json.loads((folder / "config.json").read_text())
    generation = folder / "generation_config.json"
    generation.write_text(json.dumps({"eos_token_id": [299, answer["ids"][3]], "bos_token_id": 0}))
    (ended,) = program.answers(folder, "--prompt", text, "--seed", "5", "--max-tokens", "60")
    assert ended["ended_by"] == "end" and ended["ids"] == answer["ids"][: answer["ids"].index(answer["ids"][3]) + 1]
    assert program.answers(folder, "--prompt", "", "--max-tokens", "1")[0]["prompt_ids"] == [0]
    generation.unlink()
    assert config["bos_token_id"] is None
    program.refused(2, (folder, "--prompt", ""), "the prompt is empty")
    program.refused(2, (folder, "--prompt", b"\xff"), "is not UTF-8")
    program.refused(3, (folder, "--prompt", "a"), "`tokenizers`", env={"PATH": "/nowhere"})
    program.refused(3, (folder, "--prompt", "a", "--tokenizer", folder / "none.json"), "is not there")
    (folder / "broken").mkdir()
    (folder / "broken/tokenizer.json").write_text("{}")
    program.refused(3, (folder, "--prompt", "a", "--tokenizer", folder / "broken"), "refuses")


def check_refusals(program, bytes_model, other):
    some = (bytes_model, "--prompt", "abc")
    program.refused(2, (bytes_model,), "there is no prompt", "--prompt TEXT")
    program.refused(2, (*some, "--prompt-ids", "1"), "--prompt and --prompt-ids")
    for words in (("--top-k", "3"), ("--top-p", "0.5"), ("--seed", "1")):
        program.refused(2, (*some, "--temperature", "0", *words), "--temperature 0", words[0])
    program.refused(2, (*some, "--top-p", "0"), "above 0")
    program.refused(2, (*some, "--top-k", "258"), "at most 257")
    program.refused(2, (*some, "--max-tokens", "1000000000000"), "at most 125")
    program.refused(2, (*some, "--stop", ""), "--stop")
    program.refused(2, (bytes_model, "--prompt", "a" * 128), "128 tokens", "128 positions")
    program.refused(3, (bytes_model, "--prompt-ids", "3,257"), "token 1 of the prompt is 257", "0 to 256")
    program.refused(2, (bytes_model, "--prompt-ids", "3,x"), "`x`")
    program.refused(2, (bytes_model, "--prompt-ids", "3", "--stop", "a"), "--stop")
    program.refused(2, (other, "--prompt", "a"), "does not say which tokenizer", "--prompt-ids")
    program.refused(3, (bytes_model / "none", "--prompt", "a"), "none")
    assert program.run(other, "--prompt-ids", "1,2", "--max-tokens", "3", "--temperature", "0").stdout.count(b" ") == 2


def check_ends(program, folder):
    """A pipe that is closed ends the program without a word; Ctrl-C ends the text, which stays."""
    words = [program.lockstep, "generate", folder, "--prompt", "a", "--tokenizer", "bytes"]
    piped = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    piped.stdout.close()
    assert piped.wait(60) == -signal.SIGPIPE and piped.stderr.read() == b""
    terminal, end = pty.openpty()
    words = [program.lockstep, "generate", folder, "--prompt-file", "/dev/stdin"]
    running = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=end, stderr=subprocess.PIPE)
    running.stdin.write(b"again\n" * 10000)
    running.stdin.close()
    os.close(end)
    told = b""
    while b"prompt 3 of" not in told:
        told += os.read(terminal, 4096)
    running.send_signal(signal.SIGINT)
    try:
        while piece := os.read(terminal, 4096):
            told += piece
    except OSError:  # the terminal is gone
        pass
    assert running.wait(60) == 143 and b"prompt 9999 of" not in told
    assert b"ended by interrupted" in running.stderr.read() and told.endswith(b"\n")


if __name__ == "__main__":
    torch.manual_seed(8)
    t.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        scratch, program = pathlib.Path(scratch), Program(sys.argv[1])
        by_bytes, by_words, other = (model(vocab, scratch / name) for vocab, name in ((257, "bytes"), (300, "words"), (61, "other")))
        check_bytes(program, by_bytes)
        check_prompt_files(program, by_bytes)
        check_exported(program, scratch)
        check_tokenizer(program, by_words)
        check_refusals(program, by_bytes, other)
        check_ends(program, by_bytes)
