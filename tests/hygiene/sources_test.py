#!/usr/bin/env python3
"""How source files are written: plain ASCII, quiet library code, tidy headers, and no trace of one machine."""

import re

import house
from house import Plant

CODE = {".h", ".cc"}
ASCII = CODE | {".py", ".cmake", ".txt", ".json", ".toml", ".sh", ""}
SETTINGS = ("TOML_", "JSON_", "CLI11_")  # options of a third-party header, set by the one source that includes it
MAY_PRINT = {"lockstep/obs/sink.cc"}

# In library code; comments and literals are blanked before these are applied.
LOUD = [
    (re.compile(r"\bstd::(cout|cerr|clog|wcout|wcerr)\b|\b(stdout|stderr)\b"), "prints"),
    (re.compile(r"(?<![\w.>])(?:std::)?(printf|vprintf|puts|putchar|perror)\s*\("), "prints"),
    (re.compile(r"\bstd::(exit|abort|_Exit|quick_exit|terminate)\b|(?<![\w.>:])(exit|_exit|_Exit|quick_exit)\s*\("), "ends the process"),
    (re.compile(r"(?:^|[;{}()]|\belse)\s*(?:::)?abort\s*\("), "ends the process"),
]
# Spelt so that this file does not match itself.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
SPLIT_WORD = re.compile(r"\b[Cc]an" r" not\b")
TRACES = re.compile(
    r"(?<![\w.~$}])/(wo" r"rk|ro" r"ot|ho" r"me|Us" r"ers)/|\bthis ses" r"sion\b|\bAI[- ]gen" r"erated\b|\bCo-Auth" r"ored|\bChat" r"GPT\b|\bClau" r"de\b|\bCo" r"pilot\b",
    re.IGNORECASE,
)


def line_problems(path, text):
    library = path.parts[0] == "lockstep" and path.suffix in CODE
    code_lines = house.bare_code(text).splitlines() if path.suffix in CODE else []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}"
        if path.suffix in ASCII and not line.isascii():
            yield f"{where}: not ASCII: {ascii(''.join(c for c in line if not c.isascii()))}"
        if path.suffix in CODE and line.rstrip() != line:
            yield f"{where}: trailing white space"
        if UNFINISHED.search(line):
            yield f"{where}: unfinished work; finish it or say what is missing in the documents"
        if SPLIT_WORD.search(line):
            yield f"{where}: one word: cannot"
        if TRACES.search(line):
            yield f"{where}: names one machine, or how the text came to be"
        if library and str(path) not in MAY_PRINT:
            for pattern, what in LOUD:
                if pattern.search(code_lines[number - 1]):
                    yield f"{where}: library code {what}"
        if library and (macro := re.match(r"\s*#\s*define\s+(\w+)", code_lines[number - 1])):
            if not macro.group(1).startswith("LS_") and not (path.suffix == ".cc" and macro.group(1).startswith(SETTINGS)):
                yield f"{where}: macro {macro.group(1)} must be called LS_..."


def header_problems(path, text):
    code = house.bare_code(text)
    first = next((line.strip() for line in code.splitlines() if line.strip()), "")
    if first != "#pragma once":
        yield f"{path}:1: the first line of code must be #pragma once"
    for number, line in enumerate(code.splitlines(), 1):
        if re.search(r"\busing\s+namespace\b", line):
            yield f"{path}:{number}: using namespace in a header"


def source_problems(root, path):
    own = path.with_suffix(".h")
    found = list(house.includes(root, path))
    if (root / own).exists() and (not found or found[0][2] != str(own)):
        yield f'{path}:1: the first include must be "{own}"'


def check(place):
    problems = []
    for path in house.files(place.root):
        if path.parts[0] == "LICENSE" or "golden" in path.parts:
            continue
        try:
            text = house.text_of(place.root, path)
        except UnicodeDecodeError:
            problems.append(f"{path}: not text")
            continue
        problems += line_problems(path, text)
        if text and not text.endswith("\n"):
            problems.append(f"{path}: no newline at the end")
        if path.suffix == ".h":
            problems += header_problems(path, text)
        if path.suffix == ".cc":
            problems += source_problems(place.root, path)
    return problems


def library(text):
    return "lockstep/base/bad.cc", "void f() {\n" + text + "\n}\n"


PLANTS = [
    Plant(*library("  std::cout << 1;"), "bad.cc:2: library code prints"),
    Plant(*library("  fprintf(stderr, x);"), "library code prints"),
    Plant(*library("  printf(x);"), "library code prints"),
    Plant(*library("  std::exit(1);"), "library code ends the process"),
    Plant(*library("  exit(1);"), "library code ends the process"),
    Plant(*library("  if (x) abort();"), "library code ends the process"),
    Plant(*library("  _Exit(1);"), "library code ends the process"),
    Plant(*library("#define CHECK 1"), "macro CHECK must be called LS_"),
    Plant("lockstep/base/bad.h", "#pragma once\n#define TOML_X 1\n", "macro TOML_X must be called LS_"),
    Plant(*library("  // caf\u00e9"), "not ASCII"),
    Plant(*library("  // TO" + "DO later"), "unfinished work"),
    Plant(*library("  f();  "), "trailing white space"),
    Plant("docs/x.md", "in /ro" + "ot/x\n", "names one machine"),
    Plant("docs/x.md", "done in this ses" + "sion\n", "names one machine"),
    Plant("docs/x.md", "it can" + " not\n", "one word: cannot"),
    Plant("docs/x.md", "no end", "no newline at the end"),
    Plant("lockstep/base/bad.h", "int x();\n", "must be #pragma once"),
    Plant("lockstep/base/bad.h", "#pragma once\nusing namespace std;\n", "using namespace in a header"),
    Plant("lockstep/base/one.cc", '#include <vector>\n#include "lockstep/base/one.h"\n', "the first include must be"),
]
# Must not be reported: a string, a comment, formatting into a buffer, a method called abort.
QUIET = 'void f() {\n  g("std::cout exit(1)");  // exit(1)\n  std::snprintf(b, 1, c);\n  peer.abort(why);\n  peer->exit();\n}\n'
QUIET = "#define TOML_EXCEPTIONS 0\n" + QUIET
house.CLEAN_TREE["lockstep/base/quiet.cc"] = QUIET

if __name__ == "__main__":
    house.run(check, PLANTS)
