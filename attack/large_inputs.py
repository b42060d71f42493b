"""Inputs of ten megabytes, each in the shape that costs its reader most; each must be done with in its time.

Refusing is fine, and so is taking a part. Every input has a process of its own, which is ended when it takes
several times as long as it may.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from exchange import ATTACKED, COUPLER, Attacker
from leaks import SCRIPTED
from outcome import Effort, Outcome

MEGABYTE = 1_000_000
SIZE = 10 * MEGABYTE - 2000
"""Bytes: a frame may have 10 MiB."""
SHORT_SIZE = 30_000
SECONDS = 10.0
"""Processor time that most readers may take for such an input, the start of a command included."""
SEARCH_SECONDS = 30.0
"""The same of a search, which ends itself after some time."""
PATIENCE = 3.0
"""Times as long is waited, by the clock, before a reader counts as hanging."""
MOST_MEGABYTES = 1500
"""Memory of a reader."""

Read = Callable[[Path, int], None]


@dataclass(frozen=True)
class Case:
    """One reader, and an input for it."""

    name: str
    read: Read
    seconds: float = SECONDS


def attack_by_size(effort: Effort, outcome: Outcome) -> None:
    """Give every reader its worst inputs."""
    size = SHORT_SIZE if effort.is_short else SIZE
    cases = [*_cases()]
    if effort.most < len(cases):
        cases = effort.chance("large inputs").sample(cases, effort.most)
    for number, case in enumerate(cases):
        if effort.is_over:
            break
        place = effort.directory(f"large-{number}")
        problem, seconds = _in_process(case, place, size)
        outcome.tries += 1
        outcome.worst("slowest", seconds, f"s ({case.name})")
        if problem is None and seconds > case.seconds:
            problem = f"took {seconds:.1f} s, not {case.seconds:.0f}"
        if problem is not None:
            outcome.fail(
                f"{case.name}: {problem}", f"python attack --only 'large inputs' --seed {effort.seed}"
            )


def _in_process(case: Case, place: Path, size: int) -> tuple[str | None, float]:
    """Let a process of its own read the input; what was wrong, and the seconds that processors took."""
    context = multiprocessing.get_context("fork")
    told, tell = context.Pipe(duplex=False)
    process = context.Process(target=_read, args=(case, place, size, tell))
    process.start()
    tell.close()
    process.join(case.seconds * PATIENCE)
    if process.is_alive():
        _end(process.pid or 0)
        process.join()
        return f"hangs: not done in {case.seconds * PATIENCE:.0f} s", case.seconds * PATIENCE
    try:
        problem, seconds = told.recv()
    except EOFError:
        return f"the process has died, exit code {process.exitcode}", 0.0
    return problem or None, seconds


def _read(case: Case, place: Path, size: int, tell: Connection) -> None:
    os.setsid()
    problem = ""
    try:
        case.read(place, size)
    except Exception as error:
        problem = "".join(traceback.format_exception(error))[-600:]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    most = max(usage.ru_maxrss for usage in used) / 1024
    if not problem and most > MOST_MEGABYTES:
        problem = f"took {most:.0f} MB of memory"
    tell.send((problem, sum(usage.ru_utime + usage.ru_stime for usage in used)))


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, 9)


def _cases() -> Iterator[Case]:
    yield from (Case(f"a frame: {name}", _frame(make)) for name, make in FRAMES.items())
    yield from (Case(f"a prompt: {name}", _prompt(make)) for name, make in TEXTS.items())
    yield from (Case(f"a workflow: {name}", _workflow(make)) for name, make in WORKFLOWS.items())
    yield from (Case(f"coupler.toml: {name}", _settings(make)) for name, make in TOMLS.items())
    yield from (Case(f"a recording: {name}", _recording(make)) for name, make in RECORDINGS.items())
    yield from (Case(f"an update, exec: {name}", _update(make)) for name, make in UPDATES.items())
    yield from (
        Case(f"a stream of {vendor}: {name}", _stream(vendor, make))
        for vendor in VENDORS
        for name, make in STREAMS.items()
    )
    yield from (Case(f"Markdown: {name}", _markdown(make)) for name, make in TEXTS.items())
    yield from (Case(f"a pattern: {name}", _pattern(pattern)) for name, pattern in PATTERNS.items())
    yield from (Case(f"a glob: {name}", _glob(pattern), SEARCH_SECONDS) for name, pattern in GLOBS.items())
    yield from (Case(f"a command: {name}", _command(make)) for name, make in COMMANDS.items())
    yield from (Case(f"secrets in: {name}", _redaction(make)) for name, make in TEXTS.items())


def _filled(unit: str, size: int) -> str:
    return unit * (size // len(unit.encode()))


TEXTS: dict[str, Callable[[int], str]] = {
    "letters": lambda size: _filled("x", size),
    "lines": lambda size: _filled("x\n", size),
    "stars": lambda size: _filled("*a", size),
    "brackets": lambda size: _filled("[", size),
    "backquotes": lambda size: _filled("`a", size),
    "quotes": lambda size: _filled("> ", size),
    "lists": lambda size: _filled("- a\n  ", size),
    "links": lambda size: _filled("[a](<b", size),
    "entities": lambda size: _filled("&#0;<", size),
    "emoji": lambda size: _filled("😀\u200d", size),
    "slashes": lambda size: _filled("/@", size),
    "tables": lambda size: _filled("|a|b\n|-|-\n", size),
    "escapes": lambda size: _filled("\x1b[", size),
}


def _request(method: str) -> str:
    return f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":'


FRAMES: dict[str, Callable[[int], str]] = {
    "lists in lists": lambda size: "[" * size,
    "closed lists in lists": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "objects in objects": lambda size: _filled('{"a":', size),
    "params in params": lambda size: _request("initialize") + _filled('{"a":', size),
    "many keys": lambda size: "{" + ",".join(f'"{n}":1' for n in range(size // 12)) + "}",
    "one key again and again": lambda size: "{" + _filled('"id":1,', size) + '"a":1}',
    "a number": lambda size: '{"jsonrpc":"2.0","id":' + "9" * size + ',"method":"initialize"}',
    "numbers": lambda size: _request("x") + "[" + _filled("1,", size) + "1]}",
    "escapes": lambda size: _request("x") + '["' + _filled("\\u0041", size) + '"]}',
    "backslashes": lambda size: '{"id":1,"x":"' + "\\" * size,
    "quotes": lambda size: '"' * size,
    "spaces": lambda size: " " * size,
    "a method": lambda size: '{"jsonrpc":"2.0","id":1,"method":"' + "x" * size + '"}',
    "MCP servers": lambda size: _request("session/new") + '{"cwd":"/","mcpServers":['
    + _filled('{"name":"a"},', size) + "1]}}",
    "blocks": lambda size: _request("session/prompt") + '{"sessionId":"x","prompt":['
    + _filled('{"type":"text","text":1},', size) + "1]}}",
    "an array of calls": lambda size: "[" + _filled('{"jsonrpc":"2.0","id":1,"method":"x"},', size) + "1]",
}  # fmt: skip


def _frame(make: Callable[[int], str]) -> Read:
    """The frame, then a prompt that has to be answered."""

    def read(place: Path, size: int) -> None:
        with _served(place) as attacker:
            attacker.open(lambda words: words)
            attacker.write(make(size).encode() + b"\n")
            attacker.prompt("sentinel after it", lambda words: words)

    return read


def _prompt(make: Callable[[int], str]) -> Read:
    """A prompt with the text, kept in a store, loaded again and listed."""

    def read(place: Path, size: int) -> None:
        with _served(place) as attacker:
            attacker.open(lambda words: words)
            session = attacker.new_session()
            # An escape takes six bytes of a frame where the text has one.
            blocks = [{"type": "text", "text": make(size // 6)}]
            answer = attacker.call("session/prompt", {"sessionId": session, "prompt": blocks})
            assert answer["result"]["stopReason"] == "end_turn", answer
            attacker.prompt("sentinel after it", lambda words: words)
            attacker.call("session/list", {})
        _run(place, "sessions", "show", session)

    return read


def _served(place: Path) -> AbstractContextManager[Attacker]:
    env = {"COUPLER_HOME": str(place / "home")}
    return Attacker.started([*COUPLER, "serve", ATTACKED], env, place, random.Random(0))


STEP = "steps:\n  - {id: a, run: 'true'}\n"
WORKFLOWS: dict[str, Callable[[int], str]] = {
    "lists in lists": lambda size: "steps: " + "[" * size,
    "mappings in mappings": lambda size: "steps: " + _filled("{a: ", size),
    "blocks in blocks": lambda size: "".join(f"{' ' * n}a:\n" for n in range(int(size**0.5))),
    "aliases of aliases": lambda size: (
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    ),
    "many steps": lambda size: (
        "steps:\n" + "".join(f"  - {{id: s{n}, run: 'true'}}\n" for n in range(size // 26))
    ),
    "many keys": lambda size: STEP + "".join(f"k{n}: 1\n" for n in range(size // 10)),
    "a long text": lambda size: f"steps:\n  - {{id: a, run: '{'x' * size}'}}\n",
    "a long expression": lambda size: (
        f"steps:\n  - {{id: a, if: \"{_filled('1 + ', size)}1\", run: 'true'}}\n"
    ),
    "brackets in an expression": lambda size: f"steps:\n  - {{id: a, if: \"{'(' * size}\", run: 'true'}}\n",
    "a template of templates": lambda size: f'steps:\n  - {{id: a, run: "{_filled("{{ 1 }}", size)}"}}\n',
    "an open template": lambda size: f'steps:\n  - {{id: a, run: "{_filled("{{ ", size)}"}}\n',
    "anchors": lambda size: "x: [" + ", ".join(f"&a{n} 1" for n in range(size // 10)) + "]\n" + STEP,
    "merges": lambda size: "a: &a {b: 1}\n" + "".join("c: {<<: [*a, *a]}\n" for _ in range(size // 18)),
    "question marks": lambda size: _filled("? ", size),
    "dashes": lambda size: _filled("- ", size),
    "tags": lambda size: _filled("!!python/name:os.system ", size),
    "numbers": lambda size: f"steps:\n  - {{id: a, run: 'true', timeout: {'9' * size}}}\n",
}


def _workflow(make: Callable[[int], str]) -> Read:
    def read(place: Path, size: int) -> None:
        (place / "flow.yaml").write_text(make(size))
        _run(place, "workflows", "validate", "./flow.yaml")

    return read


TOMLS: dict[str, Callable[[int], str]] = {
    "lists in lists": lambda size: "a = " + "[" * size,
    "tables in tables": lambda size: "a = " + _filled("{a=", size),
    "a dotted key": lambda size: _filled("a.", size) + "a = 1",
    "a dotted table": lambda size: "[" + _filled("a.", size) + "a]",
    "many keys": lambda size: "".join(f"k{n} = 1\n" for n in range(size // 10)),
    "many agents": lambda size: "".join(f'[agents.a{n}]\ncommand = "x"\n' for n in range(size // 30)),
    "many rules": lambda size: (
        f"[permissions]\nallow = [{_filled(chr(34) + 'execute(ls *)' + chr(34) + ', ', size)}]"
    ),
    "a long rule": lambda size: f'[permissions]\nallow = ["execute({_filled("* ", size)})"]',
    "a number": lambda size: "a = " + "9" * size,
    "a text": lambda size: 'a = """' + _filled("\\\\u0041", size) + '"""',
}


def _settings(make: Callable[[int], str]) -> Read:
    """As the settings of a user and of a project that nobody has trusted."""

    def read(place: Path, size: int) -> None:
        (place / "home").mkdir()
        for directory in (place, place / "home"):
            file = directory / "coupler.toml"
            file.write_text(make(size))
            _run(place, "agents")
            file.unlink()

    return read


UPDATE = (
    '{"at":0,"from":"agent","frame":{"jsonrpc":"2.0","method":"session/update",'
    '"params":{"sessionId":"s","update":'
)
RECORDINGS: dict[str, Callable[[int], str]] = {
    "lists in lists": lambda size: "[" * size,
    "empty lines": lambda size: "\n" * size,
    "empty objects": lambda size: _filled("{}\n", size),
    "updates": lambda size: _filled(UPDATE + '{"sessionUpdate":"plan","entries":[]}}}}\n', size),
    "one update": lambda size: UPDATE + '{"sessionUpdate":"' + "x" * size + '"}}}}\n',
    "no JSON": lambda size: _filled('{"at":\n', size),
    "a number": lambda size: '{"at":' + "9" * size + "}\n",
}


def _recording(make: Callable[[int], str]) -> Read:
    def read(place: Path, size: int) -> None:
        (place / "recording.ndjson").write_text(make(size))
        _run(place, "replay", "recording.ndjson")
        _run(place, "check", "--trace", "recording.ndjson")

    return read


def _call(**fields: object) -> dict[str, object]:
    return {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "status": "completed", **fields}


def _diff(old: str, new: str) -> dict[str, object]:
    return _call(content=[{"type": "diff", "path": "/x", "oldText": old, "newText": new}])


UPDATES: dict[str, Callable[[int], dict[str, object]]] = {
    "a diff of other lines": lambda size: _diff(_filled("a\n", size // 2), _filled("b\n", size // 2)),
    "a diff of numbered lines": lambda size: _diff(
        "".join(f"{n}\n" for n in range(size // 14)), "".join(f"{n}\n" for n in range(size // 14, 0, -1))
    ),
    "a diff of one line": lambda size: _diff("ab" * (size // 4), "ba" * (size // 4)),
    "an input": lambda size: _call(rawInput={str(n): [n] for n in range(size // 16)}),
    "a deep input": lambda size: _call(rawInput=_deep(100)),
    "an output": lambda size: _call(
        content=[{"type": "content", "content": {"type": "text", "text": "x\n" * (size // 4)}}]
    ),
    "a title": lambda size: _call(title="x " * (size // 2)),
    "a plan": lambda size: {
        "sessionUpdate": "plan",
        "entries": [{"content": "x", "priority": "low", "status": "pending"}] * (size // 60),
    },
    "commands": lambda size: {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [{"name": "x", "description": "y"}] * (size // 40),
    },
    "locations": lambda size: _call(locations=[{"path": "/x"}] * (size // 16)),
}


def _deep(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = {"a": [value]}
    return value


def _update(make: Callable[[int], dict[str, object]]) -> Read:
    """Printed by `coupler exec`, and kept and shown by the relay and its listing."""

    def read(place: Path, size: int) -> None:
        (place / "turns.json").write_text(json.dumps([[make(size)]]))
        agent = f"{sys.executable} {SCRIPTED} {place / 'turns.json'}"
        for form in ("text", "json"):
            _run(place, "exec", "--format", form, agent, "go")
        env = {"COUPLER_HOME": str(place / "home")}
        command = [*COUPLER, "serve", "--", *agent.split()]
        with Attacker.started(command, env, place, random.Random(0)) as attacker:
            attacker.open(lambda words: "")
            attacker.prompt("go", lambda words: "")
            session = attacker.session
        _run(place, "sessions", "show", session)

    return read


STREAMS: dict[str, Callable[[int], str]] = {
    "lists in lists": lambda size: "[" * size,
    "no JSON": lambda size: _filled("x\n", size),
    "empty objects": lambda size: _filled("{}\n", size),
    "broken objects": lambda size: _filled("{x\n", size),
    "unknown types": lambda size: _filled('{"type":"x"}\n', size),
    "one text": lambda size: json.dumps({"type": "result", "result": "x" * size}),
}


VENDORS = ("claude", "codex", "copilot", "gemini", "opencode")


def _stream(vendor: str, make: Callable[[int], str]) -> Read:
    """As the vendor's program would write it."""

    def read(place: Path, size: int) -> None:
        from coupler.providers.command_line import CommandLineAgent

        lines = make(size).encode().splitlines()
        module = importlib.import_module(f"coupler.providers.{vendor}")
        for kind in vars(module).values():
            if (
                isinstance(kind, type)
                and issubclass(kind, CommandLineAgent)
                and kind.__module__ == module.__name__
            ):
                parser = kind.parser(object.__new__(kind))
                for line in lines:
                    parser.read(line)
                parser.end()

    return read


