"""The options of `coupler exec`, its output formats, and the questions that it asks at the terminal.

Output is a stream of text, one JSON object, events, or the answer alone. For programs every object has
`event`; parts of messages and of tool calls are as ACP spells them, the rest is documented in the manual
and only grows. An agent's text is not trusted: control characters are removed for a terminal. In a pipe it
is unchanged.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

from msgspec import json
from msgspec.structs import replace

from coupler.cli.agent_options import policy_of
from coupler.cli.exit_codes import refuse
from coupler.cli.output import Output, stderr, stdout
from coupler.cli.terminal import (
    STDIN,
    QuestionTerminal,
    read_image_argument,
    read_json_argument,
    read_text_argument,
)
from coupler.client.actions import action_of
from coupler.client.observation import (
    Observation,
    PermissionDecided,
    Received,
    SessionOpened,
    TurnFinished,
    observation_object,
    permission_object,
)
from coupler.events import (
    Notice,
    Plan,
    Text,
    Thought,
    ToolCall,
)
from coupler.events.fold import MessageStarts
from coupler.events.json_form import JsonObject, tool_call_object, usage_object
from coupler.permission.action import option_label
from coupler.runtime.terminal_text import clean, one_line
from coupler.schema.v1 import TextContent

if TYPE_CHECKING:
    from coupler.cli.chat.dialogs import Dialogs
    from coupler.client.elicitation import FormAnswer, FormRequest, OnForm, OnUrl, UrlRequest
    from coupler.client.errors import AgentError
    from coupler.client.policy import Decide, Decision, PermissionRequest, Policy, Verdict
    from coupler.client.reply import Budget, Reply
    from coupler.redaction.masker import StreamMasker
    from coupler.schema.v1 import ContentBlock, McpServer


T = TypeVar("T")

MARKS = {"completed": "x", "in_progress": ">"}
"""Marks of a plan's entries by status; others have none."""


class ExecOutput(Protocol):
    """An output format."""

    def notice(self, observation: Observation) -> None:
        """Handles an observation."""

    def finish(self, result: JsonObject) -> None:
        """Handles the result."""

    def aside(self, line: str) -> None:
        """Shows a line to the person at the terminal, if there is one."""


def output_for(format: str, *, has_schema: bool) -> ExecOutput:
    """The output of a format. With a schema the answer is what fits it, and not the text around."""
    match format:
        case "json":
            return JsonOutput(stdout())
        case "ndjson":
            return EventOutput(stdout())
        case "quiet":
            return QuietOutput(stdout(), has_schema=has_schema)
    return TextOutput(stdout(), stderr(), has_schema=has_schema)


class ObservationRedactor:
    """Redacts secrets from what is observed of an agent, also where a stream cuts them.

    For `coupler exec` and `coupler chat`: of our environment, the agent's, its MCP servers, and what the
    settings of the directory name.
    """

    def __init__(self, cwd: str, env: Mapping[str, str], servers: Iterable[McpServer] = ()) -> None:
        from coupler.agent.output import SessionRedactor
        from coupler.redaction.known_secrets import secret_names

        self._redactor = SessionRedactor(servers)
        self._redactor.add_names(secret_names(cwd), {**os.environ, **env})
        self._redactor.notice(env)
        self.mask = self._redactor.mask

    def pass_on(self, observation: Observation, notice: Callable[[Observation], None]) -> None:
        """Passes an observation on, with what was held back before it."""
        redactor = self._redactor
        match observation:
            case Received(event=Text() | Thought() as piece):
                redactor.pass_on(piece, lambda event: notice(replace(observation, event=event)))
            case TurnFinished():
                # Only how it ended is told of it, and how much it used.
                redactor.end_message()
                notice(observation)
            case _:
                redactor.end_message()
                notice(redactor.covered(observation))

    def end(self) -> None:
        """Passes on what was held back, because nothing follows it."""
        self._redactor.end_message()

    def mask_so_far(self, text: str) -> str:
        """Redacts the last of a text that goes on; what may be the beginning of a secret is left out."""
        return text if self._redactor.masker is None else self.stream_masker().feed(text)

    def stream_masker(self) -> StreamMasker:
        """Makes a masker for a text of the user's own that comes in pieces."""
        from coupler.redaction.masker import Masker, StreamMasker

        return StreamMasker(self._redactor.masker or Masker())

    def covered(self, value: T) -> T:
        """Redacts a whole value, after what was held back."""
        self.end()
        return self._redactor.covered(value)  # type: ignore[no-any-return]


