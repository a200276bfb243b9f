#!/usr/bin/env python3
"""Files and functions stay short enough to read. What is over a cap needs a dated line in exceptions.txt."""

import re

import house
from house import Plant

EXCEPTIONS = "tests/hygiene/exceptions.txt"
CAPS = {"header": 300, "source": 700, "test": 600, "cmake": 120, "folder-cmake": 40, "script": 300, "function": 60}
# (kind, share of the files, lines): medians and the 90th percentile of the whole.
SHARES = [("header", 0.5, 90), ("source", 0.5, 180), ("source", 0.9, 450)]
FEWEST_FOR_SHARES = 8  # a share of fewer files says nothing


def kind_of(path):
    if path.name == "CMakeLists.txt":
        return "cmake" if len(path.parts) == 1 else "folder-cmake"
    if path.suffix in {".cmake", ".py"} or (path.parts[0] in {"tools", ".ci"} and not path.suffix):
        return "cmake" if path.suffix == ".cmake" else "script"
    if path.suffix not in {".h", ".cc"}:
        return None
    return "test" if path.parts[0] == "tests" else {".h": "header", ".cc": "source"}[path.suffix]


def without_template_heads(text):
    """Drops every `template <...>`, whose `class` would look like a class."""
    while True:
        match = re.search(r"\btemplate\s*<", text)
        if not match:
            return text
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"<": 1, ">": -1}.get(text[end], 0)
            end += 1
        text = text[: match.start()] + text[end:]


def without_parentheses(text):
    before = None
    while before != text:
        before, text = text, re.sub(r"\([^()]*\)", "", text)
    return text


def opens(head):
    """What a brace after `head` opens: 'scope' (namespace, class), 'data' (an initializer) or 'body'."""
    head = without_template_heads(re.sub(r"\boperator\s*[^\s\w(]+", "operator", head))
    flat = without_parentheses(head)
    if "(" not in head and re.search(r"\b(namespace|class|struct|union|enum|extern)\b", flat):
        return "scope"
    if re.search(r"\b(class|struct)\b", flat) and not re.search(r"\)\s*(const|noexcept|override|final|\s)*$", head.rstrip()):
        return "scope"
    return "data" if "=" in flat else "body"


def functions(text):
    """(line, number of lines) of each outermost brace block that is not a scope or an initializer."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group(0).count("\n"), house.bare_code(text), flags=re.MULTILINE)
    found, stack, head, line = [], [], "", 1
    for character in code:
        if character == "\n":
            line += 1
        inside = any(kind != "scope" for kind, _ in stack)
        if character == "{":
            stack.append(("body" if inside else opens(head), line))
            head = ""
        elif character == "}" and stack:
            kind, first = stack.pop()
            if kind == "body" and all(outer == "scope" for outer, _ in stack):
                found.append((first, line - first + 1))
            head = ""
        elif character == ";":
            head = ""
        elif not inside:
            head += character
    return found


def read_exceptions(root):
    """{(rule, path): (line, limit)} and problems of form."""
    found, problems = {}, []
    for number, line in enumerate(house.text_of(root, EXCEPTIONS).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.match(r"^\d{4}-\d{2}-\d{2} ([a-z-]+) (\S+) (\d+) (\S.{9,})$", line)
        if match and match.group(1) in CAPS:
            found[match.group(1), match.group(2)] = (number, int(match.group(3)))
        else:
            problems.append(f"{EXCEPTIONS}:{number}: not 'date rule path limit reason' with a rule of {', '.join(CAPS)}")
    return found, problems


def check(place):
    exceptions, problems = read_exceptions(place.root)
    needed, lengths = set(), {}

    def over(rule, path, line, size, what):
        limit = CAPS[rule]
        number, granted = exceptions.get((rule, str(path)), (0, limit))
        if size > limit:
            needed.add((rule, str(path)))
        if size > max(limit, granted):
            problems.append(f"{path}:{line}: {what} has {size} lines; the cap is {max(limit, granted)}")

    for path in house.files(place.root):
        kind = kind_of(path)
        if kind is None:
            continue
        text = house.text_of(place.root, path)
        size = text.count("\n")
        lengths.setdefault(kind, []).append(size)
        over(kind, path, 1, size, f"the {kind}")
        if path.suffix in {".h", ".cc"}:
            for line, length in functions(text):
                over("function", path, line, length, "a function")
    for kind, share, limit in SHARES:
        sizes = sorted(lengths.get(kind, []))
        at = sizes[min(len(sizes) - 1, int(share * len(sizes)))] if sizes else 0
        if len(sizes) >= FEWEST_FOR_SHARES and at > limit:
            problems.append(f"the {share:.0%} mark of all {len(sizes)} {kind}s is {at} lines; the limit is {limit}")
    for key, (number, _) in exceptions.items():
        if key not in needed:
            problems.append(f"{EXCEPTIONS}:{number}: no longer needed; remove the line")
    return problems


def lines(count):
    return "int x;\n" * count


BODY = "  f();\n" * 61
PLANTS = [
    Plant("lockstep/base/bad.h", lines(301), "lockstep/base/bad.h:1: the header has 301 lines; the cap is 300"),
    Plant("lockstep/base/bad.cc", lines(701), "the source has 701 lines"),
    Plant("tests/base/bad_test.cc", lines(601), "the test has 601 lines"),
    Plant("bench/CMakeLists.txt", lines(41), "the folder-cmake has 41 lines"),
    Plant("lockstep/base/bad.cc", "namespace a {\nvoid f(int x = 3) {\n" + BODY + "}\n}\n", "bad.cc:2: a function has 63 lines"),
    Plant("lockstep/base/bad.cc", "template <class T>\nT g() {\n" + BODY + "}\n", "bad.cc:2: a function has 63 lines"),
    Plant("lockstep/base/bad.cc", "struct A {\n  A() : b_{1} {\n" + BODY + "  }\n};\n", "bad.cc:2: a function has 63 lines"),
    Plant("tests/base/bad_test.cc", "TEST(A, B) {\n" + BODY + "}\n", "a function has 63 lines"),
    Plant(EXCEPTIONS, "2026-01-01 header lockstep/base/one.h 400 it was long once\n", "no longer needed"),
    Plant(EXCEPTIONS, "header lockstep/base/one.h\n", "not 'date rule path limit reason'"),
    Plant(
        EXCEPTIONS,
        "2026-01-01 header lockstep/base/long.h 310 a table that reads best whole\n",
        "long.h:1: the header has 320 lines; the cap is 310",
        {"lockstep/base/long.h": lines(320)},
    ),
    Plant("lockstep/base/h0.h", lines(200), "the 50% mark of all 13 headers", {f"lockstep/base/h{i}.h": lines(200) for i in range(1, 10)}),
    Plant("lockstep/base/s0.cc", lines(600), "the 90% mark of all", {f"lockstep/base/s{i}.cc": lines(1 if i > 2 else 600) for i in range(1, 10)}),
]

if __name__ == "__main__":
    house.run(check, PLANTS)