def _markdown(make: Callable[[int], str]) -> Read:
    """As chat shows it: in pieces while it comes, and whole."""

    def read(place: Path, size: int) -> None:
        from rich.console import Console

        from coupler.cli.chat.rendering import render_part
        from coupler.cli.chat.transcript import StreamedMarkdown

        text = make(size)
        console = Console(file=(place / "out").open("w"), width=80)
        stream = StreamedMarkdown()
        for at in range(0, len(text), 100_000):
            stream.add(text[at : at + 100_000])
            for part in stream.take_whole():
                console.print(render_part(part))
            stream.end(20)
        for part in stream.take_all():
            console.print(render_part(part))

    return read


PATTERNS = {
    "nested repeats": "(a+)+$",
    "alternatives": "(a|a|aa)+$",
    "counted": "(a{1,30}){1,30}$",
    "stars": ".*.*.*.*.*.*b",
    "optional": "a?" * 200 + "a" * 200,
    "groups": "(" * 400 + ")" * 400,
    "a class": "[" + "a-z" * 300 + "]+$",
}


def _pattern(source: str) -> Read:
    """As a form of a peer or a workflow has it, against what was typed."""

    def read(place: Path, size: int) -> None:
        from coupler.fields.bounded_regex import Pattern

        with suppress(ValueError, RecursionError):
            pattern = Pattern(source)
            for text in ("a" * 4096, "a" * size):
                with suppress(ValueError):
                    pattern.found_in(text)

    return read