class RedactedOutput:
    """Redacts secrets from what another output writes."""

    def __init__(self, output: ExecOutput, redactor: ObservationRedactor) -> None:
        self._output = output
        self._redactor = redactor

    def notice(self, observation: Observation) -> None:
        self._redactor.pass_on(observation, self._output.notice)

    def finish(self, result: JsonObject) -> None:
        self._output.finish(self._redactor.covered(result))

    def aside(self, line: str) -> None:
        self._output.aside(self._redactor.mask(line))


class JsonOutput:
    """Writes one object, at the end."""

    def __init__(self, stdout: Output) -> None:
        self._stdout = stdout

    def notice(self, observation: Observation) -> None:
        return

    def finish(self, result: JsonObject) -> None:
        self._write(result)

    def aside(self, line: str) -> None:
        return

    def _write(self, value: JsonObject) -> None:
        self._stdout.json(json.encode(value).decode())
        self._stdout.flush()


class EventOutput(JsonOutput):
    """Writes an object a line for each event, and for the result."""

    def notice(self, observation: Observation) -> None:
        told = observation_object(observation)
        if told is not None:
            self._write(told)

    def finish(self, result: JsonObject) -> None:
        self._write({"event": "result", **result})


class QuietOutput:
    """Writes the answer alone, once it is whole."""

    def __init__(self, stdout: Output, *, has_schema: bool) -> None:
        self._stdout = stdout
        self._has_schema = has_schema

    def notice(self, observation: Observation) -> None:
        return

    def finish(self, result: JsonObject) -> None:
        text = _answer(result, has_schema=self._has_schema)
        if text:
            self._stdout.data(_ended(text))
            self._stdout.flush()

    def aside(self, line: str) -> None:
        return


