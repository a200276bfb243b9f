#!/usr/bin/env python3
"""Links inside the documents lead somewhere, headings included; code that a page shows under the name of a file is that file's;
and docs/README.md lists every page of docs/."""

import re

import house
from house import Plant

LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
QUOTE = re.compile(r"^<!-- (\S+/\S+) -->\n```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)  # <!-- path of a file -->, then its text
INDEX = "docs/README.md"


def prose(text):
    """Markdown with fenced blocks and inline code blanked."""
    text = re.sub(r"^(```|~~~).*?^\1", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(text):
    fenceless = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+\s+(.*)$", fenceless, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def check_quotes(place, path):
    text = house.text_of(place.root, path)
    for quote in QUOTE.finditer(text):
        name, shown = quote.groups()
        number = text.count("\n", 0, quote.start()) + 1
        if not (place.root / name).is_file():
            yield f"{path}:{number}: shows '{name}', which is not there"
        elif house.text_of(place.root, name) != shown:
            yield f"{path}:{number}: is not what '{name}' says"


def check_index(place):
    pages = {path for path in house.files(place.root, "docs", suffixes={".md"}) if str(path) != INDEX}
    if not (place.root / INDEX).is_file():
        return [f"{INDEX}:1: lists no page"] if pages else []
    links = LINK.findall(prose(house.text_of(place.root, INDEX)))
    listed = {(place.root / "docs" / link.partition("#")[0]).resolve() for link in links if not re.match(r"[a-z]+:", link)}
    return [f"{INDEX}:1: does not list {path}" for path in sorted(pages) if (place.root / path).resolve() not in listed]


def check(place):
    problems = check_index(place)
    for path in house.files(place.root, suffixes={".md"}):
        problems += check_quotes(place, path)
        for number, line in enumerate(prose(house.text_of(place.root, path)).splitlines(), 1):
            for link in LINK.findall(line):
                if re.match(r"[a-z]+:", link):
                    continue
                name, _, anchor = link.partition("#")
                target = (path.parent / name) if name else path
                if not (place.root / target).exists():
                    problems.append(f"{path}:{number}: '{link}' leads nowhere")
                elif anchor and anchor not in anchors(house.text_of(place.root, target)):
                    problems.append(f"{path}:{number}: '{link}' names no heading of {target}")
    return problems


PLANTS = [
    Plant("docs/good.md", "see [y](y.md)\n", "docs/good.md:1: 'y.md' leads nowhere"),
    Plant("docs/good.md", "# A b\n\nsee [c](#c)\n", "names no heading"),
    Plant("docs/good.md", "see [r](../README.md#none)\n", "names no heading"),
    Plant("docs/good.md", "\n<!-- lockstep/base/one.h -->\n```cpp\nint one();\n```\n", "docs/good.md:2: is not what 'lockstep/base/one.h' says"),
    Plant("docs/good.md", "<!-- lockstep/base/none.h -->\n```cpp\n```\n", "which is not there"),
    Plant("docs/x.md", "# X\n", "docs/README.md:1: does not list docs/x.md"),
]
house.CLEAN_TREE[INDEX] = "[good](good.md#a-b) [out](https://example.org/x.md)\n"
house.CLEAN_TREE["docs/good.md"] = "<!-- layers.txt -->\n```\nnot a path\n```\n<!-- tests/hygiene/skipped.txt -->\n```\n0\n```\n# A b\n\n[home](../README.md#lockstep) [here](#a-b) [out](https://example.org/x) `[no](no.md)`\n"

if __name__ == "__main__":
    house.run(check, PLANTS)
