"""`coupler sessions`: what real agents have kept, listed, read, exported and deleted."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

import forked
from agent.steps import begin, cancel, end_of
from coupler.cli.main import command as coupler
from raw_client import COUPLER, PATIENCE, serve

WORKER = """
import asyncio
from coupler import Agent

class Worker(Agent):
    accepts = ("image", "resource")

    async def prompt(self, turn):
        if turn.text.startswith("wait"):
            async with turn.tool("Sleep", kind="execute"):
                await turn.say("started")
                await asyncio.sleep(60)
        if turn.text.startswith("fail"):
            raise RuntimeError("the model is down")
        await turn.think("Let me see.")
        await turn.say("Here it is:\\n\\n```python\\nprint(1)")
        plan = await turn.plan("look", "act")
        await plan.complete("look")
        async with turn.tool("Run \\x1b[31mmake\\x1b[0m", kind="execute", input={"command": "make"}) as call:
            for number in range(50):
                await call.output(f"line {number} ```` \\x1b[32mgreen\\x1b[0m\\x9b5m\\n")
        async with turn.tool("Change it", kind="edit") as call:
            await call.diff("/x/a.txt", "a\\nb\\n", "a\\nB\\n")
        turn.session.state = {"seen": 1}
"""

PIXELS = "iVBORw0KGgo" + "A" * 4000
EVIL = "Build\x1b]0;owned\x07 it\u202e\x1b[2J now"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Kept:
    """A home with sessions, and their ids by what they are."""

    def __init__(self, home: Path, ids: dict[str, str]) -> None:
        self.home = home
        self.ids = ids

    @property
    def store(self) -> Path:
        return self.home / "coupler.db"

    def run(self, *arguments: str, **keywords):
        return run(*arguments, home=self.home, **keywords)

    def change(self, statement: str, *values) -> None:
        with closing(sqlite3.connect(self.store)) as connection:
            assert connection.execute(statement, values).rowcount
            connection.commit()


def run(*arguments: str, home: Path | None = None, stdin=subprocess.DEVNULL, **environment):
    env = {**os.environ, **({"COUPLER_HOME": str(home)} if home is not None else {}), **environment}
    return forked.run(
        [*COUPLER, "sessions", *arguments],
        capture_output=True,
        encoding="utf-8",
        stdin=stdin,
        env=env,
        timeout=PATIENCE,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """One process made four sessions: worked, stopped in all ways, empty, and killed in the middle."""
    directory = tmp_path_factory.mktemp("made")
    (directory / "work").mkdir()
    (directory / "app.py").write_text(WORKER)
    home = directory / "home"
    with serve(directory / "app.py", env={"COUPLER_HOME": str(home)}) as client:
        client.initialize()
        ids = {name: client.new_session(str(directory / "work")) for name in ("empty", "worked")}
        blocks = [
            {"type": "text", "text": f"{EVIL}\nwith ``` in it"},
            {"type": "image", "mimeType": "image/png", "data": PIXELS},
            {"type": "resource", "resource": {"uri": "file:///notes.md", "text": "# Notes"}},
        ]
        client.call("session/prompt", {"sessionId": ids["worked"], "prompt": blocks})
        ids["stopped"] = client.new_session(str(directory))
        request = begin(client, ids["stopped"], "wait until I cancel")
        client.send(cancel(ids["stopped"]))
        end_of(client, request)
        client.prompt(ids["stopped"], "fail please")
        ids["killed"] = client.new_session(str(directory))
        begin(client, ids["killed"], "wait for the end")
        client.process.kill()
    return Kept(home, ids)


@pytest.fixture
def kept(made: Kept, tmp_path: Path) -> Kept:
    """The same sessions in a home of the test's own, to be changed."""
    shutil.copytree(made.home, tmp_path / "home")
    return Kept(tmp_path / "home", made.ids)


def is_quiet(text: str) -> bool:
    """Whether a terminal would just show this."""
    return CONTROL.search(text) is None


def listed(kept: Kept, *options: str) -> list[str]:
    ended = kept.run("list", "--json", *options)
    assert ended.returncode == 0, ended.stderr
    return [each["id"] for each in json.loads(ended.stdout)]


