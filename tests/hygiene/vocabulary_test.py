#!/usr/bin/env python3
"""docs/vocabulary.md defines every word once, and nothing is called by a word that it retires.

A retired word is looked for in identifiers and in texts that are one name: keys, JSON fields, labels. It is compared part by
part, so that `remade` is found in `least_remade` and `RemadeBlocks`; with () behind it, whole names alone count; of a
constant such as kRemade, and with {} behind a type, the name as it is. A word that is retired in texts is looked for in those of lockstep/ and cli/."""

import functools
import re

import house
from house import Plant

PAGE = "docs/vocabulary.md"
CODE = ("lockstep", "cli", "bench", "tests")


def tables(text):
    """(first header, line, cells) of every row of the page's tables."""
    header, in_table = "", False
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            in_table = False
        elif not in_table:
            header, in_table = cells[0], True
        elif not re.fullmatch(r"[-: ]*", cells[0]):
            yield header, number, cells


@functools.cache
def parts(name):
    """The words of an identifier: FooBar, foo_bar and kFooBar alike."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return tuple(word.lower() for word in (words[1:] if len(words) > 1 and re.match(r"k[A-Z]", name) else words))


def has(name, retired):
    of, how = retired
    if how == "exact":
        return name == of
    found = parts(name)
    if how == "whole":
        return found == of
    return any(found[i : i + len(of)] == of for i in range(len(found) - len(of) + 1))


def check_texts(place, retired):
    """Of (word, pattern, folders and files that may say it)."""
    problems = []
    for path in house.files(place.root, "lockstep", "cli", suffixes={".h", ".cc"}):
        text = house.text_of(place.root, path)
        if not any(pattern.search(text) for _, pattern, _ in retired):
            continue
        for token in house.TOKEN.finditer(text):
            if token.group(0).startswith("/") or re.search(r"#\s*include\s*$", text[: token.start()][-40:]):
                continue
            for word, pattern, may in retired:
                if pattern.search(token.group(0)) and not any(str(path).startswith(one) for one in may):
                    number = text.count("\n", 0, token.start()) + 1
                    problems.append(f"{path}:{number}: a text says '{word}', which {PAGE} retires")
    return problems


def check(place):
    problems, defined, retired, in_texts = [], {}, {}, []
    for header, number, cells in tables(house.text_of(place.root, PAGE)):
        for word in re.split(r",\s*", cells[0]):
            word = word.strip("`")
            if header == "word":
                if word in defined:
                    problems.append(f"{PAGE}:{number}: '{word}' is defined on line {defined[word]} already")
                defined[word] = number
            elif header == "retired":
                is_exact = re.match(r"k[A-Z]", word) or word.endswith("{}")
                retired[word] = (word.removesuffix("{}"), "exact") if is_exact else (parts(word), "whole" if word.endswith("()") else "part")
            elif header == "retired in texts":
                in_texts.append((word, re.compile(rf"\b{re.escape(word)}\b"), tuple(re.split(r",\s*", cells[2])) if cells[2] else ()))
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
    return problems + check_texts(place, in_texts)


PAGE_TEXT = """| word | means |
|---|---|
| rank | a number |

| retired | write |
|---|---|
| `remade` | recomputed |
| `met()` | buffers |
| `kPublish`, `Told{}` | kGather, Entry |

| retired in texts | write | except in |
|---|---|---|
| hop, held out | P2P, validation | lockstep/mesh |
"""
house.CLEAN_TREE[PAGE] = PAGE_TEXT
house.CLEAN_TREE["lockstep/base/fine.cc"] = 'int have_met; // remade\nint meter = sizeof("a text of what is remade");\nint publish, hop, told;\n'
house.CLEAN_TREE["lockstep/mesh/fine.cc"] = 'const char* text = "a hop";\n'
PLANTS = [
    Plant("lockstep/base/bad.cc", "int least_remade();\n", "bad.cc:1: 'least_remade' is called 'remade'"),
    Plant("cli/bad.cc", "struct RemadeBlocks {};\n", "'RemadeBlocks' is called 'remade'"),
    Plant("cli/bad.cc", "int x = kRemade;\n", "'kRemade' is called 'remade'"),
    Plant("cli/bad.cc", 'json.set("remade", 1);\n', "'remade' is called 'remade'"),
    Plant("tests/base/bad_test.cc", "double met();\n", "'met' is called 'met()'"),
    Plant("cli/bad.cc", "int x = kPublish;\n", "'kPublish' is called 'kPublish'"),
    Plant("cli/bad.cc", "std::vector<Told> all;\n", "'Told' is called 'Told{}'"),
    Plant("cli/bad.cc", 'print("of one hop, held-out");\n', "cli/bad.cc:1: a text says 'hop'"),
    Plant("lockstep/base/bad.cc", '\nprint(R"(looked at\nheld out)");\n', "bad.cc:2: a text says 'held out'"),
    Plant(PAGE, PAGE_TEXT + "\n| word | means |\n|---|---|\n| rank | another |\n", "'rank' is defined on line 3 already"),
]

if __name__ == "__main__":
    house.run(check, PLANTS)
