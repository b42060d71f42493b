"""Rules for what agents ask: those of `coupler.toml`, given to a policy, and what would have allowed a call.

The judgement follows links, and so may have to wait for a disk: it belongs into a thread.
"""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from coupler.permission.action import Action
from coupler.permission.engine import Choices
from coupler.permission.engine import Permissions as PermissionEngine
from coupler.permission.engine import Verdict as EngineVerdict
from coupler.permission.rules import Rule
from coupler.schema.v1 import Diff

if TYPE_CHECKING:
    from coupler.client.policy import PermissionRequest


READING_KINDS = frozenset({"read", "search", "think"})

_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


class Rules:
    """Rules of a policy, and others that were read already. Raises ValueError for one that is wrong."""

    def __init__(
        self, allow: Sequence[str], ask: Sequence[str], deny: Sequence[str], others: Sequence[Rule] = ()
    ) -> None:
        written = {"allow": allow, "ask": ask, "deny": deny}
        for effect, texts in written.items():
            if isinstance(texts, str):
                raise TypeError(f"{effect}= is a list of rules: write {effect}=[{texts!r}]")
        self._rules = [
            Rule.parse(effect, text, f"the policy's {effect} rules")
            for effect, texts in written.items()
            for text in texts
        ] + [*others]
        everything = Rule.parse("allow", "*", "")
        against = (rule for rule in self._rules if rule.effect != "allow" and rule.name is not None)
        self._against_names = [*against, everything]

    def judge(self, request: PermissionRequest, choices: Choices | None = None) -> EngineVerdict:
        """What the rules say, and where they say nothing what was chosen for good.

        The title can speak against a call, and never for it.
        """
        verdict = _judged(self._rules, action_of(request), request, choices)
        server, name = server_and_name(request.tool_call.title)
        titled = Action(kind="think", name=name, server=server, roots=request.roots)
        by_title = _judged(self._against_names, titled, request)
        return max(verdict, by_title, key=lambda each: _STRICTNESS[each.decision])


def never(request: PermissionRequest) -> str | None:
    """Why nobody may allow a call, if that is so: no rule, policy, function or answer."""
    verdict = _judged([], action_of(request), request)
    return verdict.reason if verdict.is_final else None


def is_reading(request: PermissionRequest) -> bool:
    """Whether a call only looks at ordinary files in the session's directories, as far as it tells."""
    if request.tool_call.kind not in READING_KINDS:
        return False
    action = action_of(request)
    if action.command is not None or action.urls or action.env:
        return False
    if any(isinstance(item, Diff) for item in request.tool_call.content):
        return False
    looked_at = Action(kind="read", paths=action.paths, roots=action.roots)
    return not action.paths or _judged([], looked_at, request).decision == "allow"


def remedy(request: PermissionRequest) -> str:
    """What would allow the call, in words for people who use Python or the command line."""
    if (reason := never(request)) is not None:
        return reason
    if is_reading(request):
        return "allow it with the policy allow-reads (--permissions allow-reads)"
    everything = "everything with the policy allow-all (--permissions allow-all)"
    texts = _rules_for(request)
    if not texts:
        return f"allow {everything}"
    named = " and ".join(f"`{text}`" for text in texts)
    flags = " ".join(f"--allow {shlex.quote(text)}" for text in texts)
    word = "rule" if len(texts) == 1 else "rules"
    return f"allow it with the {word} {named} ({flags}), or {everything}"


def _rules_for(request: PermissionRequest) -> list[str]:
    """The rules that would allow the call, if there are such that say exactly what they allow."""
    verdict = _judged([], action_of(request), request)
    scopes = (scope for offer in verdict.offers if offer.kind == "allow_always" for scope in offer.scopes)
    return [scope.rule_text for scope in scopes]


def _judged(
    rules: Sequence[Rule], action: Action, request: PermissionRequest, choices: Choices | None = None
) -> EngineVerdict:
    project = request.cwd or "/"
    return PermissionEngine(rules, choices or Choices(project), project).judge(action)


# What an agent asks to do, as rules judge it: gathered from all that it says of the call but the title.
#
# An agent's words are a claim. So everything that looks like a path, a command or an address is judged,
# wherever it stands in the input, and what cannot be read makes the call one that no rule allows.


PATH_KEYS = frozenset(
    {
        *("path", "paths", "file", "files", "filename", "file_path", "file_paths", "abs_path"),
        *("absolute_path", "notebook_path", "target_file", "old_path", "new_path", "source_path"),
        *("destination_path", "directory", "dir", "dir_path"),
    }
)
COMMAND_KEYS = frozenset({"command", "cmd", "shell_command", "commands"})
URL_KEYS = frozenset({"url", "urls", "uri", "href"})
DIRECTORY_KEYS = frozenset({"cwd", "workdir", "working_directory"})

