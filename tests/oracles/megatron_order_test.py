#!/usr/bin/env python3
"""Samples of `lockstep` are those that numpy makes of Megatron's description, token by token.

Every token of every file is a different number, so equal samples mean equal indices. Also writes the table that
tests/data/sample_order_test.cc compares with where there is no Python (--write), and holds it to be current.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy

import megatron_order as oracle

TABLE = pathlib.Path(__file__).parents[1] / "golden/data/orders.txt"


def write_pair(prefix, documents):
    """As Megatron's IndexedDatasetBuilder does, with i32 tokens."""
    lengths = numpy.array([len(document) for document in documents], dtype=numpy.int32)
    ends = numpy.cumsum(lengths, dtype=numpy.int64) * 4
    with open(f"{prefix}.bin", "wb") as file:
        file.write(numpy.array([token for document in documents for token in document], dtype=numpy.int32).tobytes())
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([4]))
        file.write(len(lengths).to_bytes(8, "little") + (len(lengths) + 1).to_bytes(8, "little"))
        file.write(lengths.tobytes() + (ends - lengths * 4).tobytes())
        file.write(numpy.arange(len(lengths) + 1, dtype=numpy.int64).tobytes())


def corpus(chance, folder):
    """Some files of documents whose tokens all differ, also between files."""
    files, token = [], 0
    for number in range(chance.choice([1, 1, 2, 3, 5])):
        documents = []
        for _ in range(chance.randint(20, 200)):
            length = chance.choice([chance.randint(0, 5), chance.randint(1, 60), chance.randint(1, 400)])
            documents.append(range(token, token + length))
            token += length
        write_pair(folder / f"file{number}", documents)
        files.append(documents)
    return files, token


def expected(files, weights, shares, seq, samples, seed):
    """All samples of the training split."""
    orders = []
    once = oracle.normalised(weights) if weights else None
    for number, documents in enumerate(files):
        begin, end = oracle.bounds(shares, len(documents))[0]
        wish = oracle.request(samples, once[number]) if weights else samples
        orders.append(oracle.Order([len(document) for document in documents], begin, end, seq, wish, seed))
    if not weights:
        return [orders[0].sample(draw, files[0], seq) for draw in range(samples)]
    chosen, draws = oracle.blend(oracle.normalised(once), samples)
    return [orders[file].sample(draw, files[file], seq) for file, draw in zip(chosen, draws)]


def case(lockstep, number):
    chance = random.Random(number)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        files, vocab = corpus(chance, folder)
        weights = [chance.choice([1, 0.25, chance.random() + 0.01]) for _ in files] if len(files) > 1 or chance.random() < 0.3 else []
        shares = chance.choice([(969, 30, 1), (1, 0, 0), (90, 5, 5), (98, 2, 0)])
        seq, seed = chance.choice([1, 2, 16, 33, 128]), chance.choice([0, 1234, 2**32 - 1, chance.randrange(2**32)])
        batch, steps = chance.randint(1, 40), chance.randint(1, 20)
        (folder / "run.toml").write_text(
            f"[model]\nname = \"gpt2\"\nvocab = {max(vocab, 2)}\n[batch]\nseq = {seq}\nglobal_batch = {batch}\n"
            f"[train]\nsteps = {steps}\n[data]\nfiles = {[f'file{i}' for i in range(len(files))]}\nseed = {seed}\n"
            f"split = {list(shares)}\n" + (f"weights = {weights}\n" if weights else "")
        )
        samples = batch * steps
        answer = subprocess.run(
            [lockstep, "data", "sample", folder / "run.toml", "--count", str(samples), "--json"],
            check=True, capture_output=True, text=True,
        )
        ours = [sample["tokens"] for sample in json.loads(answer.stdout)["samples"]]
        wanted = expected(files, weights, shares, seq, samples, seed)
        assert ours == wanted, f"case {number}: sample {next(i for i, (a, b) in enumerate(zip(ours, wanted)) if a != b)} differs"
        return len(wanted)


def main():
    if sys.argv[1:] == ["--write"]:
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text(oracle.table())
        return
    assert TABLE.read_text() == oracle.table(), f"{TABLE} is not what numpy makes; write it again with --write"
    cases, samples = 40, 0
    for number in range(cases):
        samples += case(sys.argv[1], number)
    print(f"{len(oracle.ORDERS)} orders, {len(oracle.BLENDS)} blends; {cases} corpora, {samples} samples: equal")


if __name__ == "__main__":
    main()
