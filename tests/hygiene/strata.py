#!/usr/bin/env python3
"""Draws layers.txt as docs/strata.svg: every folder once, and arrows to what it may include.

    python3 tests/hygiene/strata.py        writes the picture; strata_test.py compares it with layers.txt

An arrow that others imply is left out, and so is every arrow to base, on which all stand. A folder stands as high as what it
includes needs, and then as near to its users as it can. Orders of rows are chosen to cross few arrows; nothing is random."""

import math
import pathlib
import xml.sax.saxutils

import house

PAGE = "docs/strata.svg"
ABOUT = {  # what a folder is, in a few words; a new folder needs its own
    "base": "ids, units, errors, JSON: the standard library alone",
    "config": "files with spans",
    "mesh": "ranks and axes",
    "model": "models as data",
    "parts": "units, part by part",
    "cluster": "devices, networks",
    "pipeline": "schedules",
    "program": "the step, op by op",
    "files": "durable files",
    "data": "token files",
    "checkpoint": "state on disk",
    "metrics": "what a run writes",
    "comm": "collectives",
    "comm/local": "between threads",
    "launch": "starts ranks",
    "sim": "virtual clock",
    "pipeline/search": "finds schedules",
    "draw": "pictures of a step",
    "exec": "runs a program",
    "cost": "bytes of a step",
    "cost/analytic": "closed-form prices",
    "cost/measured": "measured prices",
    "spec": "the run file",
    "observe": "what own runs say of others",
    "backtest": "published runs",
    "hf": "Hugging Face",
    "audit": "others' steps",
    "planner": "finds layouts",
    "planner/emit": "others' flags",
    "tensor": "tensors, devices",
    "comm/c10d": "rendezvous",
    "comm/gloo": "over TCP",
    "comm/nccl": "between GPUs",
    "comm/backends": "the table of them",
    "doctor": "what works here",
    "nn": "forward, backward",
    "optim": "AdamW, norms",
    "cuda": "kernels by nvcc",
    "generate": "text, token by token",
    "runtime": "values as tensors",
    "train": "the training loop",
    "verify": "the proof",
    "audit/reference": "computed here",
}
BOX, HEIGHT, GAP, RISE, MARGIN = 118, 38, 16, 46, 22
LANE = 12  # width of an arrow that passes a row
STIFF = 8  # how much a long arrow insists on its place; a folder by its number of arrows
LEFT = 64  # of the names of both sides of the fence
STYLE = """text{font-size:12px}
.below{fill:#dbe9f4;stroke:#00548c}
.above{fill:#fbe3c9;stroke:#d55e00}
.ground{fill:#00548c}
.top{fill:#303030}
.name{font-weight:bold;text-anchor:middle}
.about{font-size:10px;fill:#444;text-anchor:middle}
.light{fill:#fff}
.arrow{fill:none;stroke:#78909c;stroke-width:1.1;marker-end:url(#tip)}
.arrow.torch{stroke:#c98a55;marker-end:url(#warm)}
.fence{stroke:#d55e00;stroke-width:2;stroke-dasharray:9 5}
.label{font-size:11px;fill:#d55e00}
.note{font-size:11px;fill:#666}
.side{font-size:11px;fill:#666;text-anchor:middle}
"""

NOTE = "An arrow points to what a folder may include. Those that others imply are left out, and those to base, on which all stand."


def reduced(layers):
    """{folder: what it includes directly}, without what others of these include already and without base."""
    include = {layer.name: set(layer.may_include) for layer in layers}
    below = {}
    for layer in layers:  # bottom up
        below[layer.name] = set(include[layer.name]).union(*(below[name] for name in include[layer.name]))
    return {
        name: sorted(direct - {"base"} - set().union(*(below[other] for other in direct)))
        for name, direct in include.items()
        if name != "base"
    }


def rows_of(layers, arrows):
    """{folder: its row}, 0 the lowest; those above the fence behind all the others."""
    torch = {layer.name for layer in layers if layer.torch}
    users = {name: [other for other in arrows if name in arrows[other]] for name in arrows}
    row = {}
    for layer in layers:
        if layer.name in arrows and not layer.torch:
            row[layer.name] = max((row[name] + 1 for name in arrows[layer.name]), default=0)
    fence = max(row.values())
    for layer in layers:
        if layer.torch:
            row[layer.name] = max([row[name] + 1 for name in arrows[layer.name]] + [fence + 1])
    top = max(row.values())
    for _ in range(len(arrows)):
        for name in arrows:
            least = max([row[other] + 1 for other in arrows[name]] + [fence + 1 if name in torch else 0])
            most = min([row[other] - 1 for other in users[name]] + [top if name in torch else fence])
            pull = len(users[name]) - len(arrows[name])
            row[name] = most if pull > 0 else least if pull < 0 else row[name]
    return row, fence