def exported(kept: Kept, name: str):
    ended = kept.run("export", kept.ids[name], "--format", "json")
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def test_a_pipe_gets_a_line_a_session_with_full_ids_the_newest_first(made):
    ended = made.run("list")

    assert (ended.returncode, ended.stderr) == (0, "")
    rows = [line.split("\t") for line in ended.stdout.splitlines()]
    assert [row[0] for row in rows] == [made.ids[name] for name in ("killed", "stopped", "worked")]
    _, changed, turns, agent, directory, title = rows[2]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", changed)
    assert (turns, title) == ("1", "Build it now")
    assert agent.endswith("app.py:Worker")
    assert directory == str(made.home.parent / "work")
    assert is_quiet(ended.stdout.replace("\t", ""))


def test_json_has_every_field_and_sessions_never_prompted_only_with_all(made):
    (first, *_) = json.loads(made.run("list", "--json", "--limit", "1").stdout)

    assert first.keys() == {
        *("id", "title", "agent", "cwd", "additional_directories", "turns", "created_at", "updated_at")
    }
    assert made.ids["empty"] not in listed(made)
    assert made.ids["empty"] in listed(made, "--all")


def test_agent_and_directory_choose(made, tmp_path):
    work = made.home.parent / "work"
    (tmp_path / "link").symlink_to(work)

    assert listed(made, "--cwd", str(work)) == [made.ids["worked"]]
    assert listed(made, "--cwd", str(tmp_path / "link")) == [made.ids["worked"]]
    assert len(listed(made, "--agent", "worker")) == 3
    nothing = made.run("list", "--agent", "nobody")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "No session fits: leave out --agent and --cwd" in nothing.stderr


def test_it_is_told_how_many_more_there_are(made):
    ended = made.run("list", "--limit", "1")

    assert len(ended.stdout.splitlines()) == 1
    assert ended.stderr == "2 more sessions not shown: add --limit 3\n"


def test_an_empty_store_says_so_and_what_to_do_and_is_not_made(tmp_path):
    ended = run("list", home=tmp_path / "home")

    assert (ended.returncode, ended.stdout) == (0, "")
    assert "No sessions are kept yet: an agent that `coupler serve` serves" in ended.stderr
    assert run("list", "--json", home=tmp_path / "home").stdout == "[]\n"
    assert run("show", "abcdef", home=tmp_path / "home").returncode == 1
    assert run("delete", "--empty", "--yes", home=tmp_path / "home").returncode == 0
    assert not (tmp_path / "home").exists()


def test_a_file_without_content_stays_without(tmp_path):
    (tmp_path / "nothing").touch()

    assert run("list", "--json", "--store", str(tmp_path / "nothing")).stdout == "[]\n"
    assert [each.name for each in tmp_path.iterdir()] == ["nothing"]
    assert (tmp_path / "nothing").read_bytes() == b""


def test_another_store_is_named_with_store(made):
    ended = run("list", "--store", str(made.store))
    assert len(ended.stdout.splitlines()) == 3


def test_show_tells_the_conversation_and_how_turns_ended(made):
    worked = made.run("show", made.ids["worked"])
    stopped, killed = made.run("show", made.ids["stopped"]), made.run("show", made.ids["killed"])

    for ended in (worked, stopped, killed):
        assert (ended.returncode, ended.stderr) == (0, "")
        assert is_quiet(ended.stdout)
    for text in (
        "Build it now\nsess_",
        "You\n  Build it now\n  with ``` in it\n  [image, image/png, 3.0 KB]\n",
        "  [file:///notes.md]\n  # Notes\n",
        "Thought\n  Let me see.\n",
        "Agent\n  Here it is:\n",
        "Plan\n  [x] look\n  [ ] act\n",
        'Tool: Run make (completed)\n  input: {"command":"make"}\n  | line 0 ```` green\n',
        "  … 40 lines left out: --full shows them …\n  | line 46 ```` green\n",
        "Tool: Change it (completed)\n  [/x/a.txt]\n  | @@ -1,2 +1,2 @@\n  |  a\n  | -b\n  | +B\n",
    ):
        assert text in worked.stdout
    assert worked.stdout.count("Plan\n") == 1
    assert "Tool: Sleep (cancelled)" in stopped.stdout
    assert "\nCancelled.\n" in stopped.stdout
    assert "\nFailed: RuntimeError: the model is down" in stopped.stdout
    assert "Tool: Sleep (interrupted)" in killed.stdout
    assert "\nInterrupted: the process ended before the turn did.\n" in killed.stdout


def test_full_shows_all_output(made):
    ended = made.run("show", made.ids["worked"], "--full")
    assert [f"  | line {number} ```` green" in ended.stdout for number in range(50)] == [True] * 50


def test_a_session_never_prompted_can_be_shown(made):
    assert "Nothing was said yet." in made.run("show", made.ids["empty"]).stdout


