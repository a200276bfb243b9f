#!/usr/bin/env python3
"""`train --sample` shows the text that `lockstep generate` makes of the same step's checkpoint, in every kind of layout, and
the run with it is bit for bit the one without."""

import json
import pathlib
import subprocess
import sys
import tempfile

SMALL = ["--seq", "32", "--global-batch", "4", "--microbatch", "1", "--set", "model.layers=2", "--set", "model.hidden=32",
         "--set", "model.ffn=48", "--set", "train.eval_samples=4", "--set", "train.eval_interval=2", "--steps", "4"]  # fmt: skip
LAYOUTS = [[], ["--dp", "2", "--zero", "3"], ["--tp", "2", "--pp", "2"], ["--dp", "2", "--zero", "1", "--dtype", "bf16", "--processes"]]


class Program:
    def __init__(self, lockstep, scratch):
        self.lockstep, self.scratch = lockstep, scratch

    def run(self, *words):
        return subprocess.run([self.lockstep, *map(str, words)], capture_output=True, text=True, timeout=200, cwd=self.scratch)

    def train(self, folder, *words):
        return self.run("train", self.run_file, "--set", f"data.files=['{self.scratch}/text']", *SMALL, "--save", folder, *words)


def sampled(scratch, folder):
    return [json.loads(line) for line in (scratch / folder / "samples.jsonl").read_text().splitlines()]


def check(program, number, layout):
    plain = program.train(f"plain{number}", "--oracle", *layout)
    with_them = program.train(f"with{number}", "--oracle", "--sample", "The quick", *layout)
    assert plain.returncode == with_them.returncode == 0, (plain.stderr, with_them.stderr)
    assert plain.stdout == with_them.stdout and plain.stdout.count("state") == 4, layout
    lines = sampled(program.scratch, f"with{number}")
    assert [one["step"] for one in lines] == [2, 4] and lines[0]["text"] != lines[1]["text"]
    made = program.run("generate", f"with{number}", "--prompt", "The quick", "--max-tokens", 100, "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["answers"][0]["text"] == lines[1]["text"], layout
    return lines


def main(lockstep, scratch):
    program = Program(lockstep, scratch)
    program.run_file = pathlib.Path(__file__).parents[2] / "examples/text.toml"
    (scratch / "my.txt").write_text("".join(f"the quick brown fox {i}\n" + ("\n" if i % 4 == 0 else "") for i in range(400)))
    made = program.run("data", "from-text", "my.txt", "--out", "text")
    assert made.returncode == 0, made.stderr
    for number, layout in enumerate(LAYOUTS):
        check(program, number, layout)
    table = program.train("table", "--sample", "", "--sample-interval", 3)
    assert table.returncode == 0 and "samples    every 3 steps" in table.stdout and len(sampled(scratch, "table")) == 2, table
    for words, part in ((["--sample-interval", 2], "there is no --sample"),
                        (["--sample", "x" * 128], "positions"), (["--sample", "x", "--set", "model.vocab=300"], "300")):  # fmt: skip
        ran = program.train("refused", *words)
        assert ran.returncode == 2 and part in ran.stderr, (words, ran)
    never = program.run("train", program.run_file.parent / "tiny.toml", "--mock-data", "--save", "refused", "--sample", "x")
    assert never.returncode == 2 and "nothing says after how many steps" in never.stderr, never


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1], pathlib.Path(folder))