def ranked(arrows, row):
    """Rows as lists of folders and of (from, to) of arrows that pass, in an order that crosses few arrows; and links."""
    rows = [[] for _ in range(max(row.values()) + 1)]
    for name in arrows:
        rows[row[name]].append(name)
    links = []  # (upper, lower) in neighbouring rows
    for name, direct in arrows.items():
        for other in direct:
            upper = name
            for level in range(row[name] - 1, row[other], -1):
                rows[level].append((name, other))
                links.append(((level + 1, upper), (level, (name, other))))
                upper = (name, other)
            links.append(((row[other] + 1, upper), (row[other], other)))
    near = {}
    for upper, lower in links:
        near.setdefault(upper, []).append(lower)
        near.setdefault(lower, []).append(upper)
    best, least = [list(one) for one in rows], crossings(rows, links)
    for sweep in range(60):
        levels = range(len(rows)) if sweep % 2 else range(len(rows) - 1, -1, -1)
        for level in levels:
            side = -1 if sweep % 2 else 1
            place = {(at, key): (i + 0.5) / len(one) for at, one in enumerate(rows) for i, key in enumerate(one)}

            def centre(key):
                beside = [place[end] for end in near.get((level, key), []) if end[0] == level + side]
                return math.fsum(beside) / len(beside) if beside else place[(level, key)]

            rows[level].sort(key=centre)
            exchange(rows, level, links)
        count = crossings(rows, links)
        if count < least:
            best, least = [list(one) for one in rows], count
    return best, links


def crossings(rows, links, only=None):
    place = {(at, key): i for at, one in enumerate(rows) for i, key in enumerate(one)}
    total = 0
    for level in range(1, len(rows)):
        if only is not None and level not in only:
            continue
        pairs = [(place[upper], place[lower]) for upper, lower in links if upper[0] == level]
        total += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for i, a in enumerate(pairs) for b in pairs[:i])
    return total


def exchange(rows, level, links):
    """Neighbours change places as long as that crosses fewer arrows."""
    one, better = rows[level], True
    while better:
        better = False
        for i in range(len(one) - 1):
            before = crossings(rows, links, {level, level + 1})
            one[i], one[i + 1] = one[i + 1], one[i]
            if crossings(rows, links, {level, level + 1}) < before:
                better = True
            else:
                one[i], one[i + 1] = one[i + 1], one[i]


def placed(rows, links):
    """{(row, key): x of its middle}, near to what it is linked to, in the order of the rows."""
    width = lambda key: BOX if isinstance(key, str) else LANE
    near = {}
    for upper, lower in links:
        near.setdefault(upper, []).append(lower)
        near.setdefault(lower, []).append(upper)
    x = {}
    for level, one in enumerate(rows):
        at = 0
        for key in one:
            x[(level, key)] = at + width(key) / 2
            at += width(key) + GAP
        for key in one:
            x[(level, key)] -= at / 2
    for sweep in range(200):
        for level in range(len(rows)) if sweep % 2 else range(len(rows) - 1, -1, -1):
            one, wish, weight = rows[level], [], []
            for key in one:
                ends = near.get((level, key), [])
                if not isinstance(key, str):  # straight, as far as there is room
                    ends = [(at, key) for at in range(len(rows)) if (at, key) in x] + ends
                wish.append(math.fsum(x[end] for end in ends) / len(ends) if ends else x[(level, key)])
                weight.append(max(len(ends), 0.01) if isinstance(key, str) else STIFF)
            x.update(zip([(level, key) for key in one], spread(wish, weight, [width(key) for key in one])))
    return x


def spread(wish, weight, widths):
    """Places next to the wished ones, in their order and without overlap: blocks that touch move to their mean wish."""
    blocks = []  # weighted sum of wishes less offsets, weight, (member, offset), room to the left and to the right
    for i, at in enumerate(wish):
        blocks.append([at * weight[i], weight[i], [(i, 0.0)], widths[i] / 2, widths[i] / 2])
        while len(blocks) > 1:
            a, b = blocks[-2], blocks[-1]
            apart = a[4] + GAP + b[3]
            if a[0] / a[1] + apart <= b[0] / b[1]:
                break
            b_members = [(j, off + apart) for j, off in b[2]]
            blocks[-2:] = [[a[0] + b[0] - apart * b[1], a[1] + b[1], a[2] + b_members, a[3], apart + b[4]]]
    out = [0.0] * len(wish)
    for total, weights, members, _, _ in blocks:
        for j, off in members:
            out[j] = total / weights + off
    return out


