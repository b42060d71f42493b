"""Decides whether a model's tool call may run, by its author's wishes and the permission engine.

The author says allow, ask or deny. A rule of `coupler.toml` or a remembered choice against the call counts
in any case; one for it saves the question. The user is asked under the call's own id, once, and may approve,
change the arguments, reject, or answer in the tool's place, as far as the author lets them. A no is a result
that the model reads, and never the end of the turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast, get_args

import msgspec
from langchain_core.messages import ToolMessage
from msgspec import UNSET

from coupler.agent.content import json_value
from coupler.agent.elicitation import Form
from coupler.agent.permission import NOT_BY_THE_USER, TurnDialog
from coupler.events.fold import text_content
from coupler.fields import readable
from coupler.fields.form_fields import MOST_FIELDS, Field, FormError, TextField
from coupler.fields.schema_forms import outline
from coupler.langchain.current import HeldUpError, further_rules
from coupler.langchain.file_backends import backend_files
from coupler.langchain.presentation import KINDS, checked_kind, tool_metadata
from coupler.langchain.tool_arguments import JudgedArguments, ToolArguments
from coupler.langchain.tool_calls import EditedCall, JoinedCall, asks_for_itself
from coupler.mcp.tool_names import qualified_name
from coupler.permission.action import Action
from coupler.permission.decision import Permission
from coupler.runtime.formatting import did_you_mean
from coupler.schema.v1 import PermissionOption, PermissionToolCall, ToolKind

if TYPE_CHECKING:
    from langchain_core.messages import ToolCall
    from langchain_core.tools import BaseTool

    from coupler.langchain.current import Current
    from coupler.langchain.tool_calls import ToolCalls
    from coupler.permission.decision import Verdict

Effect: TypeAlias = Literal["allow", "ask", "deny"]
DecisionName: TypeAlias = Literal["approve", "edit", "reject", "respond"]

EFFECTS: tuple[str, ...] = get_args(Effect)
DECISIONS: tuple[str, ...] = get_args(DecisionName)
USUAL_DECISIONS: tuple[DecisionName, ...] = ("approve", "reject")

LOOP_HELD_UP = f"not permitted: {HeldUpError()}"
RESULT_QUESTION = "What is the model to read as the result?"
NO_FORMS = "not permitted: the decisions that are allowed need a form, and the client cannot show one"

DECISION_OPTIONS = {
    "approve": PermissionOption("approve", "Approve", "allow_once"),
    "edit": PermissionOption("edit", "Change the arguments first", "allow_once"),
    "reject": PermissionOption("reject", "Reject", "reject_once"),
    # What the user answers stands for the tool's result: it does not run.
    "respond": PermissionOption("respond", "Answer in its place", "reject_once"),
}
NEED_FORMS = frozenset({"edit", "respond"})

WHY_NOT = "why_not"
"""The option with which the user rejects a call and says why, in a form."""

REASON_QUESTION = "Why not? The model reads it."

FILLED_IN = {"respond": RESULT_QUESTION, WHY_NOT: REASON_QUESTION}
"""The questions for a text, by the options that need one."""

IN_CHAT = "chat"
"""The option with which the user decides in the chat, where more can be said than in a dialog."""

SAID_IN_CHAT = {"edit": "change it", "reject": "say why not", "respond": "answer in its place"}

KIND_PREFIX = "kind:"
"""Prefix of a pattern that means all tools of a kind."""

LONGEST_PROBLEM = 300
"""Most characters of a tool's complaint about its arguments."""


async def permit(
    current: Current,
    call: ToolCall,
    tool: BaseTool | None,
    *,
    effect: Effect | None,
    decisions: Collection[DecisionName] = USUAL_DECISIONS,
    because: str | None = None,
    message: str | None = None,
    more_to_say: bool = False,
) -> ToolDecision:
    """Decide about a call.

    Without an `effect` a tool runs unless the user has said otherwise; one that asks for itself is left to
    do so. `because` says whose wish a denial is, `message` is shown with a question. With `more_to_say`, as
    in a review, a rejection may have a reason, and a user without forms may decide in the chat.
    """
    args = dict(call["args"])
    if effect == "deny":
        return ToolDecision("reject", args, f"not permitted: {because or 'it is denied'}")
    if not current.is_on_loop:
        # A plain tool may run an agent in a loop of its own, and the user is asked from the turn's.
        wishes: dict[str, Any] = {"effect": effect, "decisions": decisions, "message": message}
        wishes["more_to_say"] = more_to_say
        return await current.on_loop(permit(current, call, tool, **wishes))
    calls, parent = current.calls, current.call_id
    key = calls.key(call["id"] or "", parent)
    if (edit := calls.edited.get(key)) is not None and edit[:2] == (call["name"], args):
        return ToolDecision("edit", dict(edit.after))
    # What was decided before was decided about this tool and these arguments: others are a new question.
    calls.withdraw(key, call["name"], args)
    calls.announce(key, call["name"], args, parent=parent)
    if tool is not None:
        calls.identify(key, tool)
    if key in calls.refused:
        return ToolDecision("reject", args, calls.refused[key])
    if effect is None and (asks_for_itself(tool) or key in calls.permitted):
        return ToolDecision("approve", args)
    dialog = ToolDialog(current, key, call, tool, decisions, message, more_to_say=more_to_say)
    return await _decided(current, key, call, tool, effect, dialog)


