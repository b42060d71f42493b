"""Draws a workflow as a flowchart in Mermaid's language: its steps, and the ways between them.

Branches and loops are boxes around their steps. What a workflow's author wrote is escaped, so that it stays
text in whatever shows the chart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coupler.workflow.language.model import ApprovalGate, Goto, Step, Workflow, inner_lists
from coupler.workflow.steps.kinds import kind_of, title_of

LONGEST_LABEL = 60
"""Characters of a label."""

_START, _END = "begin", "finish"

_HARMLESS = " .,:;?!…_+-*/=()[]'"


def mermaid(workflow: Workflow) -> str:
    """Return the flowchart of a workflow."""
    return "\n".join(["flowchart TD", *_Chart(workflow).lines()]) + "\n"


class _Chart:
    """Numbers the steps, so that no id means something in Mermaid."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._count = 0

    def lines(self) -> Iterator[str]:
        hooks = self._workflow.hooks
        yield f"  {_START}((start))"
        yield from self._list(self._workflow.steps, _START, _END, "  ")
        yield f"  {_END}((end))"
        for name, steps, way in (
            ("start", hooks.start, f"{_START} -.-> hooks_start"),
            ("error", hooks.error, f"{_END} -.->|failed| hooks_error"),
            ("cancel", hooks.cancel, f"{_END} -.->|cancelled| hooks_cancel"),
            ("end", hooks.end, f"{_END} -.-> hooks_end"),
        ):
            if steps:
                yield from self._box(f"hooks_{name}", f"hooks: {name}", [steps], "  ")
                yield f"  {way}"

    def _list(
        self, steps: Sequence[Step], before: str | None, after: str | None, indent: str
    ) -> Iterator[str]:
        """Yield steps and the edges between them; `before` and `after` are nodes around the list, if any."""
        names = [self._name(step) for step in steps]
        for step, name in zip(steps, names, strict=True):
            yield from self._step(step, name, indent)
        entries = [_entry(step, name) for step, name in zip(steps, names, strict=True)]
        if before is not None:
            yield f"{indent}{before} --> {entries[0]}"
        by_id = {step.id: entry for step, entry in zip(steps, entries, strict=True)}
        for number, (step, name) in enumerate(zip(steps, names, strict=True)):
            following = entries[number + 1] if number + 1 < len(steps) else after
            for way in _ways(step, name, following, after, by_id):
                yield f"{indent}{way}"

    def _name(self, step: Step) -> str:
        self._count += 1
        return f"s{self._count}_{step.id}"

    def _step(self, step: Step, name: str, indent: str) -> Iterator[str]:
        if step.condition is not None:
            yield f'{indent}{name}_if{{"if {label(str(step.condition))}"}}'
        if _asks_before(step):
            question = step.gate.question if step.gate is not None else None
            yield f'{indent}{name}_gate{{"{label(question or f"Run {step.id}?")}"}}'
        kind, inner = kind_of(step), [*inner_lists(step)]
        if inner:
            title = f"{step.description or step.id}: {kind.box_title(step)}"
            yield from self._box(name, title, inner, indent)
        else:
            opening, closing = kind.shape
            title = label(title_of(step))
            text = f"<b>{step.id}</b><br/>{title}" if step.is_named else title
            yield f'{indent}{name}{opening}"{text}"{closing}'

    def _box(self, name: str, title: str, lists: Sequence[Sequence[Step]], indent: str) -> Iterator[str]:
        yield f'{indent}subgraph {name}["{label(title)}"]'
        entries: list[str] = []
        ends: dict[str, str] = {}
        for steps in lists:
            # The steps of a list are numbered before what is inside of them.
            first, last = self._count + 1, self._count + len(steps)
            entries.append(_entry(steps[0], f"s{first}_{steps[0].id}"))
            ends |= dict.fromkeys((step.id for step in steps), f"s{last}_{steps[-1].id}")
            yield from self._list(steps, None, None, f"{indent}  ")
        for steps, entry in zip(lists, entries, strict=True):
            yield from (f"{indent}  {ends[each]} --> {entry}" for each in steps[0].needs if each in ends)
        yield f"{indent}end"


def label(text: str) -> str:
    """Escape a text for a chart, in one line."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    cut = line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 1]}…"
    return "".join(char if char.isalnum() or char in _HARMLESS else f"#{ord(char)};" for char in cut)


def _entry(step: Step, name: str) -> str:
    """The node where a step is entered."""
    if step.condition is not None:
        return f"{name}_if"
    return f"{name}_gate" if _asks_before(step) else name


def _asks_before(step: Step) -> bool:
    return step.gate is not None and (step.gate.question is not None or not step.gate.tools)


def _ways(
    step: Step, name: str, following: str | None, after: str | None, entries: dict[str, str]
) -> Iterator[str]:
    """The edges from a step, and from the questions before it."""
    if step.condition is not None:
        yield f"{name}_if -->|yes| {f'{name}_gate' if _asks_before(step) else name}"
        yield from _to(f"{name}_if", "-->|no|", following)
    if step.gate is not None and _asks_before(step):
        yield f"{name}_gate -->|yes| {name}"
        yield from _denied(f"{name}_gate", step.gate, following, after)
    kind = kind_of(step)
    own_gate = kind.own_gate(step)
    if own_gate is not None:
        yield from _denied(name, own_gate, following, after)
    word = "" if own_gate is None else "yes"
    yield from _onwards(step, name, word, after if kind.leaves_list else following, entries)
    if step.on_error is not None:
        for error, handling in (("error", step.on_error.default), *step.on_error.of_kinds.items()):
            if isinstance(handling, Goto):
                yield from _goto(name, f"on {error}", "-.->", handling, entries)


def _onwards(
    step: Step, name: str, word: str, following: str | None, entries: dict[str, str]
) -> Iterator[str]:
    if step.goto is not None:
        yield from _goto(name, word or "goto", "-->", step.goto, entries)
    else:
        yield from _to(name, f"-->|{word}|" if word else "-->", following)


def _denied(name: str, gate: ApprovalGate, following: str | None, after: str | None) -> Iterator[str]:
    if gate.on_deny == "skip":
        yield from _to(name, "-->|no|", following)
    else:
        yield from _to(name, f"-->|no: {gate.on_deny}|", after)


def _goto(name: str, word: str, arrow: str, target: Goto, entries: dict[str, str]) -> Iterator[str]:
    if target.step in entries:
        times = f", at most {target.most} times" if target.most is not None else ""
        yield f"{name} {arrow}|{word}{times}| {entries[target.step]}"


def _to(name: str, arrow: str, following: str | None) -> Iterator[str]:
    if following is not None:
        yield f"{name} {arrow} {following}"