def test_markdown_keeps_what_is_said_and_lets_nothing_break_out(made, tmp_path):
    file = tmp_path / "session.md"

    ended = made.run("export", made.ids["worked"], "--output", str(file))

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    text = file.read_text()
    assert text.startswith(f"# Build it now\n\n- Session: `{made.ids['worked']}`\n- Agent: `")
    assert f"- Directory: `{made.home.parent / 'work'}`\n- Begun: 20" in text
    assert "> Build it now\n> with ``` in it\n" in text
    assert "> *[image, image/png, 3.0 KB]*" in text
    assert "```python\nprint(1)\n```\n" in text, "the fence that the agent left open is closed"
    assert "\n`````\nline 0 ```` green\n" in text
    assert "line 49 ```` green\n`````\n" in text
    assert "```diff\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n```" in text
    assert is_quiet(text)
    assert [each.name for each in tmp_path.iterdir()] == ["session.md"]


def test_json_export_has_everything(made):
    document = exported(made, "worked")

    assert document.keys() == {"format", "session", "turns"}
    assert document["format"] == "coupler-session/2"
    assert document["session"]["id"] == made.ids["worked"]
    assert document["session"]["state"] == {"json": {"seen": 1}}
    (turn,) = document["turns"]
    assert turn.keys() == {"number", "started_at", "prompt", "events", "end"}
    assert turn["prompt"][0] == {"type": "text", "text": f"{EVIL}\nwith ``` in it"}
    assert turn["prompt"][1] == {"type": "image", "mimeType": "image/png", "data": PIXELS}
    kinds = [event["event"] for event in turn["events"]]
    assert kinds == ["thought", "text", "plan", "plan", "tool_call", "tool_call"]
    make = turn["events"][4]
    whole = "".join(f"line {number} ```` \x1b[32mgreen\x1b[0m\x9b5m\n" for number in range(50))
    assert make["content"] == [{"type": "content", "content": {"type": "text", "text": whole}}]
    assert (make["status"], make["input"]) == ("completed", {"command": "make"})
    assert {**turn["end"], "at": None} == {
        "outcome": "ended",
        "reason": "end_turn",
        "error": None,
        "at": None,
    }


def test_json_export_tells_every_way_to_end(made):
    cancelled, failed = (turn["end"] for turn in exported(made, "stopped")["turns"])
    (killed,) = (turn["end"] for turn in exported(made, "killed")["turns"])

    assert (cancelled["outcome"], cancelled["reason"]) == ("cancelled", "cancelled")
    assert failed["outcome"] == "failed"
    assert "the model is down" in failed["error"]
    assert killed == {"outcome": "interrupted", "reason": None, "error": None, "at": None}


def test_json_on_a_terminal_has_nothing_that_it_obeys(made):
    text = made.run("export", made.ids["worked"], "--format", "json").stdout
    assert is_quiet(text)
    assert "\\u009b5m" in text


@pytest.mark.parametrize("cut", [9, 12, 37])
def test_the_beginning_of_an_id_is_enough(made, cut):
    whole = made.ids["worked"]
    for given in (whole[:cut], whole[5:cut], whole[5:cut].upper()):
        assert made.run("show", given).stdout.splitlines()[1] == whole


def test_an_ambiguous_beginning_names_the_candidates(kept):
    others = [kept.ids["worked"], kept.ids["stopped"]]
    for number, id in enumerate(others):
        kept.change("UPDATE sessions SET id = ? WHERE id = ?", f"sess_abcd{number}", id)

    ended = kept.run("show", "abcd")

    assert ended.returncode == 1
    assert "abcd is the beginning of 2 sessions: sess_abcd1 (wait until I cancel), sess_abcd0" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["show", "ffffffffff"], 1, "there is no session ffffffffff: `coupler sessions list --all`"),
        (["export", "sess_ffffffffff"], 1, "there is no session sess_ffffffffff"),
        (["show", "abc"], 2, "'abc' is too short for a session's id: give at least 4 characters"),
        (["show", "sess_"], 2, "'sess_' is too short"),
        (["show", "sess"], 2, "'sess' is too short"),
        (["show", ""], 2, "'' is too short"),
        (["show", "ffff\x1b[2J\u202e"], 1, "there is no session ffff:"),
        (["show"], 2, "Missing argument 'ID'"),
        (["delete"], 2, "say what to delete: either ids, or --older-than and --empty"),
        (["delete", "abcd", "--empty"], 2, "say what to delete: either ids, or --older-than and --empty"),
        (["delete", "--older-than", "soon"], 2, "'soon' is no age: write it as 12h, 30d or 8w"),
        (["delete", "--older-than", "-3d"], 2, "'-3d' is no age"),
        (["delete", "--older-than", "30"], 2, "'30' is no age"),
        (["list", "--limit", "0"], 2, "0 is not in the range x>=1"),
        (["export", "abcd", "--format", "pdf"], 2, "'pdf' is not one of 'markdown', 'json'"),
        (["list", "--store", "/no/such/file"], 2, "there is no file /no/such/file"),
        (["nonsense"], 2, "No such command 'nonsense'"),
    ],
)
def test_wrong_use_ends_with_a_sentence(made, arguments, code, sentence):
    """In this process: a process for each line of the table would show the same."""
    ended = CliRunner(env={"COUPLER_HOME": str(made.home)}).invoke(coupler, ["sessions", *arguments])

    assert (ended.exit_code, ended.stdout) == (code, "")
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr
    assert is_quiet(ended.stderr)