class TextOutput:
    """Writes the agent's text as it comes, and beside it, for people at a terminal, what the agent does."""

    def __init__(self, stdout: Output, stderr: Output, *, has_schema: bool) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._has_schema = has_schema
        self._is_terminal = stdout.is_terminal
        self._has_company = stderr.is_terminal
        self._messages = MessageStarts()
        self._newlines: int | None = None
        """Line ends at the end of what was written; None if nothing was."""
        self._titles: dict[str, str] = {}
        self._failed: set[str] = set()
        self._steps: dict[str, str] = {}

    def notice(self, observation: Observation) -> None:
        match observation:
            case SessionOpened(reason=str(reason)):
                self._tell(f"this is a new session: {reason}")
            case Received(event=Text() as piece):
                if not self._has_schema:
                    self._stream(piece)
            case Received(event=ToolCall() as call):
                self._messages.interrupt()
                self._tell_call(call)
            case Received(event=Plan() as plan):
                self._tell_plan(plan)
            case Received(event=Notice(severity, title, description)):
                self.aside(f"{severity}: {title}{f': {description}' if description else ''}")
            case PermissionDecided(decision=decision) if not decision.is_allowed:
                self.aside(_denial(decision))

    def finish(self, result: JsonObject) -> None:
        if self._has_schema and result["output"] is not None:
            self._write(_answer(result, has_schema=True))
        if self._newlines == 0:
            self._write("\n")
        if not self._has_company:
            for denied in result["denied"]:
                self._stderr.line(f"{PROGRAM}: {one_line(_denial_in(denied))}")

    def _tell(self, line: str) -> None:
        """Writes a message that must be seen to stderr, with or without a terminal."""
        if self._has_company:
            self.aside(line)
        else:
            self._stderr.line(f"{PROGRAM}: {one_line(line)}")

    def aside(self, line: str) -> None:
        if not self._has_company:
            return
        if self._is_terminal and self._newlines == 0:
            self._write("\n")
        self._stderr.line(one_line(line), "dim")
        self._stderr.flush()

    def _stream(self, piece: Text) -> None:
        if not piece.text:
            return
        if self._messages.begins(piece) and self._newlines is not None:
            self._write("\n" * max(2 - self._newlines, 0))
        self._write(clean(piece.text) if self._is_terminal else piece.text)

    def _write(self, text: str) -> None:
        if not text:
            return
        self._stdout.data(text)
        self._stdout.flush()
        ends = len(text) - len(text.rstrip("\n"))
        self._newlines = ends + (self._newlines or 0) if ends == len(text) else ends

    def _tell_plan(self, plan: Plan) -> None:
        """Shows the entries of a plan that have changed: agents send all of it with every update."""
        for entry in plan.entries:
            if self._steps.get(entry.content) != entry.status:
                self._steps[entry.content] = entry.status
                self.aside(f"[{MARKS.get(entry.status, ' ')}] {entry.content}")

    def _tell_call(self, call: ToolCall) -> None:
        title = call.title or call.name or call.kind
        if self._titles.get(call.id) != title:
            self._titles[call.id] = title
            self.aside(f"{call.kind}: {title}")
        if call.status == "failed" and call.id not in self._failed:
            self._failed.add(call.id)
            self.aside(f"failed: {title}")


def _answer(result: JsonObject, *, has_schema: bool) -> str:
    if has_schema:
        return "" if result["output"] is None else json.encode(result["output"]).decode()
    text: str = result["text"]
    return text


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _denial(decision: Decision) -> str:
    call = decision.tool_call
    return _denied(call.title or call.kind, decision.remedy)


def _denial_in(denied: JsonObject) -> str:
    return _denied(denied["title"] or denied["kind"], denied["remedy"])


def _denied(what: str, remedy: str | None) -> str:
    return f"denied: {what}" if remedy is None else f"denied: {what}; {remedy}"


def result_object(
    reply: Reply | None,
    error: AgentError | None,
    *,
    session_id: str | None,
    exit_code: int,
    session_reason: str | None = None,
) -> JsonObject:
    """The result as JSON; a turn that failed has what came until then."""
    return {
        "text": "" if reply is None else reply.text,
        "stop_reason": None if reply is None or error is not None else reply.stop_reason,
        "output": None if reply is None else reply.output,
        "output_way": None if reply is None else reply.output_way,
        "thoughts": "" if reply is None else reply.thoughts,
        "tool_calls": [] if reply is None else [*map(tool_call_object, reply.tool_calls)],
        "permissions": [] if reply is None else [*map(permission_object, reply.permissions)],
        "denied": [] if reply is None else [*map(denial_object, reply.denied)],
        "files": [] if reply is None else [*reply.files],
        "plan": [] if reply is None else [*reply.plan],
        "content": [] if reply is None else [piece.block for piece in reply.content],
        "usage": None if reply is None else usage_object(reply.usage),
        "rounds": 0 if reply is None else reply.rounds,
        "cut": None if reply is None else reply.cut,
        "session_id": session_id,
        "session_reason": session_reason,
        "error": None if error is None else error_object(error),
        "exit_code": exit_code,
    }


def denial_object(decision: Decision) -> JsonObject:
    """A denied request as JSON, with what would allow it."""
    return {**permission_object(decision), "remedy": decision.remedy}


def error_object(error: AgentError) -> JsonObject:
    """An error as JSON."""
    return _present(
        kind=error.kind,
        message=error.message,
        code=error.code,
        data=error.data,
        agent_exit_code=error.exit_code,
        agent_stderr=error.stderr or None,
    )