async def _decided(
    current: Current,
    key: str,
    call: ToolCall,
    tool: BaseTool | None,
    effect: Effect | None,
    dialog: ToolDialog,
) -> ToolDecision:
    args = dict(call["args"])
    action = tool_action(current, call["name"], tool, args, is_gated=effect == "ask")
    permission = await current.session.project.permissions().decide(
        action, dialog, unruled="ask" if effect == "ask" else "allow", also=further_rules.get()
    )
    if permission.option == IN_CHAT:
        return ToolDecision("reject", args, is_open=True)
    if permission.option in NEED_FORMS or permission.option == WHY_NOT:
        return await _filled_in(current, key, call, tool, permission.option)
    if not permission.is_given:
        return ToolDecision("reject", args, permission.reason)
    if dialog.was_asked:
        _go_on(current.calls, key, call["name"], args)
    elif effect is not None:
        current.calls.permitted.add(key)
    return ToolDecision("approve", args)


def permit_and_wait(current: Current, call: ToolCall, tool: BaseTool | None, **wishes: Any) -> ToolDecision:
    """Decide about a call for agents that are run by plain functions, which are in threads."""
    try:
        return current.wait_for(permit(current, call, tool, **wishes))
    except HeldUpError:
        return ToolDecision("reject", dict(call["args"]), LOOP_HELD_UP)


def judge_now(current: Current, call: ToolCall, tool: BaseTool | None) -> str | None:
    """Return why a tool may not run where nobody can wait for an answer; None if it may."""
    calls, key = current.calls, current.calls.key(call["id"] or "", current.call_id)
    if key in calls.refused:
        return calls.refused[key]
    action = tool_action(current, call["name"], tool, call["args"], is_gated=False)
    verdict = current.session.project.permissions().judge(action, further_rules.get())
    if verdict.decision == "deny":
        return f"not permitted: {verdict.reason}"
    is_open = verdict.decision == "ask" and key not in calls.approved
    return LOOP_HELD_UP if is_open and verdict.is_against else None


class ToolDecision(NamedTuple):
    """A decision about a tool call: whether it runs, with which arguments, and why not."""

    name: DecisionName
    args: dict[str, Any]
    """The arguments that the tool is called with."""
    text: str = ""
    """The reason for a refusal, or the user's answer in the tool's place."""
    is_open: bool = False
    """True if the user will decide in the chat."""

    @property
    def runs(self) -> bool:
        """True if the tool is to run."""
        return self.name in ("approve", "edit")

    def message_for(self, call: ToolCall) -> ToolMessage:
        """Return the message that the model reads in place of the tool's result."""
        if self.name == "respond":
            return ToolMessage(self.text, name=call["name"], tool_call_id=call["id"] or "")
        return refusal_message(call, self.text)


def refusal_message(call: ToolCall, reason: str) -> ToolMessage:
    """Return the message that the model reads of a call that did not run."""
    told = f"`{call['name']}` was not run: {reason}. Go on without it, and do not try the same again."
    return ToolMessage(told, name=call["name"], tool_call_id=call["id"] or "", status="error")


def tool_action(
    current: Current, name: str, tool: BaseTool | None, args: ToolArguments, *, is_gated: bool
) -> Action:
    """Return the call as it is judged, with every path, command and address that its arguments name."""
    session, about = current.session, tool_metadata(tool)
    kind = current.presentation.kind(name, tool, args)
    server = about.get("server")
    judged = JudgedArguments(args, kind, session.cwd, backend_files(tool))
    return Action(
        kind=kind,
        name=str(about.get("tool") or name),
        server=str(server) if server is not None else None,
        paths=judged.paths,
        command=judged.command,
        urls=judged.addresses,
        cwd=judged.directory,
        roots=session.roots,
        is_gated=is_gated,
        is_off_disk=judged.is_off_disk,
    )