DEEPEST = 6
"""Levels of the input that are looked at; what is below makes the call unreadable."""
MOST_VALUES = 1_000
"""Values of the input that are looked at."""

UNREADABLE = "\0"
"""Stands for a path that nobody can judge."""


def action_of(request: PermissionRequest) -> Action:
    """The call as it is judged."""
    call = request.tool_call
    said = _Said(request.cwd)
    for location in call.locations:
        said.add_path(location.path)
    for item in call.content:
        if isinstance(item, Diff):
            said.add_path(item.path)
    said.read(call.raw_input)
    server, name = server_and_name(call.name)
    return Action(
        kind=call.kind,
        name=name,
        server=server,
        paths=tuple(dict.fromkeys(said.paths)),
        command=said.command,
        urls=tuple(dict.fromkeys(said.urls)),
        env=tuple(said.env),
        cwd=said.directory,
        roots=request.roots,
    )


def server_and_name(name: str | None) -> tuple[str | None, str | None]:
    """A tool's MCP server, if its name tells one as many agents do (`mcp__server__tool`), and the rest."""
    if name is not None and name.startswith("mcp__") and name.count("__") >= 2:
        _, server, tool = name.split("__", 2)
        return server, tool
    return None, name


class _Said:
    """What an input holds, value by value."""

    def __init__(self, cwd: str) -> None:
        self.paths: list[str] = []
        self.urls: list[str] = []
        self.env: list[str] = []
        self.directory = cwd
        self._cwd = cwd
        self._commands: list[str | tuple[str, ...]] = []

    @property
    def command(self) -> str | tuple[str, ...] | None:
        """The command; several of them are one line after the other."""
        if len(self._commands) < 2:
            return self._commands[0] if self._commands else None
        return "\n".join(each if isinstance(each, str) else shlex.join(each) for each in self._commands)

    def add_path(self, path: str) -> None:
        """A path, and what a shell would make of it."""
        self.paths.append(os.path.join(self._cwd, path))
        if path.startswith("~"):
            self.paths.append(os.path.expanduser(path))

    def read(self, raw: Any) -> None:
        """Look through a whole input."""
        for number, (part, depth) in enumerate(_parts(raw)):
            if number > MOST_VALUES or depth > DEEPEST:
                self.paths.append(UNREADABLE)
                return
            for key, value in part.items():
                self._take(_snake(key), value, part)

    def _take(self, key: str, value: Any, part: dict[str, Any]) -> None:
        if value is None:
            return
        if key in PATH_KEYS:
            for path in self._texts(value):
                self.add_path(path)
        elif key in URL_KEYS:
            self.urls += self._texts(value)
        elif key in COMMAND_KEYS:
            self._take_command(value, part.get("args", part.get("arguments")))
        elif key in DIRECTORY_KEYS:
            self.directory = os.path.join(self._cwd, next(iter(self._texts(value)), UNREADABLE))
        elif key in {"env", "environment"}:
            self.env += [str(name) for name in value] if isinstance(value, dict) else [UNREADABLE]

    def _take_command(self, value: Any, arguments: Any) -> None:
        words = self._texts(value)
        more = [] if arguments is None else self._texts(arguments)
        if isinstance(value, str) and not more:
            self._commands.append(value)
        elif isinstance(value, str):
            self._commands.append(f"{value} {shlex.join(more)}")
        elif words:
            self._commands.append((*words, *more))

    def _texts(self, value: Any) -> list[str]:
        """One text or a list of them; anything else is noted, and allows nothing."""
        values = value if isinstance(value, list) else [value]
        texts = [each for each in values if isinstance(each, str)]
        # Objects are looked through by themselves.
        if any(not isinstance(each, str | dict) for each in values):
            self.paths.append(UNREADABLE)
        return texts


def _parts(raw: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """All objects in a value, from the outside in, with their depth."""
    waiting: list[tuple[Any, int]] = [(raw, 0)]
    while waiting:
        value, depth = waiting.pop(0)
        if isinstance(value, dict):
            yield value, depth
            waiting += [(each, depth + 1) for each in value.values() if isinstance(each, dict | list)]
        elif isinstance(value, list):
            waiting += [(each, depth + 1) for each in value if isinstance(each, dict | list)]


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key).strip("_")