def _present(**members: Any) -> JsonObject:
    """Returns the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


class Answers:
    """Answers what the agent asks, by the options or at the terminal, which it holds meanwhile."""

    def __init__(self, options: ExecOptions, mask: Callable[[str], str]) -> None:
        """`mask` redacts what is shown at the terminal."""
        is_asked = options.permissions == "ask" or options.forms
        self._mask = mask
        self._terminal = QuestionTerminal.opened() if is_asked else None
        self.policy = self._policy(options)
        has_forms = options.forms and self._terminal is not None
        self.on_form: OnForm | None = self._fill_in if has_forms else None
        self.on_url: OnUrl | None = self._visit if has_forms else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._terminal is not None:
            self._terminal.close()

    def _policy(self, options: ExecOptions) -> Policy:
        is_asked = options.permissions == "ask" and self._terminal is not None
        asked: Decide | None = self._permit if is_asked else None
        try:
            return policy_of(
                options.permissions,
                options.allow,
                options.deny,
                asked,
                agent=options.agent,
                cwd=options.cwd,
            )
        except ValueError as error:
            refuse(str(error), PROGRAM)

    async def _permit(self, request: PermissionRequest) -> Verdict:
        assert self._terminal is not None
        return await ask_permission(request, self._terminal, self._mask)

    async def _fill_in(self, request: FormRequest) -> FormAnswer:
        assert self._terminal is not None
        async with self._terminal.turn():
            return await self._dialogs(self._terminal).form(request)

    async def _visit(self, request: UrlRequest) -> bool | None:
        assert self._terminal is not None
        async with self._terminal.turn():
            return await self._dialogs(self._terminal).page(request)

    def _dialogs(self, terminal: QuestionTerminal) -> Dialogs:
        # Imported on use: few agents ask.
        from coupler.cli.chat.dialogs import Dialogs
        from coupler.cli.chat.plain import LineDialogFront

        return Dialogs(LineDialogFront(terminal, self._mask))


PROGRAM = "coupler exec"
FORMATS = ("text", "json", "ndjson", "quiet")

BUDGETS = {"tokens": int, "cost": float, "turns": int}
"""The limits of --budget, and the type of each."""


@dataclass(frozen=True)
class ExecOptions:
    """The checked options."""

    agent: str
    prompt: str | list[ContentBlock]
    is_typed: bool = True
    """False if the prompt begins with what came by a pipe or from a file."""
    format: str = "text"
    schema: dict[str, Any] | None = None
    cwd: str = "."
    model: str | None = None
    mode: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    mcp_servers: Sequence[McpServer] = ()
    permissions: str = "allow-reads"
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    files: Literal["none", "read", "write"] | None = None
    terminals: bool = False
    forms: bool = False
    timeout: float | None = None
    budget: Budget | None = None
    session: str | None = None
    record: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    fail_on_denial: bool = False


def prompt_of(words: Sequence[str], files: Sequence[str]) -> str | list[ContentBlock]:
    """Builds the prompt: the words that were given, what was piped in place of `-`, and files, set apart.

    Files are text, and of one text with the words, or images.
    """
    if not words and not files:
        if sys.stdin.isatty():
            refuse('say what to ask, as in: coupler exec claude "Summarise README.md"', PROGRAM)
        words = (STDIN,)
    if [*words, *files].count(STDIN) > 1:
        refuse("stdin can be read only once: give `-` once", PROGRAM)
    parts: list[list[str]] = [[]]
    for word in words:
        if word == STDIN:
            parts += [[read_text_argument(STDIN, PROGRAM)], []]
        else:
            parts[-1].append(word)
    texts = [" ".join(part) for part in parts]
    images: list[ContentBlock] = []
    for file in files:
        image = read_image_argument(file, PROGRAM)
        if image is None:
            texts.append(read_text_argument(file, PROGRAM))
        else:
            images.append(image)
    prompt = "\n\n".join(text for text in texts if text.strip())
    if images:
        return [TextContent(prompt), *images] if prompt else images
    if not prompt:
        refuse("the prompt is empty: say what to ask, after the agent or on stdin", PROGRAM)
    return prompt


def has_company(words: Sequence[str], files: Sequence[str]) -> bool:
    """True if somebody can be asked at the terminal, and stdin is not the prompt."""
    is_read = STDIN in (*words, *files) or not (words or files)
    return not is_read and sys.stdin is not None and sys.stdin.isatty() and stderr().is_terminal


def budget_of(text: str | None) -> Budget | None:
    """Parses a budget such as tokens=5000,cost=0.5,turns=3."""
    if text is None:
        return None
    from coupler.client.reply import Budget

    limits: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in BUDGETS:
            refuse(
                f"--budget limits {', '.join(BUDGETS)}, as in --budget tokens=5000,cost=0.5; not {part!r}",
                PROGRAM,
            )
        try:
            limits[name] = BUDGETS[name](value)
        except ValueError:
            refuse(f"--budget {name} must be a number, not {value!r}", PROGRAM)
    try:
        return Budget(**limits)
    except ValueError as error:
        refuse(f"--budget: {error}", PROGRAM)


def schema_of(file: str | None) -> dict[str, Any] | None:
    """Reads the JSON Schema in a file."""
    if file is None:
        return None
    schema = read_json_argument(file, "--schema", PROGRAM)
    if not isinstance(schema, dict):
        refuse(f"{file} is no JSON Schema: it must be an object", PROGRAM)
    from coupler.client.output import output_schema_of

    try:
        output_schema_of(schema)
    except TypeError as error:
        refuse(f"--schema {file}: {str(error).removeprefix('output= is a type or a JSON Schema: ')}", PROGRAM)
    return schema


LONGEST_DETAIL = 400
"""Characters of a title, a path or a command that are shown."""

MOST_PATHS = 20
"""Paths that are shown."""


async def ask_permission(
    request: PermissionRequest, terminal: QuestionTerminal, mask: Callable[[str], str]
) -> Verdict:
    """Shows what the agent wants to do, and lets the person choose one of its options by number."""
    async with terminal.turn():
        question = _question(request, mask)
        while True:
            answer = (await terminal.ask(question)).strip()
            if answer.isdigit() and 1 <= int(answer) <= len(request.options):
                return request.options[int(answer) - 1].option_id
            if not answer:
                return False
            question = f"A number from 1 to {len(request.options)}, or nothing to deny it: "


def _question(request: PermissionRequest, mask: Callable[[str], str]) -> str:
    call = request.tool_call
    # Masked before it is cut: nobody recognises the half of a secret.
    lines = ["", f"The agent asks: {_shown(mask(call.title or call.kind))} ({_shown(call.kind)})"]
    lines += _listed([location.path for location in call.locations])
    command = action_of(request).command
    if command is not None:
        lines.append(f"  {_shown(mask(command if isinstance(command, str) else shlex.join(command)))}")
    for number, option in enumerate(request.options, 1):
        lines.append(f"  {number}. {_shown(mask(option_label(option.kind, option.name)))}")
    return "\n".join(lines) + "\nNumber (nothing denies it): "


def _listed(paths: Sequence[str]) -> list[str]:
    left = len(paths) - MOST_PATHS
    lines = [f"  {_shown(path)}" for path in paths[:MOST_PATHS]]
    return [*lines, f"  … and {left} more"] if left > 0 else lines


def _shown(text: str) -> str:
    """The text in a line; that there is more of it is told, for nobody may agree to what is hidden."""
    line = one_line(text)
    left = len(line) - LONGEST_DETAIL
    return f"{line[:LONGEST_DETAIL]}… ({left} characters more)" if left > 0 else line