class ToolDialog:
    """Asks the user about a model's call, with the decisions that the tool's author lets them make."""

    def __init__(
        self,
        current: Current,
        key: str,
        call: ToolCall,
        tool: BaseTool | None,
        decisions: Collection[DecisionName],
        message: str | None,
        *,
        more_to_say: bool = False,
    ) -> None:
        self.was_asked = False
        """True once there was a question."""
        self._current = current
        self._key = key
        self._call = call
        self._tool = tool
        self._decisions = decisions
        self._message = message
        self._has_more_to_say = more_to_say

    async def __call__(self, verdict: Verdict) -> Permission:
        if self._key in self._current.calls.approved:
            return Permission(True, "allowed by the user")
        self.was_asked = True
        has_forms = self._current.turn.editor.offers("elicitation.form")
        offered = [
            name for name in DECISIONS if name in self._decisions and (has_forms or name not in NEED_FORMS)
        ]
        more: tuple[PermissionOption, ...] = ()
        said = [words for name, words in SAID_IN_CHAT.items() if name in self._decisions]
        if self._has_more_to_say and not has_forms and said:
            more = (PermissionOption(IN_CHAT, f"In the chat: {', '.join(said)}", "reject_once"),)
        elif offered in ([], ["reject"]):
            return Permission(False, NO_FORMS if NEED_FORMS & {*self._decisions} else NOT_BY_THE_USER)
        elif self._has_more_to_say and "reject" in offered:
            more = (PermissionOption(WHY_NOT, "Reject, and say why", "reject_once"),)
        # Yes and no are the usual question, with all that can be remembered of the answer.
        own: tuple[PermissionOption, ...] = ()
        if {*offered} != {*USUAL_DECISIONS}:
            own, more = (*(DECISION_OPTIONS[name] for name in offered), *more), ()
        always = [
            kind
            for name, kind in (("approve", "allow_always"), ("reject", "reject_always"))
            if name in offered
        ]
        return await TurnDialog(self._current.turn, self._as_asked, own=own, always=always, more=more)(
            verdict
        )

    def _as_asked(self) -> PermissionToolCall:
        current, name, args = self._current, self._call["name"], self._call["args"]
        client_id = current.calls.show(self._key)
        shown = [*current.session.outlet.ledger.content(client_id)]
        shown += [item for item in current.presentation.preview(name, args, self._tool) if item not in shown]
        if self._message is not None:
            shown.insert(0, text_content(self._message))
        about = tool_metadata(self._tool)
        return PermissionToolCall(
            client_id,
            kind=current.presentation.kind(name, self._tool, args),
            status="in_progress" if current.calls.is_running(self._key) else "pending",
            title=current.presentation.title(name, self._tool, args),
            name=qualified_name(about.get("server"), str(about.get("tool") or name)),
            content=tuple(shown) or UNSET,
            locations=current.presentation.locations(name, args, tool=self._tool) or UNSET,
            raw_input=json_value(args),
        )


async def _filled_in(
    current: Current, key: str, call: ToolCall, tool: BaseTool | None, option: str | None
) -> ToolDecision:
    """Decide by what the user fills in: other arguments, a result in the tool's place, or a reason."""
    args, name = dict(call["args"]), call["name"]
    question = FILLED_IN.get(option or "")
    form: Any = arguments_form(tool, args) if question is None else str
    if form is None:
        _go_on(current.calls, key, name, args)  # there is nothing that could be changed
        return ToolDecision("approve", args)
    title = current.presentation.title(name, tool, args)
    kind = current.presentation.kind(name, tool, args)
    async with JoinedCall(current, key, title, kind=kind, name=name):
        try:
            answer = await current.turn.ask(title if question is None else f"{title}\n\n{question}", form)
        except ValueError as error:
            return ToolDecision("reject", args, f"not permitted: the user could not be asked: {error}")
    if not answer.accepted:
        return ToolDecision("reject", args, NOT_BY_THE_USER)
    if option == "respond":
        return ToolDecision("respond", args, str(answer.value))
    if option == WHY_NOT:
        return ToolDecision("reject", args, str(answer.value).strip() or NOT_BY_THE_USER)
    return await changed_by_user(current, key, call, tool, dict(answer.value or args))


