"""What the functions return and raise."""

from __future__ import annotations

import json
import os
from typing import Any, TypeVar

from ._lockstep import ask as _ask_text


class Refused(ValueError):
    """A request that cannot be met: the message and help of each diagnostic; `diagnostics` has their codes and places."""

    def __init__(self, exit_code: int, diagnostics: list[dict[str, Any]]) -> None:
        texts = [one["message"] + (f" ({one['help']})" if one.get("help") else "") for one in diagnostics]
        super().__init__("; ".join(texts))
        self.exit_code = exit_code
        self.diagnostics = diagnostics


class Answer(dict):
    """The object that the verb prints with --json; `notes` is what it says besides, `exit_code` how it ends."""

    def __init__(self, request: dict[str, Any], reply: dict[str, Any]) -> None:
        super().__init__(reply["answer"])
        self.notes: str = reply["notes"]
        self.exit_code: int = reply["exit_code"]
        self._request = request

    def _drawn(self, field: str, **more: Any) -> str | None:
        request = {key: value for key, value in self._request.items() if key not in WRITTEN}
        reply = _reply({**request, **more, field: "drawn"})
        return reply.get("files", {}).get("drawn")


class Plan(Answer):
    """Layouts in `self["plans"]`, the best first. In a notebook it is a picture of the memory of the best."""

    @property
    def best(self) -> dict[str, Any]:
        return self["plans"][0]

    def memory_svg(self) -> str | None:
        """Bars of what each pipeline rank of the best holds; None where several plans are compared."""
        return self._drawn("svg", memory=True) if self.get("plans") else None

    def report_html(self) -> str | None:
        """The page of `lockstep plan --report`: answer, alternatives, reasons, memory, timeline, cost."""
        return self._drawn("report") if self.get("plans") else None

    def _repr_svg_(self) -> str | None:
        return self.memory_svg()


class Simulation(Answer):
    """A schedule on a virtual clock. In a notebook it is a picture of who computes what when."""

    def svg(self) -> str | None:
        """The schedule as a picture; None where several are compared."""
        return None if self._request.get("compare") else self._drawn("svg")

    def _repr_svg_(self) -> str | None:
        return self.svg()


class Backtest(Answer):
    """Errors of predictions. In a notebook it is a picture of predicted against measured step times."""

    def _repr_svg_(self) -> str | None:
        return self._drawn("svg")


# Fields that name a file to write, or ask for another form.
WRITTEN = {"svg", "report", "out", "learned", "trace", "rows", "csv", "emit", "fits"}
Kind = TypeVar("Kind", bound=Answer)


def _reply(request: dict[str, Any]) -> dict[str, Any]:
    reply = json.loads(_ask_text(json.dumps(request, default=_plain)))
    if reply["answer"] is None:
        raise Refused(reply["exit_code"], reply["refusal"]["diagnostics"])
    return reply


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):  # a scalar of numpy
        return value.item()
    if isinstance(value, (set, frozenset)) or not hasattr(value, "__iter__"):
        raise TypeError(f"a request cannot hold {value!r}")
    return list(value)


def _ask(kind: type[Kind], verb: str, fields: dict[str, Any]) -> Kind:
    """Answers, and writes the files that the request names."""
    request = {"verb": verb}
    request.update((key.rstrip("_"), value) for key, value in fields.items() if value is not None)
    reply = _reply(request)
    for name, text in reply["files"].items():
        with open(name, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    return kind(request, reply)
