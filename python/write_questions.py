#!/usr/bin/env python3
"""write_questions.py PROGRAM OUT: writes a module with a function for each verb that can be asked, of the verbs' own tables."""

import json
import keyword
import subprocess
import sys
import textwrap

KINDS = {"plan": "Plan", "simulate": "Simulation", "model": "Answer", "cluster": "Answer", "backtest": "Backtest"}


def field(name):
    name = name.lower().replace("-", "_")
    return name + "_" if keyword.iskeyword(name) else name


def type_of(option):
    if option["value"] is None:
        return "bool"
    one = "Literal[%s]" % ", ".join(map(json.dumps, option["choices"])) if option["choices"] else "Word"
    return f"{one} | Sequence[{one}]" if option["repeated"] else one


def function(verb):
    required = [p for p in verb["positionals"] if p["required"]]
    optional = [p for p in verb["positionals"] if not p["required"]]
    signature = [f"{field(p['name'])}: Word" for p in required] + [f"{field(p['name'])}: Word | None = None" for p in optional]
    documented = [(field(p["name"]), p["help"]) for p in verb["positionals"]]
    signature.append("*")
    for option in verb["options"]:
        default = "bool = False" if option["value"] is None else f"{type_of(option)} | None = None"
        signature.append(f"{field(option['name'])}: {default}")
        text = option["help"] + (f" [default: {option['default']}]" if option["default"] else "")
        documented.append((field(option["name"]), text))
    kind = KINDS[verb["name"]]
    doc = "\n".join(textwrap.fill(f"{name}: {text}", 100, initial_indent="        ", subsequent_indent="            ") for name, text in documented)
    return (
        f"def {verb['name']}(\n    " + ",\n    ".join(signature) + f",\n) -> {kind}:\n"
        f'    r"""{verb["summary"]}: `lockstep {verb["name"]}`.\n\n    Args:\n{doc}\n    """\n'
        f"    return _ask({kind}, {verb['name']!r}, locals())\n"
    )


def main(program, out):
    def told(name):
        return json.loads(subprocess.run([program, "help", name, "--json"], check=True, capture_output=True, text=True).stdout)

    verbs = [told(name) for name in KINDS]
    head = (
        '"""The verbs as functions; written by python/write_questions.py of the tables that the program parses by."""\n\n'
        "from __future__ import annotations\n\nimport os\nfrom typing import Literal, Sequence, Union\n\n"
        "from ._answers import Answer, Backtest, Plan, Simulation, _ask\n\n"
        f"__version__ = {verbs[0]['version']!r}\nWord = Union[str, int, float, \"os.PathLike[str]\"]\n"
    )
    functions = [function(verb["commands"][0]) for verb in verbs]
    with open(out, "w", encoding="utf-8") as file:
        file.write(head + "".join("\n\n" + one for one in functions))


if __name__ == "__main__":
    main(*sys.argv[1:])
