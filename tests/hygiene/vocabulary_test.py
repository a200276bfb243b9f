#!/usr/bin/env python3
"""docs/vocabulary.md defines every word once, and nothing is called by a word that it retires.

A retired word is looked for in identifiers and in texts that are one name: keys, JSON fields, labels. It is compared part by
part, so that `remade` is found in `least_remade` and `RemadeBlocks`; with () behind it, whole names alone count."""

import functools
import re

import house
from house import Plant

PAGE = "docs/vocabulary.md"
CODE = ("lockstep", "cli", "bench", "tests")


def tables(text):
    """(first header, line, first cell) of every row of the page's tables."""
    header, in_table = "", False
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            in_table = False
        elif not in_table:
            header, in_table = cells[0], True
        elif not re.fullmatch(r"[-: ]*", cells[0]):
            yield header, number, cells[0]


@functools.cache
def parts(name):
    """The words of an identifier: FooBar, foo_bar and kFooBar alike."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return tuple(word.lower() for word in (words[1:] if len(words) > 1 and re.match(r"k[A-Z]", name) else words))


def has(name, retired):
    of, whole = retired
    found = parts(name)
    if whole:
        return found == of
    return any(found[i : i + len(of)] == of for i in range(len(found) - len(of) + 1))


def check(place):
    problems, defined, retired = [], {}, {}
    for header, number, cell in tables(house.text_of(place.root, PAGE)):
        for word in re.split(r",\s*", cell):
            word = word.strip("`")
            if header == "word":
                if word in defined:
                    problems.append(f"{PAGE}:{number}: '{word}' is defined on line {defined[word]} already")
                defined[word] = number
            elif header == "retired":
                retired[word] = (parts(word), word.endswith("()"))
    for path in house.files(place.root, *CODE, suffixes={".h", ".cc"}):
        text = house.text_of(place.root, path)
        lines = zip(house.bare_code(text).splitlines(), text.splitlines())
        for number, (bare, line) in enumerate(lines, 1):
            if bare.lstrip().startswith("#"):
                continue
            names = re.findall(r"[A-Za-z_]\w*", bare) + re.findall(r'"([A-Za-z_]+)"', line if '""' in bare else "")
            for word, of in retired.items():
                for name in {name for name in names if has(name, of)}:
                    problems.append(f"{path}:{number}: '{name}' is called '{word}', which {PAGE} retires")
    return problems


PAGE_TEXT = "| word | means |\n|---|---|\n| rank | a number |\n\n| retired | write |\n|---|---|\n| `remade` | recomputed |\n| `met()` | buffers |\n"
house.CLEAN_TREE[PAGE] = PAGE_TEXT
house.CLEAN_TREE["lockstep/base/fine.cc"] = 'int have_met; // remade\nint meter = sizeof("a text of what is remade");\n'
PLANTS = [
    Plant("lockstep/base/bad.cc", "int least_remade();\n", "bad.cc:1: 'least_remade' is called 'remade'"),
    Plant("cli/bad.cc", "struct RemadeBlocks {};\n", "'RemadeBlocks' is called 'remade'"),
    Plant("cli/bad.cc", "int x = kRemade;\n", "'kRemade' is called 'remade'"),
    Plant("cli/bad.cc", 'json.set("remade", 1);\n', "'remade' is called 'remade'"),
    Plant("tests/base/bad_test.cc", "double met();\n", "'met' is called 'met()'"),
    Plant(PAGE, PAGE_TEXT + "\n| word | means |\n|---|---|\n| rank | another |\n", "'rank' is defined on line 3 already"),
]

if __name__ == "__main__":
    house.run(check, PLANTS)