GLOBS = {
    "stars": "*a" * 50 + "b",
    "double stars": "**/" * 50 + "b",
    "braces": "{a,b}" * 30,
    "nested braces": "{" * 500 + "a" + "}" * 500,
    "brackets": "[" * 5000,
    "questions": "?" * 5000 + "*" * 5000,
}


def _glob(source: str) -> Read:
    """As a rule of permissions, and as a search."""

    def read(place: Path, size: int) -> None:
        from coupler.langchain.editor_tools import searching
        from coupler.permission.rules import Rule
        from permission.parts import Bench

        bench = Bench(place)
        for path in ("a" * 4000, "a/" * 2000, "a" * size):
            for rule in (f"edit({source})", f"execute({source} *)"):
                with suppress(ValueError):
                    Rule.parse("allow", rule, "user")
                    bench.touch("edit", path, rule)
                    bench.run(path, rule)
        (place / ("a" * 200)).write_text("a\n")
        request = searching.SearchRequest(str(place), source, "a", 10)
        with suppress(ValueError):
            asyncio.run(searching.run_search_program(request))
        program = searching.find_ripgrep(())
        if program is not None:
            with suppress(ValueError):
                asyncio.run(searching.run_ripgrep(program, request))

    return read


COMMANDS: dict[str, Callable[[int], str]] = {
    "words": lambda size: "ls " + _filled("a ", size),
    "commands": lambda size: _filled("ls;", size),
    "brackets": lambda size: "(" * size,
    "substitutions": lambda size: _filled("$(", size),
    "quotes": lambda size: _filled("'\"", size),
    "here-documents": lambda size: _filled("cat <<A\n", size),
    "braces": lambda size: "echo " + "{a,b}" * (size // 5),
    "assignments": lambda size: _filled("a=$a$a;", size) + "$a",
    "shells in shells": lambda size: _filled("sh -c ", size),
    "pipes": lambda size: _filled("ls|", size),
}


def _command(make: Callable[[int], str]) -> Read:
    """Judged by rules and by the floor."""

    def read(place: Path, size: int) -> None:
        from permission.parts import Bench

        bench = Bench(place)
        verdicts = {bench.run(make(size), *rules).decision for rules in (("execute(ls *)",), ("*",))}
        assert verdicts <= {"allow", "ask", "deny"}

    return read


def _redaction(make: Callable[[int], str]) -> Read:
    """Masked whole and in pieces, with secrets that nearly fit everywhere."""

    def read(place: Path, size: int) -> None:
        from coupler.redaction.masker import Masker, StreamMasker
        from coupler.redaction.sources import Secret

        text = make(size)
        masker = Masker([Secret(str(n), text[:30] + "é" * n) for n in range(1, 20)])
        masker.mask(text)
        stream = StreamMasker(masker)
        for at in range(0, len(text), 4096):
            stream.feed(text[at : at + 4096])
        stream.end()

    return read


def _run(place: Path, *words: str) -> None:
    """Run a command; it may refuse, but not fail."""
    done = subprocess.run(
        [*COUPLER, *words],
        cwd=place,
        env=os.environ | {"COUPLER_HOME": str(place / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    if b"Traceback" in done.stderr or done.returncode < 0:
        raise RuntimeError(f"coupler {' '.join(words)[:100]}: {done.returncode} {done.stderr[-600:]!r}")