async def changed_by_user(
    current: Current, key: str, call: ToolCall, tool: BaseTool | None, changed: dict[str, Any]
) -> ToolDecision:
    """Decide about a call with the arguments that the user has written."""
    args, name = dict(call["args"]), call["name"]
    # Edited arguments are a new action. Their user has written them; but what is denied, is to them as well.
    action = tool_action(current, name, tool, changed, is_gated=True)
    permission = await current.session.project.permissions().decide(
        action, _as_written, also=further_rules.get()
    )
    if not permission.is_given:
        return ToolDecision("reject", args, permission.reason)
    if changed == args:
        _go_on(current.calls, key, name, args)
        return ToolDecision("approve", args)
    current.calls.rewrite(key, changed)
    current.calls.edited[key] = EditedCall(name, args, changed)
    _go_on(current.calls, key, name, changed)
    return ToolDecision("edit", changed)


def approved_by_user(current: Current, key: str, call: ToolCall) -> ToolDecision:
    """Let a call run that the user has approved in other ways than by a dialog."""
    _go_on(current.calls, key, call["name"], dict(call["args"]))
    return ToolDecision("approve", dict(call["args"]))


async def _as_written(verdict: Verdict) -> Permission:
    """Allow what the user has just written into a form, as the dialog about it."""
    return Permission(True, "written by the user")


def _go_on(calls: ToolCalls, key: str, name: str, args: dict[str, Any]) -> None:
    # Another call with the same id may have been told meanwhile: what was asked about was this one.
    if calls.is_like(key, name, args):
        calls.approved.add(key)
        calls.permitted.add(key)
    calls.run(key)


class Rule:
    """A rule for the tools of a pattern: allow, ask or deny, and what may be decided when asked."""

    def __init__(
        self,
        effect: Effect,
        *,
        kind: ToolKind | None = None,
        decisions: Iterable[DecisionName] = USUAL_DECISIONS,
        message: str | None = None,
    ) -> None:
        """`kind` is what these tools are, `message` is shown with the question."""
        self.effect = cast(Effect, _one_of(effect, EFFECTS, "effect"))
        self.kind = None if kind is None else checked_kind(kind, "kind")
        self.decisions = _decisions(decisions)
        self.message = message

    def __repr__(self) -> str:
        return f"Rule({self.effect!r})"


RuleLike: TypeAlias = Effect | Rule | Mapping[str, Any]


class MatchedRule(NamedTuple):
    """The rule for a tool, and the pattern that it was found by."""

    pattern: str
    rule: Rule


class ToolRules:
    """The rules of an agent's author by patterns of tool names or by kinds; the first that fits counts.

    {"delete_*": "deny", "kind:execute": "ask", "write_file": Rule("ask", decisions=("approve", "edit"))}
    """

    def __init__(self, rules: Mapping[str, RuleLike], where: str) -> None:
        if not isinstance(rules, Mapping):
            raise TypeError(
                f"{where} takes a mapping from patterns of tool names to rules, not {rules!r:.100}"
            )
        self._rules = {
            _pattern(pattern, where): _rule(rule, pattern, where) for pattern, rule in rules.items()
        }

    def of(self, name: str, kind: str) -> MatchedRule | None:
        """The rule for a tool of this name and kind."""
        for pattern, rule in self._rules.items():
            if matches_pattern(pattern, name, kind):
                return MatchedRule(pattern, rule)
        return None

    @property
    def kinds(self) -> dict[str, ToolKind]:
        """The kinds that the rules say the tools are, by pattern."""
        return {
            pattern: rule.kind
            for pattern, rule in self._rules.items()
            if rule.kind is not None and not pattern.startswith(KIND_PREFIX)
        }


def matches_pattern(pattern: str, name: str, kind: str) -> bool:
    """True if a pattern means a tool of this name and kind."""
    if pattern.startswith(KIND_PREFIX):
        return pattern.removeprefix(KIND_PREFIX) == kind
    return fnmatchcase(name, pattern)


def _pattern(pattern: object, where: str) -> str:
    """Return the pattern; raises if it is none, or can mean no tool."""
    if not isinstance(pattern, str) or not pattern.strip():
        raise TypeError(
            f"{where}: a pattern is the name of a tool, with `*` for any letters, not {pattern!r:.100}"
        )
    if pattern.startswith(KIND_PREFIX):
        checked_kind(pattern.removeprefix(KIND_PREFIX), where)
    elif ":" in pattern:
        kinds = ", ".join(f"{KIND_PREFIX}{kind}" for kind in KINDS)
        raise ValueError(f"{where}: {pattern!r:.100} means no tool: write its name, or one of {kinds}")
    return pattern


def checked_pattern(pattern: object, where: str) -> str:
    """Return a pattern of a list; raises if it is none, or can mean no tool."""
    return _pattern(pattern, where)


