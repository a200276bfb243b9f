#!/usr/bin/env python3
"""Python's safetensors reads the files of a checkpoint, whose data begins at a page and whose header is padded. Put together
by what the manifest says alone, as docs/formats/checkpoint.md tells it, files of different layouts are the same tensors,
and the weights among them are those that `lockstep convert` writes for transformers."""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import safetensors
import safetensors.numpy

SOURCE = pathlib.Path(__file__).resolve().parents[2]
STEPS = 3
# One class of layouts, so that all have the same bits: files of whole tensors, of ranges, and of boxes cut by tensor ranks.
CLASSES = [[["dp=2", "zero=0"], ["dp=2", "pp=2", "zero=1", "reduce=step"], ["dp=2", "zero=3", "reduce=step"]],
           [["tp=2", "zero=0"], ["tp=2", "pp=2", "zero=1"]]]


def run(lockstep, *words):
    subprocess.run([lockstep, *words], check=True, stdout=subprocess.DEVNULL)


def read_file(path):
    with open(path, "rb") as file:
        data_begin = 8 + int.from_bytes(file.read(8), "little")
    assert data_begin % 4096 == 0, f"{path}: data begins at byte {data_begin}"
    with safetensors.safe_open(path, framework="numpy") as opened:
        assert opened.metadata() == {"format": "pt"}, opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}
    assert tensors.keys() == safetensors.numpy.load_file(path).keys()
    return tensors


def put_together(folder):
    """All tensors of a checkpoint by name and role; every element must come from exactly one file."""
    manifest = json.loads((folder / "MANIFEST.json").read_text())["checkpoint"]
    files = [read_file(folder / file["name"]) for file in manifest["files"]]
    named = [set(file) for file in files]
    whole = {}
    for tensor in manifest["tensors"]:
        assert tensor["dtype"] == "F32"
        made = numpy.zeros(tensor["shape"], numpy.float32)
        times = numpy.zeros(tensor["shape"], numpy.int64)
        name = tensor["name"] + ("" if tensor["role"] == "weight" else ":" + tensor["role"])
        for piece in tensor["slices"]:
            begin, extent = piece["box"]
            box = tuple(slice(b, b + e) for b, e in zip(begin, extent))
            first, last = piece["range"]
            values, counts = made[box].reshape(-1), times[box].reshape(-1)
            values[first:last] = files[piece["file"]][name].reshape(-1)
            counts[first:last] += 1
            made[box], times[box] = values.reshape(extent), counts.reshape(extent)
            named[piece["file"]].discard(name)
        assert (times == 1).all(), f"{name}: elements that are in no file, or in several"
        whole[tensor["name"], tensor["role"]] = made
    assert not any(named), f"entries that the manifest does not know: {named}"
    return whole


def bits(tensors):
    return {key: (value.shape, value.tobytes()) for key, value in tensors.items()}


def main():
    lockstep = pathlib.Path(sys.argv[1]).resolve()
    files = tensors = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number, layouts in enumerate(CLASSES):
            first = None
            for layout in layouts:
                out = pathlib.Path(scratch) / f"{number}-{'-'.join(layout)}"
                sets = [word for setting in layout for word in ("--set", "layout." + setting)]
                run(lockstep, "train", SOURCE / "examples/tiny.toml", "--mock-data", "--set", f"train.steps={STEPS}", *sets,
                    "--save", out)
                folder = out / f"step-{STEPS:08}"
                whole = put_together(folder)
                assert {role for _, role in whole} == {"weight", "first_moment", "second_moment"}
                first = first or bits(whole)
                assert bits(whole) == first, f"{layout}: not the tensors of {layouts[0]}"
                files += len(list(folder.glob("*.safetensors")))
                tensors += len(whole)
            run(lockstep, "convert", out, out / "hf")
            exported = safetensors.numpy.load_file(out / "hf/model.safetensors")
            weights = [value for (_, role), value in bits(whole).items() if role == "weight"]
            assert sorted(bits(exported).values()) == sorted(weights), "the exported weights are others"
    print(f"{tensors} tensors of {files} files, put together in Python")


if __name__ == "__main__":
    main()
