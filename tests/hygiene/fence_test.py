#!/usr/bin/env python3
"""LibTorch stays above its fence, and out of headers; each heavy third-party header has exactly one user."""

import re

import house
from house import Plant

TORCH = re.compile(r"^(torch|ATen|c10|c10d|caffe2)/")
HEADER_MAY_USE = "ATen/core/Tensor.h"
HEAVY = {"toml++/": "toml++", "CLI/": "CLI11", "nlohmann/": "nlohmann"}


def check_torch(place):
    problems = []
    names = {layer.name for layer in house.layers(place.root)}
    above = {layer.name for layer in house.layers(place.root) if layer.torch}
    for path in house.files(place.root, "lockstep", "cli", "tests", "bench", suffixes={".h", ".cc"}):
        sees_torch = path.parts[0] == "bench" or (path.parts[0] in {"lockstep", "tests"} and house.area_of(path, names) in above | {"workers", "glass", "rehearsal"})
        for number, _, name in house.includes(place.root, path):
            if not TORCH.match(name):
                continue
            if path.parts[0] == "cli":
                problems.append(f"{path}:{number}: cli reaches torch only through lockstep/, not by <{name}>")
            elif not sees_torch:
                problems.append(f"{path}:{number}: <{name}> is included below the LibTorch fence")
            elif path.suffix == ".h" and name != HEADER_MAY_USE:
                problems.append(f"{path}:{number}: a header may include at most <{HEADER_MAY_USE}>, not <{name}>")
    return problems


def check_heavy(place):
    users = {}
    for path in house.files(place.root, "lockstep", "cli", "tests", "bench", suffixes={".h", ".cc"}):
        for number, _, name in house.includes(place.root, path):
            for prefix, library in HEAVY.items():
                if name.startswith(prefix):
                    users.setdefault(library, {}).setdefault(path, number)
    problems = []
    for library, places in sorted(users.items()):
        for path, number in places.items():
            if path.suffix == ".h":
                problems.append(f"{path}:{number}: {library} is included by a header; wrap it in one source file")
            elif len(places) > 1:
                problems.append(f"{path}:{number}: {library} is included by {len(places)} files; one may")
    return problems


def check(place):
    return check_torch(place) + check_heavy(place)


PLANTS = [
    Plant("lockstep/mesh/bad.cc", "#include <torch/types.h>\n", "lockstep/mesh/bad.cc:1: <torch/types.h> is included below"),
    Plant("lockstep/base/bad.h", "#pragma once\n#include <c10/core/Device.h>\n", "below the LibTorch fence"),
    Plant("cli/bad.cc", "#include <ATen/core/Tensor.h>\n", "cli reaches torch only through lockstep/"),
    Plant("tests/mesh/bad_test.cc", "#include <ATen/ATen.h>\n", "below the LibTorch fence"),
    Plant("lockstep/tensor/bad.h", "#pragma once\n#include <torch/types.h>\n", "a header may include at most"),
    Plant("lockstep/mesh/bad.h", "#pragma once\n#include <toml++/toml.h>\n", "included by a header"),
    Plant(
        "lockstep/mesh/bad.cc",
        "#include <nlohmann/json.hpp>\n",
        "nlohmann is included by 2 files",
        {"cli/second.cc": "#include <nlohmann/json.hpp>\n"},
    ),
]

if __name__ == "__main__":
    house.run(check, PLANTS)
