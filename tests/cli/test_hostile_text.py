"""Nothing from outside is obeyed by a terminal: every listing, with hostile text in every field."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
import typing
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import forked
from cli.chat_stage import CTRL_D, READY, Chatter
from cli.hostile import HOSTILE, filled, messages, obeyed_in
from cli.typing_at import Typist
from coupler.events.events import TurnUsage
from coupler.events.records import TurnEnd, end_record, text_piece, to_record
from coupler.events.v1_codec import from_update, tool_update_of
from coupler.schema import decode, v1
from coupler.store.choices import ChoiceRecord
from coupler.store.sessions import SessionRecord
from coupler.store.store import Store
from coupler.workflow.journal import run_events
from coupler.workflow.journal.run_events import AgentEvent, RunFinished, RunHappening, SessionEvent
from raw_client import COUPLER, PATIENCE
from workflow.kept_runs import in_store, new_run

AGENT = f"{sys.executable} {Path(__file__).with_name('hostile_agent.py')}"

NAME = HOSTILE.replace("/", "").replace("\x00", "")
"""For names of files."""

WORKFLOW = {
    "name": "evil",
    "description": HOSTILE,
    "inputs": {"what": {"description": HOSTILE, "default": HOSTILE, "enum": [HOSTILE, "b"]}},
    "steps": [
        {"id": "said", "run": "printf '%s' {{ inputs.what }}", "description": HOSTILE, "env": {"E": HOSTILE}},
        {"id": "asked", "approve": HOSTILE, "if": "false"},
        {"id": "agent", "agent": "coder", "prompt": HOSTILE, "if": "inputs.what == 'b'"},
        {"id": "wrote", "run": "printf '%s' {{ inputs.what }}; printf '%s' {{ inputs.what }} >&2; exit 3"},
    ],
    "outputs": {"all": "{{ inputs.what }}"},
}


def written(value: object) -> str:
    """JSON that is YAML, and whose strings are TOML: both know no pairs of surrogates."""
    return re.sub(
        r"\\u(d[89ab]..)\\u(d[c-f]..)",
        lambda pair: f"\\U{ord(bytes.fromhex(pair[1] + pair[2]).decode('utf-16-be')):08x}",
        json.dumps(value).replace("\x7f", "\\u007f"),
    )


SETTINGS = f"""
[agents.evil]
command = ["evil", {written(HOSTILE)}]
env = {{ EVIL = {written(HOSTILE)} }}
files = "read"
"""

PROJECT = f"""
[permissions]
allow = [{written("execute(" + HOSTILE + ")")}]
{written(HOSTILE)} = 1
"""


async def _keep_sessions(store: Store) -> str:
    """A session in which everything was said that the protocol knows; its id."""
    record = SessionRecord(
        id="sess_evil1234", agent=HOSTILE, cwd=HOSTILE, roots=(HOSTILE,), title=HOSTILE, turns=1
    )
    await store.create(record)
    journal = await store.journal(record.id)
    for end in (*filled(TurnEnd), TurnEnd(error=HOSTILE), TurnEnd(reason=HOSTILE)):
        journal.begin_turn()
        journal.add("user", HOSTILE, json.dumps(messages("ContentBlock")).encode())
        for update in messages("SessionUpdate"):
            raw = json.dumps({"sessionId": "s", "update": update}).encode()
            told = decode(v1.SessionNotification, raw, "client").update
            is_call = isinstance(told, v1.ToolCall | v1.ToolCallUpdate)
            event = tool_update_of(told) if is_call else from_update(told, {})
            if (piece := text_piece(event)) is not None:
                journal.text(*piece)
            elif type(event).__name__ not in ("Usage", "Commands", "Mode", "Options", "Info"):
                journal.add(*to_record(event))
        journal.add(HOSTILE, HOSTILE, HOSTILE.encode())
        journal.add(*end_record(end))
    await store.flush()
    await store.release(record.id)
    await store.remember_choices(*filled(ChoiceRecord))
    store.trust.trust(HOSTILE, b"")
    return record.id


async def _keep_runs(store: Store) -> str:
    """A run in which everything happened that can happen; its id."""
    async with await new_run(store, {HOSTILE: HOSTILE, "list": [HOSTILE]}, cwd=f"/{HOSTILE}") as run:
        for kind in typing.get_args(RunHappening):
            for happening in filled(kind) if kind is not RunFinished else ():
                run.journal.note(happening)
        for kind in typing.get_args(SessionEvent):
            for event in filled(kind):
                run.journal.note(AgentEvent(place=run_events.Place(HOSTILE), event=event))
        usage = TurnUsage(total=5, cost=0.5, currency=HOSTILE)
        (ended,) = {each.status: each for each in filled(RunFinished) if each.status == "failed"}.values()
        run.journal.note(msgspec.structs.replace(ended, usage=usage))
        return run.id


def _spoil_rows(file: Path, table: str) -> None:
    """Copies the rows of a table, with a hostile text in every column for text or for paths."""
    with closing(sqlite3.connect(file)) as connection:
        columns = [(name, kind) for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})")]
        kept = [name for name, _ in columns if name != "number"]
        given = {"id": f"sess_{HOSTILE}", "roots": json.dumps([HOSTILE]), "settings": "{}", "holder": None}
        values = []
        for name, kind in columns:
            if name == "number":
                continue
            if name in given or kind == "TEXT":
                values.append(given.get(name, HOSTILE))
            elif name in ("file", "cwd"):
                values.append(os.fsencode(HOSTILE))
            else:
                values.append(connection.execute(f"SELECT {name} FROM {table} LIMIT 1").fetchone()[0])
        marks = ", ".join("?" * len(kept))
        connection.execute(f"INSERT INTO {table} ({', '.join(kept)}) VALUES ({marks})", values)
        connection.commit()


class Place(typing.NamedTuple):
    """A project and a home with hostile text in everything that is kept there."""

    home: Path
    project: Path
    session: str
    run: str

    @property
    def env(self) -> dict[str, str]:
        given = {"COUPLER_HOME": str(self.home), "TERM": "xterm-256color", "COLUMNS": "400"}
        return {**os.environ, **given}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    home, project = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project") / NAME
    store = home / "coupler.db"
    session, run = in_store(_keep_sessions, str(store)), in_store(_keep_runs, str(store))
    for table in ("sessions", "runs"):
        _spoil_rows(store, table)
    (home / "coupler.toml").write_text(SETTINGS)
    (home / "models").mkdir()
    (home / "models" / f"{NAME[:60]}.gguf").write_bytes(b"GGUF")
    workflows = project / ".coupler" / "workflows"
    workflows.mkdir(parents=True)
    (project / "broken").mkdir()
    (project / "broken" / "coupler.toml").write_text(PROJECT)
    (workflows / "evil.yaml").write_text(written(WORKFLOW))
    (workflows / f"{NAME[:60]}.yaml").write_text(written({**WORKFLOW, "name": HOSTILE}))
    (workflows / "broken.yaml").write_text(written({"name": "broken", HOSTILE: HOSTILE, "steps": []}))
    return Place(home, project, session, run)


LISTINGS = (
    "sessions list --all",
    "sessions list --all --json",
    "sessions show SESSION --full",
    "sessions export SESSION",
    "sessions export SESSION --format json",
    "runs list",
    "runs list --json",
    "runs show RUN --full",
    "runs logs RUN",
    "runs logs RUN --json",
    "workflows list",
    "workflows list --json",
    "workflows show evil",
    "workflows graph evil",
    "workflows validate",
    "workflows validate --json",
    "permissions list",
    "permissions list --json",
    "trust --list",
    "trust --yes",
    "agents",
    "agents --json",
    "models list",
    "models list --json",
    "run evil --yes",
    "run evil --yes --json",
    "run evil --dry-run",
    "run evil HOSTILE=1",
    "run HOSTILE",
    "run --HOSTILE",
    "resume HOSTILE",
    "workflows show HOSTILE",
    "sessions show HOSTILE",
    "sessions show sess_HOSTILE",
    "sessions --HOSTILE",
    "runs show HOSTILE",
    "runs cancel HOSTILE",
    "runs list --status HOSTILE",
    "runs delete HOSTILE",
    "sessions delete HOSTILE --yes",
    "permissions forget HOSTILE",
    "trust HOSTILE",
    "trust --forget HOSTILE",
    "agents doctor HOSTILE",
    "exec HOSTILE hello",
    "exec --file HOSTILE coder hello",
    "exec --budget HOSTILE coder hello",
    "login HOSTILE",
    "editor HOSTILE",
    "models remove HOSTILE",
    "models install HOSTILE --yes",
    "check --trace HOSTILE",
    "replay HOSTILE",
    "record --output HOSTILE/x -- HOSTILE",
    "serve HOSTILE",
    "serve --HOSTILE",
    "HOSTILE",
)
"""Commands that show what is kept, or what they were given."""


LISTS = {line for line in LISTINGS if line.endswith(("list", "list --all", "--list", "agents", "validate"))}
"""Those that write one thing a line."""

BROKEN = (
    "agents",
    "trust --yes",
    "exec coder hello",
    "serve",
    "doctor --timeout 5",
    "run evil",
    "workflows validate",
)
"""Commands that read the settings of a project, here one with hostile keys and values."""


def words_of(line: str, place: Place) -> list[str]:
    """The arguments of a line; what is hostile has spaces and line ends, so it is put in afterwards."""
    known = {"SESSION": place.session, "RUN": place.run}
    return [known.get(word, word).replace("HOSTILE", NAME) for word in line.split(" ")]


def piped(line: str, place: Place, cwd: Path) -> str:
    """All that a command writes to pipes."""
    ended = forked.run(
        [*COUPLER, *words_of(line, place)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=place.env,
        cwd=cwd,
        timeout=PATIENCE,
    )
    return (ended.stdout + ended.stderr).decode()


def test_no_listing_writes_anything_that_a_terminal_obeys(place):
    wrong = {}
    for line, cwd in [(line, place.project) for line in LISTINGS] + [
        (line, place.project / "broken") for line in BROKEN
    ]:
        shown = piped(line, place, cwd)
        # What is hostile is shown, in its place: a listing that shows nothing would pass.
        if "evil" not in shown or "Traceback" in shown or (line in LISTS and "\nforged" in shown):
            wrong[line] = shown[:300]
        elif found := obeyed_in(shown):
            wrong[line] = found[:3]

    assert not wrong


ON_TERMINALS = [line for line in LISTINGS if "HOSTILE" not in line]


def test_no_listing_writes_anything_but_styles_to_a_terminal(place):
    wrong = {}
    for line in ON_TERMINALS:
        with Typist(*COUPLER, *words_of(line, place), env=place.env, cwd=place.project) as typist:
            typist.ends()
        found = obeyed_in(typist.shown, is_terminal=True, is_drawn=line.startswith("run "))
        if found or "evil" not in typist.shown:
            wrong[line] = found[:3] or typist.shown[:300]

    assert not wrong


def test_json_means_exactly_what_is_kept(place):
    def read(*arguments: str) -> typing.Any:
        ended = forked.run(
            [*COUPLER, *arguments], capture_output=True, env=place.env, cwd=place.project, timeout=PATIENCE
        )
        return json.loads(ended.stdout)

    assert {each["title"] for each in read("sessions", "list", "--all", "--json")} == {HOSTILE}
    assert HOSTILE in {each["workflow"] for each in read("runs", "list", "--json")}
    assert HOSTILE in {each["description"] for each in read("workflows", "list", "--json")}
    assert {each["rule"] for each in read("permissions", "list", "--json")} == {f"{HOSTILE}({HOSTILE})"}


TALKS = (
    "exec AGENT hello",
    "exec AGENT --format json hello",
    "exec AGENT --format ndjson hello",
    "exec AGENT --format quiet hello",
    "exec AGENT --permissions ask --files write --terminals hello",
    "exec ERROR hello",
    "exec LEAVE hello",
    "exec AGENT --model HOSTILE hello",
    "exec AGENT --mode nothing hello",
    "exec AGENT --option HOSTILE=1 hello",
    "login AGENT --list",
    "login AGENT nothing",
    "agents doctor AGENT --timeout 5",
    "agents doctor AGENT --timeout 5 --json",
    "chat AGENT --plain --mode nothing",
    "check --trace TRACE -v",
    "check --trace TRACE --json -",
    "check --trace TRACE --junit -",
    "check --trace TRACE --html -",
    "replay --client TRACE -- PROGRAM error",
)
"""Commands that show what an agent says, or has said."""

AGENTS = {"AGENT": AGENT, "ERROR": f"{AGENT} error", "LEAVE": f"{AGENT} leave"}


def answer_everything(typist: Typist) -> None:
    """Presses Enter wherever a line waits to be ended, until the program is over."""
    deadline = time.monotonic() + PATIENCE
    while typist._read(deadline):
        if not typist.shown.endswith("\n"):
            typist.types("\n")
    typist.ends()


@pytest.mark.slow
def test_nothing_that_an_agent_says_is_obeyed(place, tmp_path):
    trace = tmp_path / "trace.ndjson"
    piped_from_agent = forked.run(
        [*COUPLER, "exec", AGENT, "--record", str(trace), "--no-forms", "hello"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=place.env,
        timeout=PATIENCE,
    )
    assert not obeyed_in(piped_from_agent.stderr.decode())
    wrong = {}
    for line in TALKS:
        words = line.replace("PROGRAM", AGENT).replace("TRACE", str(trace)).split(" ")
        words = [AGENTS.get(word, word).replace("HOSTILE", NAME) for word in words]
        with Typist(*COUPLER, *words, env=place.env, cwd=tmp_path) as typist:
            answer_everything(typist)
        found = obeyed_in(typist.shown, is_terminal=True)
        if found or "Traceback" in typist.shown or "evil" not in typist.shown:
            wrong[line] = found[:3] or typist.shown[-300:]

    assert not wrong


def test_the_answer_of_an_agent_is_unchanged_in_a_pipe(place):
    ended = forked.run(
        [*COUPLER, "exec", AGENT, "--format", "quiet", "hello"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=place.env,
        timeout=PATIENCE,
    )

    assert ended.stdout.decode() == f"{HOSTILE}\n"


DRAWN = re.compile("\x1b\\[[0-9;?]*[A-IKPX@a-ln-z]|\x1b\\[[0-2]?J|\x1b\\[[0-9] q|\x1b[78=>]|\r|\x08")
"""How the line editor draws: it moves, erases and asks where the cursor is. It never names the window."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "end"), [("stop", "The turn ended: evil"), ("error", "refused session/prompt: evil")]
)
def test_a_conversation_draws_nothing_that_the_agent_wants(place, tmp_path, ending, end):
    command = [*AGENT.split(), ending, "--no-forms"]
    # So wide that the end of the line about the agent is on it.
    with Chatter(command, "--permissions", "deny-all", cwd=tmp_path, env=place.env, columns=400) as chatter:
        chatter.says("hello")
        chatter.reads(end)
        chatter.reads(READY)
        chatter.types(CTRL_D)
        chatter.ends()

    assert "evil" in chatter.shown
    assert obeyed_in(DRAWN.sub("", chatter.shown), is_terminal=True) == []


def test_what_python_reports_itself_is_clean(place, tmp_path):
    """Errors that nobody caught, and warnings of libraries, by commands and by what is served."""
    target = tmp_path / "target.py"
    warn = f"logging.getLogger('x').warning({HOSTILE!r})"
    target.write_text(f"import logging\n{warn}\nraise ValueError({HOSTILE!r})\n")
    script = (
        "import click, logging\nfrom coupler.cli.main import run_command\n"
        f"def fail():\n    {warn}\n    raise ValueError({HOSTILE!r})\n"
        "run_command(click.Command('fail', callback=fail), [], 'fail')\n"
    )

    for command in ([*COUPLER, "serve", str(target)], [sys.executable, "-c", script]):
        ended = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, env=place.env, timeout=PATIENCE
        )
        shown = ended.stderr.decode()
        assert shown.count("evil") >= 2
        assert obeyed_in(shown) == []