@pytest.mark.parametrize("what", ["garbage", "a directory"])
def test_a_store_that_is_none_is_refused_with_a_sentence(tmp_path, what):
    file = tmp_path / "store"
    if what == "garbage":
        file.write_bytes(b"garbage" * 1000)
    else:
        file.mkdir()

    ended = run("list", "--store", str(file))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("coupler sessions: ")
    assert "Traceback" not in ended.stderr


def test_an_export_that_cannot_be_written_is_refused_with_a_sentence(made, tmp_path):
    for place, sentence in ((tmp_path, "is a directory"), (tmp_path / "no" / "file", "cannot be written")):
        ended = made.run("export", made.ids["worked"], "--output", str(place))
        assert ended.returncode in (1, 2)
        assert sentence in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such modes there")
def test_an_export_writes_through_links_and_devices_and_keeps_a_file_s_mode(made, tmp_path):
    file, link = tmp_path / "private.md", tmp_path / "link.md"
    file.write_text("before")
    file.chmod(0o600)
    link.symlink_to(file)

    assert made.run("export", made.ids["worked"], "--output", str(link)).returncode == 0
    to_device = made.run("export", made.ids["worked"], "--output", "/dev/stderr")

    assert link.is_symlink()
    assert file.read_text().startswith("# Build it now")
    assert file.stat().st_mode & 0o777 == 0o600
    assert to_device.stderr == file.read_text()


def test_an_id_that_is_no_text_is_unknown(made):
    ended = made.run("show", os.fsdecode(b"\xff\xff\xff\xff\xff"))
    assert ended.returncode == 1
    assert "there is no session" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_is_broken_in_the_store_is_a_note(kept):
    rows = "WHERE session = (SELECT number FROM sessions WHERE id = ?) AND kind = ?"
    kept.change(f"UPDATE entries SET body = x'ff7b' {rows}", kept.ids["worked"], "plan")
    kept.change(
        f"UPDATE entries SET body = 'text', kind = 'future\x1b[2J' {rows}", kept.ids["worked"], "thought"
    )
    kept.change("UPDATE sessions SET roots = '{', settings = '{' WHERE id = ?", kept.ids["worked"])
    kept.change("UPDATE sessions SET title = x'00ff', created_at = 'then' WHERE id = ?", kept.ids["stopped"])

    shown, document = kept.run("show", kept.ids["worked"]), exported(kept, "worked")
    list_, broken = kept.run("list"), kept.run("show", kept.ids["stopped"])

    assert (shown.returncode, shown.stderr) == (0, "")
    assert "(an entry of the kind plan cannot be read)" in shown.stdout
    assert "(an entry of the kind future cannot be read)" in shown.stdout
    assert is_quiet(shown.stdout)
    unreadable = [each for each in document["turns"][0]["events"] if each["event"] == "unreadable"]
    assert [(each["kind"], each.get("text"), each.get("base64")) for each in unreadable] == [
        ("future\x1b[2J", "text", None),
        ("plan", None, "/3s="),
        ("plan", None, "/3s="),
    ]
    assert [line.split("\t")[0] for line in list_.stdout.splitlines()] == [
        kept.ids["killed"],
        kept.ids["worked"],
    ]
    assert f"the row of the session {kept.ids['stopped']} is broken, and left out" in list_.stderr
    assert broken.returncode == 1
    assert "is broken: it cannot be read" in broken.stderr


