#!/usr/bin/env python3
"""What the compiled files need: nothing below the fence refers to torch, nor does the program load it; its module
loads one OpenMP runtime."""

import pathlib
import re
import subprocess
import tempfile

import house

FOREIGN = re.compile(r"\b(at|c10|c10d|torch|caffe2)::")
TORCH_LIBRARIES = re.compile(r"\blib(torch|c10)\w*\.so")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbol_problems(library):
    for line in output("nm", "-C", "--undefined-only", str(library)).splitlines():
        if FOREIGN.search(line):
            yield f"{library.name}: below the fence, but refers to {line.split(' U ')[-1].strip()}"


def load_problems(name, ldd, torch):
    """Faults in what the dynamic loader would bring in, from the output of ldd."""
    names = [line.split()[0] for line in ldd.splitlines() if line.strip()]
    if "not found" in ldd:
        yield f"{name}: a library is missing: " + "; ".join(l.strip() for l in ldd.splitlines() if "not found" in l)
    if torch:
        runtimes = sorted({name for name in names if re.match(r"lib(gomp|iomp|omp)", name)})
        if len(runtimes) != 1:
            yield f"{name}: loads {len(runtimes)} OpenMP runtimes ({', '.join(runtimes) or 'none'}); torch needs exactly its own"
    elif TORCH_LIBRARIES.search(ldd):
        yield f"{name}: is below the fence, but loads {TORCH_LIBRARIES.search(ldd).group(0)}"


def check(place):
    problems = []
    for layer in house.layers(place.root):
        library = place.build / f"liblockstep_{layer.name.replace('/', '_')}.a"
        if layer.torch or not house.files(place.root, f"lockstep/{layer.name}", suffixes={".cc"}):
            continue
        if library.exists():
            problems += symbol_problems(library)
        else:
            problems.append(f"{library.name}: not built")
    for name, torch in [("lockstep", False)] + [("liblockstep_torch.so", True)] * place.torch:
        if (place.build / name).exists():
            problems += load_problems(name, output("ldd", str(place.build / name)), torch)
        else:
            problems.append(f"{name}: not built")
    return problems


def self_test():
    """Compiles a library that calls into c10 and reads loader output with known faults."""
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        (base / "a.cc").write_text("namespace c10 { void f(); }\nvoid g() { c10::f(); }\n", encoding="utf-8")
        output("c++", "-c", str(base / "a.cc"), "-o", str(base / "a.o"))
        output("ar", "rc", str(base / "liblockstep_mesh.a"), str(base / "a.o"))
        if not any("refers to c10::f()" in p for p in symbol_problems(base / "liblockstep_mesh.a")):
            problems.append("self-test: a reference to c10 was not reported")
    gomp, torch = "libgomp.so.1 => /a (0x1)\n", "libtorch_cpu.so => /b (0x2)\n"
    for ldd, with_torch, want in [
        (gomp + torch, True, 0),
        (torch, True, 1),
        (gomp + "libiomp5.so => /c (0x3)\n", True, 1),
        (torch, False, 1),
        (gomp, False, 0),
        ("libzstd.so.1 => not found\n", False, 1),
    ]:
        if len(list(load_problems("lockstep", ldd, with_torch))) != want:
            problems.append(f"self-test: {ldd!r} with torch={with_torch} should give {want} problems")
    return problems


if __name__ == "__main__":
    house.report(self_test() or check(house.given_place()), 7)