def _rule(rule: object, pattern: str, where: str) -> Rule:
    what = f"{where}: the rule for {pattern!r:.100}"
    if isinstance(rule, Rule):
        return rule
    if isinstance(rule, str):
        return Rule(cast(Effect, _one_of(rule, EFFECTS, what)))
    if not isinstance(rule, Mapping):
        raise TypeError(f"{what} is allow, ask, deny or made with acp.Rule(…), not {rule!r:.100}")
    known = ("effect", "kind", "decisions", "message")
    for key in rule:
        _one_of(key, known, f"{what} has a key that")
    if "effect" not in rule:
        raise ValueError(f"{what} has no `effect`: write allow, ask or deny")
    return Rule(**rule)


def _decisions(decisions: Iterable[str]) -> tuple[DecisionName, ...]:
    if isinstance(decisions, str):
        decisions = (decisions,)
    chosen = tuple(cast(DecisionName, _one_of(each, DECISIONS, "a decision")) for each in decisions)
    if not chosen:
        raise ValueError(f"`decisions` is empty: name some of {', '.join(DECISIONS)}, or deny the tool")
    return chosen


def _one_of(word: object, words: tuple[str, ...], what: str) -> str:
    if word in words:
        return str(word)
    hint = did_you_mean(str(word), words, f"it is one of {', '.join(words)}")
    raise ValueError(f"{what} is not {word!r:.100}: {hint}")


def arguments_form(tool: BaseTool | None, args: ToolArguments) -> Form[dict[str, Any]] | None:
    """Return a form in which the user changes a call's arguments; None if nothing can be changed.

    Fields come from the tool's own schema, filled in with what the model wrote. What a form cannot show is
    written as JSON; what looks like a secret is not shown, and stays as it is.
    """
    schema = _schema(tool, args)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return None
    required = schema.get("required") or ()
    fields = [_field(name, part, schema, args, name in required) for name, part in properties.items()]
    shown = [field for field in fields if field is not None and _is_showable(field)][:MOST_FIELDS]
    if not shown:
        return None

    def build(values: dict[str, Any]) -> dict[str, Any]:
        changed = {**args, **values}
        _check(tool, changed)
        return changed

    return Form(shown, build)


def _schema(tool: BaseTool | None, args: ToolArguments) -> Mapping[str, Any]:
    schema: Any = tool.tool_call_schema if tool is not None else None
    if isinstance(schema, Mapping):
        return schema
    if hasattr(schema, "model_json_schema"):
        found: Mapping[str, Any] = schema.model_json_schema()
        return found
    return {"properties": {name: _schema_of(value) for name, value in args.items()}}


def _schema_of(value: object) -> dict[str, Any]:
    """Return a schema for a value, for tools that have none or are not known."""
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
    return {}


def _field(
    name: str, part: Any, schema: Mapping[str, Any], args: ToolArguments, required: bool
) -> Field | None:
    """One argument as a field, filled in if what the model wrote fits it."""
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    alone = {
        "type": "object",
        "properties": {name: part},
        "required": [name] if required else [],
        **definitions,
    }
    try:
        [field] = outline(alone).fields
    except ValueError:
        return _json_field(name, args, required)
    if args.get(name) is None:
        return field
    try:
        filled = field.with_default(args[name])
        return filled if field.required else msgspec.structs.replace(filled, absent=args[name])
    except (ValueError, TypeError):
        return field


def _json_field(name: str, args: ToolArguments, required: bool) -> TextField:
    given = name in args
    return TextField(
        name=name,
        keyword=name,
        title=readable(name),
        description="Written as JSON.",
        required=required,
        default=msgspec.json.encode(args[name]).decode() if given else msgspec.UNSET,
        absent=args[name] if given else msgspec.UNSET,
        make=lambda text: _parsed(text, name),
    )


def _parsed(text: str, name: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        raise FormError("expected JSON", name) from None


def _is_showable(field: Field) -> bool:
    try:
        Form([field], dict)
    except ValueError:
        return False
    return True


def _check(tool: BaseTool | None, args: dict[str, Any]) -> None:
    """Raise if the tool would refuse the arguments, so that the user is asked again."""
    schema: Any = tool.tool_call_schema if tool is not None else None
    if not hasattr(schema, "model_validate"):
        return
    try:
        schema.model_validate(args)
    except ValueError as error:
        errors = getattr(error, "errors", None)
        first = next(iter(errors()), None) if callable(errors) else None
        told = f"{first['loc'][0] if first['loc'] else 'it'}: {first['msg']}" if first else str(error)
        raise FormError(told[:LONGEST_PROBLEM]) from None