def test_times_that_are_none_are_no_trouble(kept):
    kept.change(
        "UPDATE sessions SET updated_at = ?, created_at = ? WHERE id = ?", 2**62, -(2**62), kept.ids["worked"]
    )

    for arguments in (
        ["list"],
        ["list", "--json"],
        ["show", kept.ids["worked"]],
        ["export", kept.ids["worked"]],
    ):
        ended = kept.run(*arguments)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_sessions_are_deleted_by_their_ids(kept):
    ended = kept.run("delete", kept.ids["worked"], kept.ids["killed"][:14], kept.ids["worked"], "--yes")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2 sessions deleted.\n", "")
    assert {*listed(kept, "--all")} == {kept.ids["stopped"], kept.ids["empty"]}


def test_an_unknown_id_does_not_keep_the_others(kept):
    ended = kept.run("delete", "ffffffffff", kept.ids["worked"], "--yes")

    assert (ended.returncode, ended.stdout) == (1, "1 session deleted.\n")
    assert "there is no session ffffffffff" in ended.stderr
    assert kept.ids["worked"] not in listed(kept)


def test_empty_deletes_those_never_prompted(kept):
    ended = kept.run("delete", "--empty", "--yes")

    assert (ended.returncode, ended.stdout) == (0, "1 session deleted.\n")
    assert kept.ids["empty"] not in listed(kept, "--all")
    assert len(listed(kept)) == 3
    assert kept.run("delete", "--empty", "--yes").stdout == "No session fits: nothing was deleted.\n"


def test_older_than_deletes_what_nothing_happened_in(kept):
    for name, days in (("worked", 31), ("empty", 31), ("stopped", 29)):
        at = int((time.time() - days * 86400) * 1000)
        kept.change("UPDATE sessions SET updated_at = ? WHERE id = ?", at, kept.ids[name])

    both = kept.run("delete", "--older-than", "30d", "--empty", "--yes")
    assert (both.stdout, {*listed(kept, "--all")}) == (
        "1 session deleted.\n",
        {kept.ids[name] for name in ("worked", "stopped", "killed")},
    )
    kept.run("delete", "--older-than", "30d", "--yes")

    assert {*listed(kept, "--all")} == {kept.ids["stopped"], kept.ids["killed"]}


def test_without_a_terminal_nothing_is_deleted_unless_one_is_sure(kept):
    ended = kept.run("delete", kept.ids["worked"])

    assert (ended.returncode, ended.stdout) == (2, "")
    assert "there is no terminal to ask on: add --yes" in ended.stderr
    assert kept.ids["worked"] in listed(kept)


def test_a_session_that_is_open_is_not_deleted_and_the_others_are(kept, tmp_path):
    with serve(_app(kept), env={"COUPLER_HOME": str(kept.home)}) as client:
        client.initialize()
        opened = client.new_session(str(tmp_path))
        begin(client, opened, "wait for me")
        pid = client.process.pid

        ended = kept.run("delete", opened, kept.ids["worked"], "--yes")
        shown = kept.run("show", opened)

        assert (ended.returncode, ended.stdout) == (1, "1 session deleted.\n")
        assert f"{opened} is open in another Coupler process ({pid}): close it there first" in ended.stderr
        assert f"open in the process {pid}\n" in shown.stdout
        assert f"No end yet: the session is open in the process {pid}." in shown.stdout
        assert exported(Kept(kept.home, {"open": opened}), "open")["turns"][0]["end"]["outcome"] == "open"
        assert kept.run("delete", "--empty", "--yes").returncode == 0
        client.close_stdin()
        client.wait()
    assert kept.run("delete", opened, "--yes").stdout == "1 session deleted.\n"


