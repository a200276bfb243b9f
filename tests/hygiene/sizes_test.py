#!/usr/bin/env python3
"""Files and functions stay short enough to read: a file above 400 lines is named, one above 900 is refused, so that
what belongs together can stay together; a function has at most 60; a line of C++ has at most 100 columns, except in
literals of several lines and in tables that clang-format is told to leave."""

import re

import house
from house import Plant

WARN_LINES, MOST_LINES, MOST_OF_FUNCTION, COLUMNS = 400, 900, 60, 100
CODE = {".h", ".cc", ".py", ".cmake"}


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


def wide_lines(text):
    """(line, columns) of each line above the cap that could be broken."""
    free = r'R"(\w*)\(.*?\)\1"|// clang-format off.*?// clang-format on'
    kept = re.sub(free, lambda m: "\n" * m.group(0).count("\n"), text, flags=re.DOTALL)
    return [(n, len(line)) for n, line in enumerate(kept.split("\n"), 1) if len(line) > COLUMNS]


def check(place):
    problems = []
    for path in house.files(place.root):
        if path.suffix not in CODE and path.name != "CMakeLists.txt" and path.parts[0] not in {"tools", ".ci"}:
            continue
        text = house.text_of(place.root, path)
        size = text.count("\n")
        if size > MOST_LINES:
            problems.append(f"{path}:1: the file has {size} lines; the cap is {MOST_LINES}")
        elif size > WARN_LINES:
            print(f"{path}:1: the file has {size} lines; more than {WARN_LINES} should be one thing")
        if path.suffix in {".h", ".cc"}:
            for line, length in functions(text):
                if length > MOST_OF_FUNCTION:
                    problems.append(f"{path}:{line}: a function has {length} lines; the cap is {MOST_OF_FUNCTION}")
            for line, columns in wide_lines(text):
                problems.append(f"{path}:{line}: the line has {columns} columns; the cap is {COLUMNS}")
    return problems


def lines(count):
    return "int x;\n" * count


BODY = "  f();\n" * 61
WIDE = "// " + "x" * 98 + "\n"
PLANTS = [
    Plant("lockstep/base/bad.h", lines(901), "lockstep/base/bad.h:1: the file has 901 lines; the cap is 900"),
    Plant("tests/base/bad_test.cc", lines(901), "the file has 901 lines"),
    Plant("bench/CMakeLists.txt", lines(901), "the file has 901 lines"),
    Plant("lockstep/base/bad.cc", "namespace a {\nvoid f(int x = 3) {\n" + BODY + "}\n}\n", "bad.cc:2: a function has 63 lines"),
    Plant("lockstep/base/bad.cc", "template <class T>\nT g() {\n" + BODY + "}\n", "bad.cc:2: a function has 63 lines"),
    Plant("lockstep/base/bad.cc", "struct A {\n  A() : b_{1} {\n" + BODY + "  }\n};\n", "bad.cc:2: a function has 63 lines"),
    Plant("lockstep/base/bad.h", 'auto s = R"(a\nb)";\n' + WIDE, "bad.h:3: the line has 101 columns; the cap is 100"),
    Plant("lockstep/base/bad.cc", "// clang-format off\n" + WIDE + "// clang-format on\n" + WIDE, "bad.cc:4: the line has 101"),
    Plant("tests/base/bad_test.cc", "TEST(A, B) {\n" + BODY + "}\n", "a function has 63 lines"),
]

if __name__ == "__main__":
    house.run(check, PLANTS)
