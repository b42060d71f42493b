"""Steps as they are written: which kind each is, what it is called, and what it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from coupler.config.lookup import shown
from coupler.workflow.language import definition as d
from coupler.workflow.language.aliases import meant_by
from coupler.workflow.language.keys_steps import KINDS, STEP_TABLES
from coupler.workflow.language.notes import WRONG, Notes, listed
from coupler.workflow.language.reading_inputs import input_of
from coupler.workflow.language.reading_parts import common_of, gate_of, prompted_of
from coupler.workflow.language.source import Fields, Items, Node, Scalar, type_words
from coupler.workflow.language.table import Record

_PROMPTS = ("prompt", "prompt_file")
_KIND_KEYS = {"run_file": "run"} | {kind: kind for kind in KINDS}


@dataclass(frozen=True)
class Setting:
    """What the steps of a file have from the file around them."""

    notes: Notes
    agent: str | None = None
    shell: str | None = None


@dataclass
class Scope:
    """The ids of steps that are told apart by nothing else: those of a list, and of branches in it."""

    prefix: str = ""
    places: dict[str, Node] = field(default_factory=dict)

    def inside(self, parallel: str) -> Scope:
        """For branches: unnamed steps in there are called after the step around them."""
        return Scope(f"{parallel}_", self.places)


def read_steps(node: Items, setting: Setting, scope: Scope | None = None) -> tuple[d.Step, ...]:
    """The steps of a list. What is wrong with them is noted; a step that is wrong is left out."""
    scope = scope or Scope()
    ids = [_id_of(each, number, setting.notes, scope) for number, each in enumerate(node.nodes, 1)]
    steps = [_read_step(each, name, setting, scope) for each, name in zip(node.nodes, ids, strict=True)]
    return tuple(step for step in steps if step is not None)


def _id_of(node: Node, number: int, notes: Notes, scope: Scope) -> str:
    if not isinstance(node, Fields):
        return ""
    written = node.get("id")
    if isinstance(written, Scalar) and isinstance(written.value, str):
        _claim(written.value, written, notes, scope)
        return written.value
    made = f"{scope.prefix}{next(iter(_kinds_of(node)), 'step')}_{number}"
    _claim(made, node, notes, scope)
    return made


def _claim(id: str, node: Node, notes: Notes, scope: Scope) -> None:
    if first := scope.places.get(id):
        line = first.position.line
        notes.wrong(node, f"the id `{shown(id, 60)}` is taken by the step in line {line}: choose another")
    else:
        scope.places[id] = node


def _read_step(node: Node, id: str, setting: Setting, scope: Scope) -> d.Step | None:
    notes = setting.notes
    if not isinstance(node, Fields):
        notes.wrong(node, f"a step must be a mapping with one of {listed([*KINDS])}, not {type_words(node)}")
        return None
    kind = _kind_of(node, setting)
    if kind is None:
        return None
    around, notes.owner = notes.owner, node.position
    try:
        record = STEP_TABLES[kind].read(node, "step", notes)
        inner = _inner(kind, node, id, setting, scope)
        if record is WRONG:
            return None
        return _MAKERS[kind](record, common_of(record, id, kind), setting, inner)
    finally:
        notes.owner = around


def _kind_of(node: Fields, setting: Setting) -> str | None:
    notes, kinds = setting.notes, _kinds_of(node)
    if not kinds:
        notes.wrong(node, f"the step does nothing; {_nearest_kind(node)}")
        return None
    if len(kinds) > 1:
        other = next(name for name in node.values if _KIND_KEYS.get(name) == kinds[1])
        either = " or ".join(f"`{kind}`" for kind in kinds)
        notes.wrong(node.key(other), f"a step does one thing: either {either}")
        return None
    if kinds == ["agent"] and "agent" not in node.values and setting.agent is None:
        notes.wrong(node, "the step has a prompt and no `agent`: name one here, or in `defaults`")
    return kinds[0]


def _kinds_of(node: Fields) -> list[str]:
    """What a step does; `approve` beside something else is its gate, and a prompt alone is for an agent."""
    kinds = [*dict.fromkeys(_KIND_KEYS[name] for name in node.values if name in _KIND_KEYS)]
    others = [kind for kind in kinds if kind != "approve"]
    return others or (["agent"] if _is_prompted(node) else kinds)


def _is_prompted(node: Fields) -> bool:
    return any(name in node.values for name in _PROMPTS)


def _nearest_kind(node: Fields) -> str:
    for name in node.values:
        near = [f"`{each}`" for each in get_close_matches(name[:60], _KIND_KEYS, n=1)]
        if meant := meant_by(name, [*_KIND_KEYS, *_PROMPTS]) or "".join(near):
            return f"did you mean {meant} by `{shown(name, 60)}`?"
    return f"say what with one of {listed([*KINDS])}"


Inner = tuple[tuple[d.Step, ...], ...]


def _inner(kind: str, node: Fields, id: str, setting: Setting, scope: Scope) -> Inner:
    """The lists of steps inside of a step."""
    if kind == "parallel" and isinstance(branches := node.get("parallel"), Items):
        return (*_branches(branches, setting, scope.inside(id)),)
    if kind in ("for_each", "while") and isinstance(steps := node.get("steps"), Items):
        return (read_steps(steps, setting),)
    return ()


def _branches(node: Items, setting: Setting, scope: Scope) -> Iterator[tuple[d.Step, ...]]:
    for number, branch in enumerate(node.nodes, 1):
        if not isinstance(branch, Items):
            step = _read_step(branch, _id_of(branch, number, setting.notes, scope), setting, scope)
            yield (step,) if step is not None else ()
        elif not branch.nodes:
            setting.notes.wrong(branch, "a branch of `parallel` must have at least one step")
        else:
            yield read_steps(branch, setting, Scope(f"{scope.prefix}{number}_", scope.places))


def _run(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    shell: Any = record.get("shell", setting.shell or "sh")
    return d.Run(
        script=record.get("run"),
        file=record.get("run_file"),
        shell=shell,
        **record.only("stdin", "output", "ok_codes"),
        **common,
    )


def _agent(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    agent: Any = record.get("agent", setting.agent)
    return d.Agent(agent=agent, set_up=prompted_of(record), **common)


def _converse(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    turns = record.get("max_turns")
    return d.Converse(agent=record.get("converse"), set_up=prompted_of(record), max_turns=turns, **common)


def _approve(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    asked = record.get("approve")
    if isinstance(asked, Record):
        return d.Approve(question=gate_of(asked), **common)
    beside = record.only("on_deny", "default", "timeout")
    return d.Approve(question=d.Gate(question=asked, **beside), **common)


def _ask(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    answer = input_of(common["id"], record, setting.notes)
    return d.Ask(question=record.get("ask"), answer=answer, **common)


def _parallel(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    return d.Parallel(branches=inner, **record.only("wait", "max_concurrent"), **common)


def _for_each(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    own = record.only("wait", "max_concurrent")
    name = record.get("as", "item")
    return d.ForEach(items=record.get("for_each"), steps=inner[0], name=name, **own, **common)


def _while(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    return d.While(test=record.get("while"), steps=inner[0], **record.only("max_rounds"), **common)


def _call(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    return d.Call(workflow=record.get("call"), **record.only("inputs"), **common)


def _set(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    return d.Set(values=record.get("set"), **common)


def _stop(record: Record, common: dict[str, Any], setting: Setting, inner: Inner) -> d.Step:
    ending = record.get("stop")
    said = {"message": ending} if isinstance(ending, str) else ending.values
    return d.Stop(**said, **common)


_MAKERS: dict[str, Callable[[Record, dict[str, Any], Setting, Inner], d.Step]] = {
    "run": _run,
    "agent": _agent,
    "converse": _converse,
    "approve": _approve,
    "ask": _ask,
    "parallel": _parallel,
    "for_each": _for_each,
    "while": _while,
    "call": _call,
    "set": _set,
    "stop": _stop,
}