@pytest.mark.parametrize("is_earlier", [False, True], ids=["new", "of an earlier version"])
def test_the_file_is_smaller_when_sessions_were_deleted(kept, tmp_path, is_earlier):
    fatten(kept, "worked", megabytes=20)
    if is_earlier:
        with closing(sqlite3.connect(kept.store)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA auto_vacuum = NONE")
            connection.execute("VACUUM")
    assert size_on_disk(kept) > 20_000_000
    with serve(_app(kept), env={"COUPLER_HOME": str(kept.home)}) as client:
        client.initialize()
        opened = client.new_session(str(tmp_path))

        ended = kept.run("delete", kept.ids["worked"], "--yes")

        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1 session deleted.\n", "")
        assert size_on_disk(kept) < 1_000_000
        assert "result" in client.prompt(opened, "go on")[1]
    assert len(listed(kept)) == 3


def fatten(kept: Kept, name: str, *, megabytes: int) -> None:
    """Let a session have many entries, which only their number tells apart."""
    kept.change(
        "WITH RECURSIVE more (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < ?)"
        " INSERT INTO entries SELECT (SELECT number FROM sessions WHERE id = ?), 10000 + n, 1, 0, 'tool', '',"
        " randomblob(10000) FROM more",
        megabytes * 100,
        kept.ids[name],
    )


def size_on_disk(kept: Kept) -> int:
    """The bytes of the store and of its log."""
    return sum(file.stat().st_size for file in kept.home.glob("coupler.db*") if file.is_file())


def _app(kept: Kept) -> Path:
    app = kept.home.parent / "app.py"
    app.write_text(WORKER)
    return app


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
class TestOnATerminal:
    def test_the_list_is_a_table_with_short_ids(self, made):
        shown, _ = on_terminal(made, "list", "--all")

        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert is_quiet(plain.replace("\r\n", ""))
        head, *rows = plain.splitlines()
        assert head.split() == ["ID", "TITLE", "AGENT", "DIRECTORY", "TURNS", "CHANGED"]
        assert rows[2].startswith(f"{made.ids['worked'][5:13]}  Build it now")
        assert made.ids["worked"] not in plain
        assert rows[2].rstrip().endswith(("ago", "just now"))

    @pytest.mark.parametrize("columns", [40, 60, 80, 200])
    def test_the_table_fits_the_terminal_and_always_shows_the_id(self, kept, columns):
        directory = "/a/rather/long/way/to/the/project"
        kept.change(
            "UPDATE sessions SET title = ?, cwd = ? WHERE id = ?", "長" * 99, directory, kept.ids["worked"]
        )

        shown, _ = on_terminal(kept, "list", columns=columns)

        *_, row = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        assert row.startswith(f"{kept.ids['worked'][5:13]}  長")
        assert cell_len(row) <= max(columns, 75)
        assert re.search("project +1 ", row)

    def test_thoughts_are_dimmed(self, made):
        shown, _ = on_terminal(made, "show", made.ids["worked"])
        assert "\x1b[2m  Let me see.\x1b[0m" in shown

    @pytest.mark.parametrize("answer", ["y", "n", ""])
    def test_a_person_is_asked_before_anything_is_deleted(self, kept, answer):
        shown, code = on_terminal(kept, "delete", kept.ids["worked"], answer=f"{answer}\n")

        assert "Build it now" in shown
        assert "Delete 1 session for good? [y/N]: " in shown
        assert (code, kept.ids["worked"] in listed(kept)) == ((0, False) if answer == "y" else (1, True))


def on_terminal(kept: Kept, *arguments: str, answer: str = "", columns: int = 120) -> tuple[str, int]:
    """What a person sees, and the exit code."""
    import pty

    ours, theirs = pty.openpty()
    env = {**os.environ, "COUPLER_HOME": str(kept.home), "TERM": "xterm", "COLUMNS": str(columns)}
    for name in ("NO_COLOR", "FORCE_COLOR"):
        env.pop(name, None)
    process = forked.Popen(
        [*COUPLER, "sessions", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    seen = b""
    try:
        while data := os.read(ours, 65536):
            seen += data
    except OSError:
        pass  # how Linux tells that the other side has left
    finally:
        os.close(ours)
    return seen.decode(), process.wait(PATIENCE)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such shell")
def test_a_reader_that_leaves_early_is_no_trouble(kept):
    number = "(SELECT number FROM sessions WHERE id = ?)"
    body = b"many words\n" * 200_000
    kept.change(
        f"UPDATE entries SET body = ? WHERE session = {number} AND kind = 'text'", body, kept.ids["worked"]
    )
    for arguments in (f"show {kept.ids['worked']}", f"export {kept.ids['worked']}"):
        ended = subprocess.run(
            f"'{sys.executable}' -m coupler sessions {arguments} | head -1",
            shell=True,
            capture_output=True,
            text=True,
            env={**os.environ, "COUPLER_HOME": str(kept.home)},
            timeout=PATIENCE,
        )
        assert ended.stdout.strip("# \n") == "Build it now"
        assert ended.stderr == ""


def test_every_command_has_its_help():
    for command in ("list", "show", "export", "delete"):
        ended = run(command, "-h")
        assert ended.returncode == 0
        assert "--store FILE" in ended.stdout
    assert "at least 4 characters" in run("--help").stdout.replace("\n", " ")
