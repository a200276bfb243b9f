#!/usr/bin/env python3
"""Tests mirror sources, none is skipped, none can run for ever, and none can be forgotten by a list kept by hand."""

import pathlib
import re

import house
from house import Plant

PINNED = "tests/hygiene/skipped.txt"
PROGRAM_FOLDERS = {"cli", "seeds", "added", "glass", "rehearsal"}  # have test programs, mirror no folder of lockstep/
# Folders and files that are tested through the table of backends.
REACHED_BY = dict.fromkeys(("comm/gloo", "comm/nccl", "cuda", "comm/c10d/process_world.h"), "comm/backends")
REACHED_BY["comm/c10d/device_world.h"] = "glass"
HELPER_FOLDERS = {"support", "golden", "hygiene", "consumer", "contract", "workers", "fuzz", "oracles"}
SKIP = re.compile(r"\bGTEST_" r"SKIP\b|\bDIS" r"ABLED_\w+")


def reached(root, names):
    """The files these includes lead to, the source beside each header included."""
    found, left = set(), set(names)
    while left:
        name = left.pop()
        found.add(name)
        for part in (root / name, (root / name).with_suffix(".cc")):
            if part.is_file():
                left |= {inner for _, mark, inner in house.includes(root, part.relative_to(root)) if mark == '"'} - found
    return found


def users(root):
    """{header: files of lockstep/, cli/ and bench/ that include it}."""
    found = {}
    for path in house.files(root, "lockstep", "cli", "bench", suffixes={".cc", ".h"}):
        for _, _, name in house.includes(root, path):
            if path.with_suffix(".h") != pathlib.Path(name):
                found.setdefault(name, set()).add(path)
    return found


def check_mirror(place):
    problems, direct = [], {}
    areas = {layer.name for layer in house.layers(place.root)}
    for path in house.files(place.root, "tests", suffixes={".cc", ".h"}):
        folder = house.area_of(path, areas)
        is_test, is_helper = path.name.endswith("_test.cc"), (place.root / path).with_suffix(".h").exists()
        if folder not in areas | PROGRAM_FOLDERS | HELPER_FOLDERS or (is_test and folder in HELPER_FOLDERS):
            problems.append(f"{path}:1: tests/{folder} mirrors no folder of lockstep/")
        if folder in areas and path.suffix == ".cc" and not is_test and not is_helper:
            problems.append(f"{path}:1: not called *_test.cc and no helper with a header, so it would never run")
        direct.setdefault(folder, set()).update(name for _, _, name in house.includes(place.root, path))
    tested = {folder: reached(place.root, names) for folder, names in direct.items()}
    used = users(place.root)
    for path in house.files(place.root, "lockstep", suffixes={".h"}):
        folder, by = house.area_of(path, areas), used.get(str(path), set())
        is_internal = folder in tested and by and all(house.area_of(user, areas) == folder and user.parts[0] == "lockstep" for user in by)
        has_body = (place.root / path).with_suffix(".cc").exists()
        by_tests_of = REACHED_BY.get("/".join(path.parts[1:]), REACHED_BY.get(folder, folder))
        if has_body and not is_internal and str(path) not in tested.get(by_tests_of, set()):
            problems.append(f"{path}:1: no test in tests/{by_tests_of}/ reaches it")
    return problems


def check_lists(place):
    problems = []
    for path in house.files(place.root, "tests", suffixes={".txt"}):
        if path.name != "CMakeLists.txt":
            continue
        for number, line in enumerate(house.text_of(place.root, path).splitlines(), 1):
            if re.search(r"(?<!\*)\w+_test\.(cc|py)\b", line.split("#")[0].replace("*_test", "*")):
                problems.append(f"{path}:{number}: names a test file; take them from the directory")
    return problems


def check_timeouts(place):
    problems = []
    for path in house.files(place.root, "tests", suffixes={".txt"}):
        text = house.text_of(place.root, path)
        bounded = set(re.findall(r"set_tests_properties\((\S+)[^()]*\bTIMEOUT\b", text))
        for call in re.finditer(r"\b(gtest_discover_tests|add_test)\((?:NAME )?(\S+)[^()]*", text):
            if "PROPERTIES" in call.group(0) and re.search(r"\bTIMEOUT\b", call.group(0)) or call.group(2) in bounded:
                continue
            number = text.count("\n", 0, call.start()) + 1
            problems.append(f"{path}:{number}: tests of {call.group(2)} have no TIMEOUT")
    return problems


def check_skips(place):
    count, first = 0, ""
    for path in house.files(place.root, "tests", "lockstep", "cli", suffixes={".cc", ".h"}):
        for match in SKIP.finditer(house.bare_code(house.text_of(place.root, path))):
            count += 1
            first = first or f"{path}: {match.group(0)}"
    pinned = int(house.text_of(place.root, PINNED))
    if count != pinned:
        return [f"{PINNED}:1: {pinned} skipped tests are agreed, {count} are in the sources ({first or 'none'})"]
    return []


def check(place):
    return check_mirror(place) + check_lists(place) + check_timeouts(place) + check_skips(place)


PLANTS = [
    Plant("tests/nowhere/a_test.cc", "\n", "mirrors no folder"),
    Plant("tests/support/a_test.cc", "\n", "mirrors no folder"),
    Plant("tests/base/forgotten.cc", "\n", "so it would never run"),
    Plant("lockstep/base/lone.h", "#pragma once\n", "no test in tests/base/ reaches it", {"lockstep/base/lone.cc": "\n"}),
    Plant(
        "layers.txt",
        "base :\nmesh : base\ntensor torch : base mesh\nlone : base\n",
        "no test in tests/lone/ reaches it",
        {"lockstep/lone/a.h": "#pragma once\n", "lockstep/lone/a.cc": "\n", "tests/base/two_test.cc": '#include "lockstep/lone/a.h"\n'},
    ),
    Plant("tests/CMakeLists.txt", "add_executable(a base/one_test.cc)\n", "take them from the directory"),
    Plant("tests/CMakeLists.txt", "gtest_discover_tests(a_test DISCOVERY_TIMEOUT 60 PROPERTIES LABELS a)\n", "tests of a_test have no TIMEOUT"),
    Plant("tests/CMakeLists.txt", "add_test(NAME a COMMAND a)\nset_tests_properties(b PROPERTIES TIMEOUT 1)\n", "tests of a have no TIMEOUT"),
    Plant("tests/base/one_test.cc", '#include "lockstep/base/one.h"\nGTEST_' + "SKIP();\n", "0 skipped tests are agreed, 1 are"),
    Plant("tests/base/one_test.cc", '#include "lockstep/base/one.h"\nTEST(A, DIS' + "ABLED_B) {}\n", "1 are in the sources"),
    Plant(PINNED, "1\n", "1 skipped tests are agreed, 0 are"),
]

if __name__ == "__main__":
    house.run(check, PLANTS)
