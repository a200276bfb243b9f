#!/usr/bin/env python3
"""Every include follows layers.txt: folders of lockstep/ see only what their line lists, cli/ sees everything but tests,
bench/ of tests only tests/support; and every edge that layers.txt allows is used."""

import house
from house import Plant


def check_table(table):
    problems, above = [], set()
    names = {layer.name for layer in table}
    for layer in table:
        where = f"layers.txt:{layer.line}"
        if layer.name in above:
            problems.append(f"{where}: '{layer.name}' has two lines")
        for target in sorted(layer.may_include):
            if target not in names:
                problems.append(f"{where}: '{layer.name}' may include '{target}', which is no folder of this table")
            elif target not in above:
                problems.append(f"{where}: '{layer.name}' may include '{target}', which stands below it; arrows point down only")
        for low in table:
            if low.name in layer.may_include and low.torch and not layer.torch:
                problems.append(f"{where}: '{layer.name}' is below the fence but may include '{low.name}' above it")
        above.add(layer.name)
    return problems


def check(place):
    table = house.layers(place.root)
    allowed = {layer.name: layer.may_include | {layer.name} for layer in table}
    problems = check_table(table)
    used = set()
    for path in house.files(place.root, "lockstep", "cli", "bench", suffixes={".h", ".cc"}):
        top = path.parts[0]
        folder = house.area_of(path, allowed) if top == "lockstep" else None
        if folder is not None and folder not in allowed:
            problems.append(f"{path}:1: folder lockstep/{folder} has no line in layers.txt")
            continue
        for number, delimiter, name in house.includes(place.root, path):
            parts = name.split("/")
            if parts[0] == "lockstep":
                used.add((folder, house.area_of(name, allowed)))
            if parts[0] == "tests" and delimiter == '"' and not (top == "bench" and parts[1] == "support"):
                problems.append(f"{path}:{number}: {top} may not include tests ({name})")
            elif parts[0] == "cli" and top != "cli":
                problems.append(f"{path}:{number}: {top} may not include cli ({name})")
            elif parts[0] == "lockstep" and folder is not None and house.area_of(name, allowed) not in allowed[folder]:
                problems.append(f"{path}:{number}: forbidden edge {folder} -> {house.area_of(name, allowed)} ({name})")
            elif delimiter == '"' and parts[0] not in {"lockstep", "cli", "bench", "tests"}:
                problems.append(f'{path}:{number}: "{name}" is not a path from the root of the repository')
    for layer in table:
        for target in sorted(layer.may_include - {target for folder, target in used if folder == layer.name}):
            problems.append(f"layers.txt:{layer.line}: '{layer.name}' may include '{target}' but does not; an edge that nobody needs goes")
    return problems


PLANTS = [
    Plant("lockstep/base/bad.h", '#pragma once\n#include "lockstep/mesh/two.h"\n', "lockstep/base/bad.h:2: forbidden edge base -> mesh"),
    Plant("lockstep/mesh/bad.cc", '#include "tests/support/golden.h"\n', "may not include tests"),
    Plant("lockstep/mesh/bad.cc", '#include "two.h"\n', "not a path from the root"),
    Plant("lockstep/mesh/bad.cc", '#include "cli/verb.h"\n', "may not include cli"),
    Plant("cli/bad.cc", '#include "tests/support/golden.h"\n', "cli may not include tests"),
    Plant("bench/bad.cc", '#include "tests/exec/two.h"\n', "bench may not include tests"),
    Plant("lockstep/stray/bad.cc", "int x;\n", "lockstep/stray has no line"),
    Plant("lockstep/mesh/ring/bad.h", '#pragma once\n#include "lockstep/tensor/three.h"\n', "forbidden edge mesh -> tensor"),
    Plant(
        "layers.txt",
        "base :\nmesh : base\nbase/deep : base mesh\ntensor torch : base mesh\n",
        "forbidden edge base -> base/deep",
        {"lockstep/base/bad.h": '#pragma once\n#include "lockstep/base/deep/four.h"\n', "lockstep/base/deep/four.h": "#pragma once\n"},
    ),
    Plant("layers.txt", "base :\nextra :\nmesh : base extra\ntensor torch : base mesh\n", "'mesh' may include 'extra' but does not"),
    Plant("layers.txt", "base : mesh\nmesh : base\ntensor torch : base mesh\n", "arrows point down only"),
    Plant("layers.txt", "base :\ntensor torch : base\nmesh : base tensor\n", "below the fence"),
    Plant("layers.txt", "base :\nmesh : base basis\ntensor torch : base\n", "no folder of this table"),
]

if __name__ == "__main__":
    house.run(check, PLANTS)
