#!/usr/bin/env python3
"""Builds the libraries that a rehearsal preloads, in place of CUDA's: fakes.py TORCH SOURCE OUT LIBRARY...

TORCH is the folder of torch, SOURCE the project's, OUT where the libraries go; LIBRARY are static libraries that the one
in place of NCCL needs. What a source in this folder does not define, and LibTorch looks for, returns 0; of cuDNN only
the version can be asked."""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PRODUCT = re.compile(r"cublas\w*([gG]emm|[gG]emv|[dD]ot)\w*|cublasLtMatmul")  # counted as a kernel each
CREATES = re.compile(r"cublasCreate_v2|cublasLt\w*Create$")


def looked_for(libraries):
    """{(symbol, version)} that these leave to others."""
    listing = subprocess.run(["nm", "-D", "--undefined-only", *libraries], capture_output=True, text=True).stdout
    return {tuple((line.split()[-1] + "@").split("@")[:2]) for line in listing.splitlines() if line.strip().startswith("U ")}


def stub(name):
    if CREATES.fullmatch(name):
        return f"int {name}(void** made) {{ *made = new long[64](); return 0; }}"
    if PRODUCT.fullmatch(name):
        return f'int {name}() {{ rehearsal_event("product", 0, "{name}"); return 0; }}'
    if name.startswith("cudnn") and name != "cudnnGetVersion":
        return f"int {name}() {{ __builtin_trap(); }}"
    special = {
        "cublasLtMatmulAlgoGetHeuristic": "(void*, void*, void*, void*, void*, void*, void*, int, void*, int* n) { *n = 1; return 0; }",
        "cudnnGetVersion": "() { return 91900; }",
        "cublasLtGetVersion": "() { return 130000; }",
        "cublasGetMathMode": "(void*, int* mode) { *mode = 0; return 0; }",
        "cublasGetPointerMode_v2": "(void*, int* mode) { *mode = 0; return 0; }",
        "cuDevicePrimaryCtxGetState": "(int, unsigned* flags, int* active) { *flags = 0; *active = 1; return 0; }",
        "cuGetErrorString": '(int, const char** text) { *text = "rehearsal"; return 0; }',
    }
    return f"int {name}{special.get(name, '() { return 0; }')}"


def build(out, library, symbols, source, include, more=(), version=None):
    own = (HERE / source).read_text() if source else ""
    missing = sorted(name for name in symbols if not re.search(rf"[ *]{name}\(", own))
    text = out / f"{library}.cc"
    text.write_text((f'#include "{HERE / source}"\n' if source else "") + 'extern "C" {\nvoid rehearsal_event(const char*, long, const char*);\n' + "\n".join(map(stub, missing)) + "\n}\n")
    script = out / f"{library}.map"
    script.write_text(f"{version or ''} {{ global: cu*; __cuda*; nccl*; rehearsal_*; local: *; }};\n")
    options = [f"-Wl,-soname,{library}", f"-Wl,--version-script={script}"]
    subprocess.run(["c++", "-std=c++20", "-O1", "-w", "-fPIC", "-shared", *(f"-I{i}" for i in include), str(text), *options, *more, "-o", str(out / library)], check=True)


def main():
    torch, source, out, *libraries = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    parts = [str(p) for p in (torch / "lib").glob("*.so")] + [str(p) for p in (torch / ".." / "nvidia").glob("*/lib/*.so*")]
    wanted = looked_for(parts)
    include = [source, *(torch / ".." / "nvidia").glob("*/include")]

    def of(version):
        return {name for name, mark in wanted if mark == version}

    build(out, "libcudart.so.13", of("libcudart.so.13"), "cudart.cc", include, version="libcudart.so.13")
    build(out, "libcublas.so.13", of("libcublas.so.13"), None, include, version="libcublas.so.13")
    build(out, "libcublasLt.so.13", of("libcublasLt.so.13"), None, include, version="libcublasLt.so.13")
    build(out, "libcudnn.so.9", of("libcudnn.so.9"), None, include, version="libcudnn.so.9")
    build(out, "libcuda.so.1", {name for name, _ in wanted if re.fullmatch(r"cu[A-Z]\w*", name) and not name.startswith(("cuFile", "cuRand"))}, None, include)
    build(out, "libnccl.so.2", {name for name, _ in wanted if name.startswith("nccl")}, "nccl.cc", include, [str(x) for x in libraries] + ["-L" + str(out), "-l:libcudart.so.13"])


if __name__ == "__main__":
    main()
