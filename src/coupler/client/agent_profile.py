"""Applies a table `[agents.NAME]` of `coupler.toml` to the sessions of an agent that is driven by its name.

`connect` makes an `AgentProfile` of the table, and the agent's sessions keep to it whoever drives them: its
rules judge before the session's policy does, also what the agent does through us without asking; its model,
mode and options are set in new sessions; and its instructions and files go before their first prompt.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from coupler.client.errors import NOT_PERMITTED, AgentError
from coupler.client.policy import PermissionRequest, Policy, Verdict
from coupler.events import ToolCall
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    CreateTerminalRequest,
    ReadTextFileRequest,
    SelectedPermissionOutcome,
    ToolCallLocation,
    WriteTextFileRequest,
)
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.client.remote import OpeningOptions
    from coupler.config.agent_tables import AgentTable

LONGEST_FILE = 100_000
"""Characters of a skill or context file that an agent is given."""

INSTRUCTIONS = "[Instructions that hold for this whole conversation:]"
END_OF_INSTRUCTIONS = "[End of the instructions. The user's message follows.]"

_Judgement: TypeAlias = Literal["allow", "deny", "doubt", "undecided"]


class AgentProfile:
    """The settings that one table has for the sessions of its agent. Raises AgentError for a wrong rule."""

    def __init__(self, table: AgentTable) -> None:
        self.table = table
        self.place = f"[agents.{table.name}] in {table.origin}"
        """Where it is written, for messages."""
        self._rules = _TableRules(table, self.place) if table.allow or table.deny else None

    @property
    def has_rules(self) -> bool:
        """True if it allows or denies something."""
        return self._rules is not None

    def completed(self, given: OpeningOptions) -> OpeningOptions:
        """Return the options of a new session with what the table sets; those that are given win."""
        table, options = self.table, given.copy()
        if table.model is not None:
            options.setdefault("model", table.model)
        if table.mode is not None:
            options.setdefault("mode", table.mode)
        if table.options:
            own = {
                name: value if isinstance(value, bool) else str(value)
                for name, value in table.options.items()
            }
            options["options"] = {**own, **given.get("options", {})}
        return options

    async def preface(self) -> str | None:
        """Return the text that goes before the first prompt of a session; None if there is none."""
        return await in_thread(self._preface)

    def system_prompt(self) -> str | None:
        """Return the instructions with the skills, for agents that take them at their start. Reads files."""
        table = self.table
        return "\n\n".join(filter(None, [table.system, *map(self._text_of, table.skills)])) or None

    def guarded(self, policy: Policy) -> Policy:
        """Return a policy that keeps to the table's rules, and asks this one about the rest."""
        return policy if self._rules is None else _GuardedPolicy(policy, self._rules)

    async def refuse_denied(self, params: Any, cwd: str, roots: tuple[str, ...]) -> None:
        """Raise RpcError for what the table denies and the agent does through us without asking."""
        rules, call = self._rules, _call_of(params)
        if rules is None or call is None:
            return
        reason = await in_thread(lambda: rules.reason(PermissionRequest(call, (), cwd, roots)))
        if reason is not None:
            raise RpcError.because(NOT_PERMITTED, f"not permitted: {reason}")

    def _preface(self) -> str | None:
        system = self.system_prompt()
        parts = [] if system is None else [INSTRUCTIONS, system, END_OF_INSTRUCTIONS]
        parts += [file_in_prompt(Path(path).name, self._text_of(path)) for path in self.table.context]
        return "\n\n".join(parts) or None

    def _text_of(self, path: str) -> str:
        try:
            return text_of_file(path)
        except OSError as error:
            message = f"{path}, which {self.place} names, cannot be read: {error.strerror}"
            raise AgentError("session", message) from None


class _TableRules:
    """The rules of a table. Judging follows links and may wait for a disk: it is done in threads."""

    def __init__(self, table: AgentTable, place: str) -> None:
        # Imported on use: most agents have no rules of their own.
        from coupler.client.rules import Rules
        from coupler.permission.rules import Rule

        try:
            allow = [Rule.parse("allow", text, place) for text in table.allow]
            deny = [Rule.parse("deny", text, place) for text in table.deny]
        except ValueError as error:
            raise AgentError("spawn", str(error)) from None
        self._rules = Rules((), (), (), [*allow, *deny])
        self._has_denials = bool(deny)
        self._without = Rules((), (), ())

    def judge(self, request: PermissionRequest) -> _Judgement:
        """Judge a call by the table alone; "doubt" if it might be one that is denied."""
        verdict = self._rules.judge(request)
        if verdict.decision == "deny":
            return "deny"
        if self._has_denials and (verdict.is_ruled or verdict.is_doubtful):
            return "doubt"
        # What needs no rule is for the session's policy to allow.
        is_allowed = verdict.decision == "allow" and self._without.judge(request).decision != "allow"
        return "allow" if is_allowed else "undecided"

    def reason(self, request: PermissionRequest) -> str | None:
        """Say why a call is denied, or might be; None if it is not."""
        if self.judge(request) not in ("deny", "doubt"):
            return None
        verdict = self._rules.judge(request)
        return verdict.reason if verdict.is_final else f"{verdict.reason}: take that rule out to allow it"


class _GuardedPolicy(Policy):
    """Decides by the rules of a table, and by another policy what these leave open."""

    def __init__(self, policy: Policy, rules: _TableRules) -> None:
        super().__init__(self._decided, name=policy.name)
        self._policy = policy
        self._rules = rules

    async def remedy(self, request: PermissionRequest) -> str | None:
        reason = await in_thread(lambda: self._rules.reason(request))
        return reason or await self._policy.remedy(request)

    async def _decided(self, request: PermissionRequest) -> Verdict:
        match await in_thread(lambda: self._rules.judge(request)):
            case "deny":
                return False
            case "doubt" if self._policy.name != "ask":
                return False  # it might be what a rule denies, and nobody is there to be asked
            case "allow" if self._policy.name != "deny-all":
                return True
        outcome = await self._policy.answer(request)
        return outcome.option_id if isinstance(outcome, SelectedPermissionOutcome) else None


def _call_of(params: Any) -> ToolCall | None:
    """Return what a request of the agent does, as a tool call; None if rules have nothing to say of it."""
    match params:
        case ReadTextFileRequest(path=path):
            return ToolCall(id="", title=f"Read {path}", kind="read", locations=(ToolCallLocation(path),))
        case WriteTextFileRequest(path=path):
            return ToolCall(id="", title=f"Write {path}", kind="edit", locations=(ToolCallLocation(path),))
        case CreateTerminalRequest(command=command, args=arguments, cwd=cwd):
            words = [command, *(arguments or ())]
            given: dict[str, Any] = {"command": words if len(words) > 1 else command}
            if cwd:
                given["cwd"] = cwd
            return ToolCall(id="", title=" ".join(words), kind="execute", raw_input=given)
    return None


def with_instructions(system: str, prompt: str) -> str:
    """Put instructions before a prompt, for agents that take them in no other way."""
    return "\n\n".join([INSTRUCTIONS, system, END_OF_INSTRUCTIONS, prompt])


def file_in_prompt(name: str, text: str) -> str:
    """Return the text of a file as it stands before a prompt."""
    return f"[The file {name}:]\n\n{text.strip()}\n\n[End of {name}.]"


def text_of_file(path: str) -> str:
    """Read a skill or context file, as far as an agent is given it."""
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        return file.read(LONGEST_FILE).strip()