def draw(layers):
    """The picture; a folder without a description is a ValueError."""
    unknown = [layer.name for layer in layers if layer.name not in ABOUT]
    if unknown:
        raise ValueError("no description in strata.py: " + ", ".join(unknown))
    torch = {layer.name for layer in layers if layer.torch}
    arrows = reduced(layers)
    row, fence = rows_of(layers, arrows)
    rows, links = ranked(arrows, row)
    x = placed(rows, links)
    least = min(x[(at, key)] for at, one in enumerate(rows) for key in one) - BOX / 2
    most = max(x[(at, key)] for at, one in enumerate(rows) for key in one) + BOX / 2
    shift = LEFT + MARGIN - least
    width = round(most + shift + MARGIN)
    extra = 26  # of the fence
    bottom = MARGIN + (len(rows) + 1) * (HEIGHT + RISE) + extra
    y = lambda level: bottom - (level + 1) * (HEIGHT + RISE) - (extra if level > fence else 0)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + HEIGHT + MARGIN + 6}" '
        f'viewBox="0 0 {width} {bottom + HEIGHT + MARGIN + 6}" '
        "font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\">",
        "<title>The strata of Lockstep</title>",
        "<desc>Folders of lockstep/ as layers.txt has them; an arrow points to what a folder may include</desc>",
        f"<style>\n{STYLE}</style>",
        "<defs>",
    ]
    for name, colour in (("tip", "#78909c"), ("warm", "#c98a55")):
        out.append(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 1L7 4L0 7z" fill="{colour}"/></marker>'
        )
    out += ["</defs>", '<rect width="100%" height="100%" fill="#fff"/>']
    line = y(fence) - RISE / 2 - extra / 2
    out.append(f'<path class="fence" d="M{MARGIN} {line:g}H{width - MARGIN}"/>')
    out.append(f'<text class="label" x="{MARGIN}" y="{line - 7:g}">the LibTorch fence</text>')
    out.append(f'<text class="note" x="{LEFT + MARGIN}" y="{bottom + HEIGHT + 17}">{NOTE}</text>')
    for text, middle in (("above: LibTorch", (y(len(rows) - 1) + line) / 2), ("below: no torch", (line + bottom) / 2)):
        out.append(f'<text class="side" transform="translate({MARGIN + 10} {middle:g}) rotate(-90)">{text}</text>')
    for name, direct in arrows.items():
        for other in direct:
            out.append(path_of(name, other, row, x, y, shift, name in torch))
    out.append(bar("top", "cli", "commands: parse, call, print", width, y(len(rows))))
    out.append(bar("ground", "base", ABOUT["base"], width, bottom))
    for name in sorted(arrows, key=lambda name: (-row[name], x[(row[name], name)])):
        left, top = x[(row[name], name)] + shift - BOX / 2, y(row[name])
        kind = "above" if name in torch else "below"
        out.append(f'<rect class="{kind}" x="{left:.1f}" y="{top:g}" width="{BOX}" height="{HEIGHT}" rx="5"/>')
        out.append(f'<text class="name" x="{left + BOX / 2:.1f}" y="{top + 16:g}">{name}</text>')
        about = xml.sax.saxutils.escape(ABOUT[name])
        out.append(f'<text class="about" x="{left + BOX / 2:.1f}" y="{top + 30:g}">{about}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def bar(kind, name, about, width, top):
    middle = (LEFT + width) / 2
    return (
        f'<rect class="{kind}" x="{LEFT + MARGIN}" y="{top:g}" width="{width - LEFT - 2 * MARGIN}" height="{HEIGHT}" rx="5"/>\n'
        f'<text class="name light" x="{middle:g}" y="{top + 16:g}">{name}</text>\n'
        f'<text class="about light" x="{middle:g}" y="{top + 30:g}">{about}</text>'
    )


def path_of(name, other, row, x, y, shift, is_torch):
    points = [(x[(row[name], name)] + shift, y(row[name]) + HEIGHT)]
    for level in range(row[name] - 1, row[other], -1):
        at = x[(level, (name, other))] + shift
        points += [(at, y(level)), (at, y(level) + HEIGHT)]
    points.append((x[(row[other], other)] + shift, y(row[other])))
    text = f"M{points[0][0]:.1f} {points[0][1]:g}"
    for (ax, ay), (bx, by) in zip(points, points[1:]):
        if ax == bx:
            text += f"V{by:g}"
        else:
            bend = (by - ay) / 2
            text += f"C{ax:.1f} {ay + bend:g} {bx:.1f} {by - bend:g} {bx:.1f} {by:g}"
    return f'<path class="arrow{" torch" if is_torch else ""}" d="{text}"/>'


if __name__ == "__main__":
    root = pathlib.Path(__file__).resolve().parents[2]
    (root / PAGE).write_text(draw(house.layers(root)), encoding="utf-8")
