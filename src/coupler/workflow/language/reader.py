"""Reads a workflow file into the model; reports all problems at once, with line and column."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeGuard, cast

import msgspec

from coupler.config.lookup import printable
from coupler.fields.bounded_regex import Pattern
from coupler.redaction.sources import declares_secret
from coupler.workflow.errors import InputError, InvalidWorkflowError, Problem, WorkflowError
from coupler.workflow.language import model as d
from coupler.workflow.language.error_recovery import ErrorRecovery, RemovedParts
from coupler.workflow.language.inputs import check_value
from coupler.workflow.language.keys import (
    FREE_NAME_PATTERN,
    FREE_NAME_WORDS,
    HOOKS,
    KINDS,
    STEP_TABLES,
    WORKFLOW,
)
from coupler.workflow.language.model import Input, Json, advice_about, key_meant_by
from coupler.workflow.language.values import WRONG, Notes, Record, Written, listed
from coupler.workflow.language.yaml_source import (
    MOST_BYTES,
    YamlList,
    YamlMapping,
    YamlNode,
    YamlScalar,
    parse_yaml,
    plain_value,
    type_in_words,
)

MOST_ROUNDS = 8
"""Most rounds in which faulty parts are removed from a file."""
MOST_FILE_BYTES = 1024 * 1024
"""Most bytes of a file that a workflow names."""


@dataclass(frozen=True)
class Reading:
    """A workflow, and what is needed to locate something in its file."""

    workflow: d.Workflow
    root: YamlMapping
    written: tuple[Written, ...]
    """All templates and expressions of the file, in its order."""
    gaps: RemovedParts | None = None
    """The parts that were removed from a faulty file; None if it is whole."""


class PartlyReadError(InvalidWorkflowError):
    """A file is wrong in parts; has the rest of it for more checks."""

    def __init__(self, problems: Sequence[Problem], rest: Reading) -> None:
        super().__init__(problems)
        self.rest = rest


def read_workflow(path: str) -> d.Workflow:
    """Read a file; raises InvalidWorkflowError, or WorkflowError if the file cannot be read."""
    return read_with_places(path).workflow


def read_text(text: str, path: str) -> d.Workflow:
    """Read text that was loaded already; files that it names are looked for beside `path`."""
    return _read(text, path).workflow


def read_with_places(path: str) -> Reading:
    """Read a file together with the places of its templates and expressions."""
    return _read(load(path, MOST_BYTES), path)


def load(path: str, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """Return the content of a regular file; raises WorkflowError."""
    try:
        # Opening a pipe would wait for somebody to write into it.
        flags = getattr(os, "O_NONBLOCK", 0)
        with open(path, "rb", opener=lambda path, usual: os.open(path, usual | flags)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise WorkflowError(f"{path} is no file")
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise WorkflowError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(content) > most_bytes:
        raise WorkflowError(f"{path} is too large: at most {most_bytes:,} bytes are read")
    return content


def files_of(workflow: d.Workflow) -> list[tuple[str, d.SourcePosition]]:
    """Return the files that a workflow names, relative to its directory, and where it names them."""
    return [(file.name, file.position) for file in workflow.files]


def _read(source: bytes | str, path: str) -> Reading:
    path = str(Path(path).absolute())
    root = parse_yaml(source, path)
    notes = Notes(path, root.position)
    if not isinstance(root, YamlMapping):
        notes.wrong(root, f"a workflow is a mapping with `steps`, not {type_in_words(root)}")
        raise InvalidWorkflowError(notes.problems)
    workflow = _read_keys(root, notes)
    if workflow is None:
        raise _partly_read(root, notes)
    return Reading(workflow, root, (*notes.written,))


def _partly_read(root: YamlMapping, notes: Notes) -> InvalidWorkflowError:
    """Return all problems with the keys of a file; some show only when other faulty parts are removed."""
    mending, problems = ErrorRecovery(), [*notes.problems]
    workflow: d.Workflow | None = None
    for _ in range(MOST_ROUNDS):
        left = mending.mended(root, notes.faulty)
        if left is None:
            break
        root, notes = left, Notes(notes.file, left.position)
        workflow = _read_keys(root, notes)
        # What is wrong with a mapping that lost something may be so for that reason.
        problems += [each for each in notes.problems if each.position not in mending.gaps.places]
        if workflow is not None:
            break
    problems.sort(key=_place)
    if workflow is None:
        return InvalidWorkflowError(problems)
    return PartlyReadError(problems, Reading(workflow, root, (*notes.written,), mending.gaps))


def _read_keys(root: YamlMapping, notes: Notes) -> d.Workflow | None:
    """The workflow that the keys declare; None if something is wrong."""
    record = WORKFLOW.read(root, "workflow", notes)
    setting = _setting(root, notes)
    steps, hooks = _steps(root.get("steps"), setting), _hooks(root.get("hooks"), setting)
    profiles = {name: _hooks(hooks, setting) for name, hooks in _hooks_of_agents(root).items()}
    if notes.problems:
        return None
    workflow = _workflow(record, steps, hooks, profiles, notes)
    return None if notes.problems else workflow


def _place(problem: Problem) -> tuple[int, int]:
    return problem.position.line, problem.position.column


def _setting(root: YamlMapping, notes: Notes) -> Setting:
    """Return the settings for steps, even if other parts of the file are wrong."""
    defaults = root.get("defaults")
    if not isinstance(defaults, YamlMapping):
        return Setting(notes)
    agent, shell = defaults.get("agent"), defaults.get("shell")
    return Setting(notes, *(_text(agent), _text(shell)))


def _text(node: YamlNode | None) -> str | None:
    return node.value if isinstance(node, YamlScalar) and isinstance(node.value, str) else None


def _steps(node: YamlNode | None, setting: Setting) -> tuple[d.Step, ...]:
    return read_steps(node, setting) if isinstance(node, YamlList) else ()


def _hooks(node: YamlNode | None, setting: Setting) -> d.Hooks | None:
    if not isinstance(node, YamlMapping):
        return None
    return d.Hooks(**{moment: _steps(node.get(moment), setting) for moment in HOOKS.names})


def _hooks_of_agents(root: YamlMapping) -> dict[str, YamlNode]:
    agents = root.get("agents")
    profiles = agents.values if isinstance(agents, YamlMapping) else {}
    return {name: profile.values["hooks"] for name, profile in profiles.items() if _has_hooks(profile)}


def _has_hooks(profile: YamlNode) -> TypeGuard[YamlMapping]:
    return isinstance(profile, YamlMapping) and "hooks" in profile.values


def _workflow(
    record: Record,
    steps: tuple[d.Step, ...],
    hooks: d.Hooks | None,
    profiles: Mapping[str, d.Hooks | None],
    notes: Notes,
) -> d.Workflow:
    return d.Workflow(
        name=_name(record, notes),
        file=notes.file,
        digest=_digest(record.node, notes),
        inputs=_inputs(record, notes),
        agents={name: _profile(name, each, profiles) for name, each in record.get("agents", {}).items()},
        mcp_servers=servers_of(record.get("mcp_servers", {})),
        defaults=_defaults(record.get("defaults")),
        budget=limits_of(record.get("budget")),
        steps=steps,
        hooks=hooks or d.Hooks(),
        files=(*notes.files,),
        **record.only("description", "secrets", "max_steps", "outputs"),
    )


def _name(record: Record, notes: Notes) -> str:
    name: str = record.get("name") or Path(notes.file).stem
    if not re.match(FREE_NAME_PATTERN, name):
        notes.wrong(
            record.node, f"the file's name makes no name for a workflow: give it a `name`, {FREE_NAME_WORDS}"
        )
    return name


def _inputs(record: Record, notes: Notes) -> dict[str, d.Input]:
    nodes = record.node.values.get("inputs")
    if not isinstance(nodes, YamlMapping):
        return {}
    written = record.get("inputs").items()
    inputs = {name: _input(name, each, nodes.values[name], notes) for name, each in written}
    check_rest(inputs, nodes.values, notes)
    return inputs


def _input(name: str, written: str | Record, node: YamlNode, notes: Notes) -> d.Input:
    if isinstance(written, Record):
        return input_of(name, written, notes)
    return d.Input(name=name, type=cast(d.InputType, written), position=node.position)


def _profile(name: str, record: Record, hooks: Mapping[str, d.Hooks | None]) -> d.AgentProfile:
    return d.AgentProfile(
        name=name,
        agent=record.get("agent"),
        set_up=prompted_of(record),
        hooks=hooks.get(name),
        position=record.node.position,
        **record.only("env"),
    )


def _defaults(record: Record | None) -> d.Defaults:
    if record is None:
        return d.Defaults()
    return d.Defaults(
        retry=retry_of(record.get("retry")),
        on_error=on_error_of(record.get("on_error")),
        set_up=prompted_of(record),
        **record.only("agent", "shell", "timeout", "env", "cwd"),
    )


def _digest(root: YamlMapping, notes: Notes) -> str:
    """A digest of what the file and the files that it names say, not of how it is laid out."""
    digest = hashlib.sha256(msgspec.json.encode(plain_value(root)))
    for name in dict.fromkeys(file.name for file in notes.files):
        try:
            content = load(str(Path(notes.file).parent / name))
        except WorkflowError:
            continue  # a missing file is for validation to tell
        digest.update(b"\0" + name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


_KEYS = ("type", "description", "required", "default", "enum", "pattern", "min", "max", "secret", "rest")
_NEVER_SECRET = ("integer", "number", "boolean")
"""Types of inputs that cannot be hidden: their values are found everywhere."""

_TYPE_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "list": "a list",
    "object": "a mapping",
    "file": "the path of a file",
}


def input_of(name: str, record: Record, notes: Notes) -> Input:
    """Read an input, or the answer to an `ask` step, and note what does not fit together."""
    given = record.only(*_KEYS)
    if given.get("type", "string") not in _NEVER_SECRET:
        given.setdefault("secret", declares_secret(name))
    declared = Input(name=name, position=record.node.position, **given)
    for key, message in _unfit_keys(declared):
        notes.wrong(record.node.values[key], message)
    return declared


def check_rest(inputs: Mapping[str, Input], nodes: Mapping[str, YamlNode], notes: Notes) -> None:
    """Note a second input that takes the rest: only one can."""
    takers = [each.name for each in inputs.values() if each.rest]
    for name in takers[1:]:
        notes.wrong(nodes[name], f"only one input can have `rest`: it is {listed(takers)}")


def _unfit_keys(declared: Input) -> Iterator[tuple[str, str]]:
    if problem := _pattern_problem(declared):
        yield "pattern", problem
        return
    if declared.secret and declared.type in _NEVER_SECRET:
        yield "secret", f"only texts can be hidden: `secret` does not go with `type: {declared.type}`"
        return
    bounded = [key for key in ("min", "max") if getattr(declared, key) is not None]
    if bounded and declared.type == "boolean":
        yield bounded[0], f"`{bounded[0]}` does not go with `type: boolean`"
    elif declared.min is not None and declared.max is not None and declared.min > declared.max:
        yield "max", "`max` must not be less than `min`"
    # The choices of a list are those of its items.
    elif declared.type != "list" and not all(_is_of(declared.type, value) for value in declared.enum):
        yield "enum", f"`enum` must have values of the type: {_TYPE_WORDS[declared.type]}"
    elif problem := _default_problem(declared):
        yield "default", problem


def _default_problem(declared: Input) -> str | None:
    if declared.default is msgspec.UNSET:
        return None
    if declared.required:
        return "`default` is never used, as the input is `required`: leave one of them out"
    if declared.default is None:
        return None
    if not _is_of(declared.type, declared.default):
        return f"`default` must be {_TYPE_WORDS[declared.type]}, as the `type` is `{declared.type}`"
    try:
        check_value(declared, declared.default)
    except InputError as error:
        return f"`default` does not fit: {error}"
    return None


def _pattern_problem(declared: Input) -> str | None:
    if declared.pattern is None:
        return None
    if declared.type not in ("string", "file", "list"):
        return f"`pattern` is for texts: it does not go with `type: {declared.type}`"
    try:
        # By itself first, so that a position in the message is one in what was written.
        Pattern(declared.pattern)
        Pattern(f"^(?:{declared.pattern})$")
    except ValueError as error:
        return f"`pattern` cannot be used: {error}"
    return None


def _is_of(type: str, value: Json) -> bool:
    match type:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case _:
            return isinstance(value, str)


def common_of(record: Record, id: str, kind: str) -> dict[str, Any]:
    """Read the keys of every step; of an `approve` step, the question and its timeout are its own matter."""
    is_approve = kind == "approve"
    return {
        "id": id,
        "position": record.node.position,
        "is_named": "id" in record.values,
        "condition": record.get("if"),
        "timeout": None if is_approve else record.get("timeout"),
        "retry": retry_of(record.get("retry")),
        "on_error": on_error_of(record.get("on_error")),
        "goto": goto_of(record.get("goto")),
        "gate": None if is_approve else _gate(record.get("approve")),
        **record.only("description", "env", "cwd", "once"),
    }


def _gate(value: str | bool | Record | None) -> d.ApprovalGate | None:
    match value:
        case None:
            return None
        case str():
            return d.ApprovalGate(question=value)
        case Record():
            return gate_of(value)
        case _:
            return d.ApprovalGate()


def gate_of(record: Record) -> d.ApprovalGate:
    of_calls = {"on_denied_call": record.get("on_deny")} if "tools" in record.values else {}
    return d.ApprovalGate(**record.values, **of_calls)


def retry_of(value: int | Record | None) -> d.Retry | None:
    match value:
        case None:
            return None
        case int():
            return d.Retry(attempts=value)
        case _:
            return d.Retry(**value.values)


def on_error_of(value: str | Record | None) -> d.OnError | None:
    if value is None:
        return None
    if not isinstance(value, Record):
        return d.OnError(_handling(value))
    if "goto" in value.values:
        return d.OnError(_handling(value))
    handlings = {kind: _handling(each) for kind, each in value.values.items()}
    default = handlings.pop("default", "fail")
    return d.OnError(default, handlings)


def _handling(value: Any) -> d.Handling:
    if isinstance(value, Record):
        goto = goto_of(value.get("goto"))
        assert goto is not None
        return goto
    handling: d.Handling = value
    return handling


def goto_of(value: str | Record | None) -> d.Goto | None:
    match value:
        case None:
            return None
        case str():
            return d.Goto(value)
        case _:
            return d.Goto(value.get("step"), value.get("max"))


def limits_of(record: Record | None) -> d.Limits | None:
    return None if record is None else d.Limits(**record.values)


def prompted_of(record: Record) -> d.AgentSettings:
    """Read the settings of an agent, of a step, a profile or the defaults."""
    tools = record.get("tools")
    return d.AgentSettings(
        tools=None if tools is None else d.ToolRuleTexts(tools.get("allow", ()), tools.get("deny", ())),
        mcp_servers=servers_of(record.get("mcp_servers", {})),
        continues=record.get("continue"),
        budget=limits_of(record.get("budget")),
        **record.only(
            "prompt",
            "prompt_file",
            "system",
            "model",
            "mode",
            "options",
            "files",
            "intercept",
            "context",
            "skills",
            "output",
            "repairs",
        ),
    )


def servers_of(records: Mapping[str, Record]) -> tuple[d.McpServerEntry, ...]:
    return tuple(_server(name, record) for name, record in records.items())


def _server(name: str, record: Record) -> d.McpServerEntry:
    if "url" in record.values:
        kind = record.get("type", "http")
        return d.McpServerEntry(
            name=name, url=record.get("url"), type=kind, headers=record.get("headers", {})
        )
    command = (record.get("command"), *record.get("args", ()))
    return d.McpServerEntry(name=name, command=command, env=record.get("env", {}))


_PROMPTS = ("prompt", "prompt_file")
_KIND_KEYS = {"run_file": "run"} | {kind: kind for kind in KINDS}


@dataclass(frozen=True)
class Setting:
    """Defaults of a file that its steps use."""

    notes: Notes
    agent: str | None = None
    shell: str | None = None


@dataclass
class Scope:
    """Ids of steps that must be unique together: those of a list, and of branches in it."""

    prefix: str = ""
    places: dict[str, YamlNode] = field(default_factory=dict)

    def inside(self, parallel: str) -> Scope:
        """Return the scope of branches, whose unnamed steps are called after the step around them."""
        return Scope(f"{parallel}_", self.places)


def read_steps(node: YamlList, setting: Setting, scope: Scope | None = None) -> tuple[d.Step, ...]:
    """Read the steps of a list. Their problems are noted; a step that is wrong is left out."""
    scope = scope or Scope()
    ids = [_id_of(each, number, setting.notes, scope) for number, each in enumerate(node.nodes, 1)]
    steps = [_read_step(each, name, setting, scope) for each, name in zip(node.nodes, ids, strict=True)]
    return tuple(step for step in steps if step is not None)


def _id_of(node: YamlNode, number: int, notes: Notes, scope: Scope) -> str:
    if not isinstance(node, YamlMapping):
        return ""
    written = node.get("id")
    if isinstance(written, YamlScalar) and isinstance(written.value, str):
        _claim(written.value, written, notes, scope)
        return written.value
    made = f"{scope.prefix}{next(iter(_kinds_of(node)), 'step')}_{number}"
    _claim(made, node, notes, scope)
    return made


def _claim(id: str, node: YamlNode, notes: Notes, scope: Scope) -> None:
    if first := scope.places.get(id):
        line = first.position.line
        notes.wrong(node, f"the id `{printable(id, 60)}` is taken by the step in line {line}: choose another")
    else:
        scope.places[id] = node


def _read_step(node: YamlNode, id: str, setting: Setting, scope: Scope) -> d.Step | None:
    notes = setting.notes
    if not isinstance(node, YamlMapping):
        notes.wrong(
            node, f"a step must be a mapping with one of {listed([*KINDS])}, not {type_in_words(node)}"
        )
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


def _kind_of(node: YamlMapping, setting: Setting) -> str | None:
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


def _kinds_of(node: YamlMapping) -> list[str]:
    """The kinds of a step; `approve` beside another one is its gate, and a prompt alone is for an agent."""
    kinds = [*dict.fromkeys(_KIND_KEYS[name] for name in node.values if name in _KIND_KEYS)]
    others = [kind for kind in kinds if kind != "approve"]
    return others or (["agent"] if _is_prompted(node) else kinds)


def _is_prompted(node: YamlMapping) -> bool:
    return any(name in node.values for name in _PROMPTS)


def _nearest_kind(node: YamlMapping) -> str:
    for name in node.values:
        near = [f"`{each}`" for each in get_close_matches(name[:60], _KIND_KEYS, n=1)]
        if meant := key_meant_by(name, [*_KIND_KEYS, *_PROMPTS]) or "".join(near):
            return f"did you mean {meant} by `{printable(name, 60)}`?"
        if advice := advice_about(name):
            return f"`{printable(name, 60)}` is no key here: {advice}"
    return f"say what with one of {listed([*KINDS])}"


Inner = tuple[tuple[d.Step, ...], ...]


def _inner(kind: str, node: YamlMapping, id: str, setting: Setting, scope: Scope) -> Inner:
    """The lists of steps inside of a step."""
    if kind == "parallel" and isinstance(branches := node.get("parallel"), YamlList):
        return (*_branches(branches, setting, scope.inside(id)),)
    if kind in ("for_each", "while") and isinstance(steps := node.get("steps"), YamlList):
        return (read_steps(steps, setting),)
    return ()


def _branches(node: YamlList, setting: Setting, scope: Scope) -> Iterator[tuple[d.Step, ...]]:
    for number, branch in enumerate(node.nodes, 1):
        if not isinstance(branch, YamlList):
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
    return d.Approve(question=d.ApprovalGate(question=asked, **beside), **common)


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
