#!/usr/bin/env python3
"""Links inside the documents lead somewhere, headings included."""

import re

import house
from house import Plant

LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")


def prose(text):
    """Markdown with fenced blocks and inline code blanked."""
    text = re.sub(r"^(```|~~~).*?^\1", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(text):
    fenceless = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+\s+(.*)$", fenceless, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def check(place):
    problems = []
    for path in house.files(place.root, suffixes={".md"}):
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
    Plant("docs/x.md", "see [y](y.md)\n", "docs/x.md:1: 'y.md' leads nowhere"),
    Plant("docs/x.md", "# A b\n\nsee [c](#c)\n", "names no heading"),
    Plant("docs/x.md", "see [r](../README.md#none)\n", "names no heading"),
]
house.CLEAN_TREE["docs/good.md"] = "# A b\n\n[home](../README.md#lockstep) [here](#a-b) [out](https://example.org/x) `[no](no.md)`\n"

if __name__ == "__main__":
    house.run(check, PLANTS)
