"""Files that an agent reads and writes through the client: inside of the session's directories, in order."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.asking import ASKS, Asked, Script, ask
from client.stage import run, until
from coupler.client import files as client_files
from coupler.runtime import files as disk


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The session's directory, with a sibling of nearly the same name beside it."""
    directory = tmp_path / "project"
    directory.mkdir()
    (tmp_path / "project2").mkdir()
    (tmp_path / "project2" / "secret").write_text("theirs")
    (tmp_path / "secret").write_text("theirs")
    return directory


def in_project(
    script: Script, project: Path, story: Callable[[Asked], Any], files: str = "write", **session: Any
) -> None:
    ask(script, story, files=files, session={"cwd": project, **session})


def outcome_of(script: Script, project: Path, method: str, **params: Any) -> Any:
    found: list[Any] = []

    async def story(asked: Asked) -> None:
        found.append(await asked.request(method, **params))

    in_project(script, project, story)
    return found[0]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({}, "one\ntwo\r\nthree\n\nfive"),
        ({"line": 2}, "two\r\nthree\n\nfive"),
        ({"line": 2, "limit": 1}, "two\r\n"),
        ({"limit": 2}, "one\ntwo\r\n"),
        ({"line": 5, "limit": 100}, "five"),
        ({"line": 6}, ""),
        ({"limit": 0}, ""),
        ({"line": 0, "limit": 1}, "one\n"),
        ({"line": None, "limit": None}, "one\ntwo\r\nthree\n\nfive"),
        ({"line": 4294967295, "limit": 4294967295}, ""),
    ],
)
def test_a_file_is_read_whole_or_by_lines_with_their_ends(
    script: Script, project: Path, part: dict[str, Any], expected: str
) -> None:
    (project / "a").write_bytes(b"one\ntwo\r\nthree\n\nfive")
    answer = outcome_of(script, project, "fs/read_text_file", path=str(project / "a"), **part)
    assert answer == {"content": expected}


def test_text_is_utf_8_in_both_directions(script: Script, project: Path) -> None:
    text = "\ufeffgrüße 😀\u2028x\n"

    async def story(asked: Asked) -> None:
        assert await asked.request("fs/write_text_file", path=str(project / "a"), content=text) == {}
        assert await asked.request("fs/read_text_file", path=str(project / "a")) == {"content": text}

    in_project(script, project, story)
    assert (project / "a").read_bytes() == text.encode()


def test_a_missing_file_is_a_resource_that_was_not_found(script: Script, project: Path) -> None:
    (project / "file").touch()
    for path in ("a", "no/such/directory", "file/below"):
        error = outcome_of(script, project, "fs/read_text_file", path=str(project / path))
        assert (error["code"], error["data"]["reason"]) == (-32002, "resource_not_found")
        assert path in error["message"]


def test_what_is_no_utf_8_text_is_refused_and_says_where(script: Script, project: Path) -> None:
    (project / "image").write_bytes(b"\x89PNG")
    error = outcome_of(script, project, "fs/read_text_file", path=str(project / "image"))
    assert error["data"]["reason"] == "unsuitable_file"
    assert "0x89 at position 0" in error["message"]


def test_a_file_that_is_too_large_is_neither_read_nor_written(
    script: Script, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "LARGEST_FILE", 10)
    (project / "large").write_text("x" * 11)

    async def story(asked: Asked) -> None:
        for method, more in (("fs/read_text_file", {}), ("fs/write_text_file", {"content": "ü" * 6})):
            error = await asked.request(method, path=str(project / "large"), **more)
            assert error["data"]["reason"] == "unsuitable_file"

    in_project(script, project, story)
    assert (project / "large").read_text() == "x" * 11


OUTSIDE = [
    "../secret",
    "../project2/secret",
    "sub/../../secret",
    "link",
    "linked/secret",
    "circle",
    "dangling",
]


@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file"])
@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_of_the_sessions_directories_is_touched(
    script: Script, project: Path, tmp_path: Path, method: str, path: str
) -> None:
    (project / "sub").mkdir()
    (project / "link").symlink_to(tmp_path / "secret")
    (project / "linked").symlink_to(tmp_path)
    (project / "circle").symlink_to(project / "circle")
    (project / "dangling").symlink_to(tmp_path / "new")
    error = outcome_of(script, project, method, path=f"{project}/{path}", **_content(method))
    assert (error["code"], error["data"]) == (-32602, {"reason": "outside_roots", "path": "path"})
    assert (tmp_path / "secret").read_text() == (tmp_path / "project2" / "secret").read_text() == "theirs"
    assert not (tmp_path / "new").exists()


def _content(method: str) -> dict[str, str]:
    return {"content": "mine"} if method.endswith("write_text_file") else {}


@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file"])
def test_a_link_that_is_put_in_place_of_a_directory_is_not_followed(
    script: Script, project: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "sub").mkdir()
    find = client_files.find_inside

    def find_and_replace(*given: Any) -> Any:
        place = find(*given)
        (project / "sub").rmdir()
        (project / "sub").symlink_to(tmp_path)
        return place

    monkeypatch.setattr(client_files, "find_inside", find_and_replace)
    error = outcome_of(script, project, method, path=str(project / "sub" / "secret"), **_content(method))
    assert error["data"]["reason"] == "outside_roots"
    assert (tmp_path / "secret").read_text() == "theirs"


@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file"])
def test_only_ordinary_files_are_touched_and_nobody_waits_for_the_others(
    script: Script, project: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")

        async def story(asked: Asked) -> None:
            for name in ("pipe", "socket", ""):
                error = await asked.request(method, path=str(project / name), **_content(method))
                assert error["data"]["reason"] == "unsuitable_file"

        in_project(script, project, story)
    assert stat.S_ISFIFO((project / "pipe").stat().st_mode)


@pytest.mark.parametrize("path", ["a", "", "./a", "~/a"])
def test_a_path_that_is_not_absolute_is_refused(script: Script, project: Path, path: str) -> None:
    (project / "a").touch()
    error = outcome_of(script, project, "fs/read_text_file", path=path)
    assert (error["code"], error["data"]) == (-32602, {"reason": "invalid_params", "path": "path"})


def test_additional_directories_are_the_sessions_as_well(
    script: Script, project: Path, tmp_path: Path
) -> None:
    more = tmp_path / "project2"
    capabilities = {"sessionCapabilities": {"additionalDirectories": {}}}
    agent = script(f"\n    HELLO['agentCapabilities'] = {capabilities}{ASKS}")

    async def play() -> None:
        async with agent.connect(files="read") as remote:
            session = await remote.new(cwd=project, additional_directories=[more])
            asked = Asked(remote, session)
            answer = await asked.request("fs/read_text_file", path=str(more / "secret"))
            assert answer == {"content": "theirs"}

    run(play())


def test_a_write_replaces_the_file_whole_and_keeps_its_mode(script: Script, project: Path) -> None:
    file = project / "run.sh"
    file.write_text("old")
    file.chmod(0o750)
    before = file.stat().st_ino
    assert outcome_of(script, project, "fs/write_text_file", path=str(file), content="new") == {}
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", 0o750)
    assert file.stat().st_ino != before
    assert [each.name for each in project.iterdir()] == ["run.sh"]


def test_a_write_through_a_link_inside_changes_what_it_leads_to(script: Script, project: Path) -> None:
    (project / "real").write_text("old")
    (project / "link").symlink_to("real")
    assert outcome_of(script, project, "fs/write_text_file", path=str(project / "link"), content="new") == {}
    assert (project / "link").is_symlink()
    assert (project / "real").read_text() == "new"


def test_a_write_makes_the_directories_that_are_missing(script: Script, project: Path) -> None:
    path = project / "deep" / "er" / "a"
    assert outcome_of(script, project, "fs/write_text_file", path=str(path), content="new") == {}
    assert path.read_text() == "new"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_is_protected_is_not_replaced(script: Script, project: Path) -> None:
    (project / "a").write_text("old")
    (project / "a").chmod(0o444)
    error = outcome_of(script, project, "fs/write_text_file", path=str(project / "a"), content="new")
    assert (error["code"], error["data"]["reason"]) == (-32603, "file_failed")
    assert (project / "a").read_text() == "old"


def test_what_fails_on_the_disk_is_told_and_leaves_everything_as_it_was(
    script: Script, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    (project / "a").write_text("old")
    error = outcome_of(script, project, "fs/write_text_file", path=str(project / "a"), content="new")
    assert (error["code"], error["data"]["reason"]) == (-32603, "file_failed")
    assert error["message"] == f"'{project}/a': No space left on device"
    assert [each.name for each in project.iterdir()] == ["a"]
    assert (project / "a").read_text() == "old"


def test_requests_that_are_sent_together_are_served_in_their_order(script: Script, project: Path) -> None:
    path = str(project / "a")
    write = f"request(2 * n, 'fs/write_text_file', sessionId='s1', path={path!r}, content=str(n))"
    read = f"request(2 * n + 1, 'fs/read_text_file', sessionId='s1', path={path!r})"

    async def story(asked: Asked) -> None:
        answers = await asked.send(f"[frame for n in range(50) for frame in ({write}, {read})]")
        assert [answer["result"] for answer in answers[1::2]] == [{"content": str(n)} for n in range(50)]

    in_project(script, project, story)


class SlowDisk:
    """Holds whoever reads a file of this name until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.reached, self.goes_on = threading.Event(), threading.Event()
        read = disk.read

        def read_slowly(place: Any) -> bytes:
            if place.name == name:
                self.reached.set()
                self.goes_on.wait(30)
            return read(place)

        monkeypatch.setattr(disk, "read", read_slowly)


def test_a_slow_disk_holds_up_neither_the_turn_nor_another_session(
    script: Script, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowDisk(monkeypatch, "slow")
    for name in ("slow", "quick"):
        (project / name).write_text(name)
    agent = script(f"""
        open_sessions(2)
        first = read()
        send(request(1, "fs/read_text_file", sessionId="s1", path="{project}/slow"), say("waiting"))
        second = read_until(lambda frame: frame.get("method") == "session/prompt")
        for number in range(2, 22):
            send(request(number, "fs/read_text_file", sessionId="s2", path="{project}/quick"))
            answer_to(number)
        send(end(second))
        answer_to(1)
        send(end(first))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            one, other = await remote.new(cwd=project), await remote.new(cwd=project)
            async for event in one.prompt("go"):
                if getattr(event, "text", "") == "waiting":
                    await until(slow.reached.is_set)
                    await other.prompt("go")
                    slow.goes_on.set()

    run(story())
    assert agent.answers_to(1)[0]["result"] == {"content": "slow"}
    assert agent.answers_to(21)[0]["result"] == {"content": "quick"}


def test_the_end_waits_for_no_disk(script: Script, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowDisk(monkeypatch, "slow")
    (project / "slow").touch()
    agent = script(f"""
        open_sessions()
        send(request(1, "fs/read_text_file", sessionId="s1", path="{project}/slow"))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            await remote.new(cwd=project)
            await until(slow.reached.is_set)

    run(story())
    slow.goes_on.set()


def test_a_write_that_the_agent_takes_back_changes_nothing(
    script: Script, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, goes_on = threading.Event(), threading.Event()
    sync = os.fsync
    results: list[str] = []
    overwrite = disk.overwrite

    def sync_slowly(descriptor: int) -> None:
        sync(descriptor)
        written.set()
        goes_on.wait(30)

    def note(*given: Any) -> None:
        try:
            overwrite(*given)
        except InterruptedError:
            results.append("interrupted")
            raise

    monkeypatch.setattr(os, "fsync", sync_slowly)
    monkeypatch.setattr(disk, "overwrite", note)
    (project / "a").write_text("old")
    agent = script(f"""
        open_sessions()
        send(request(1, "fs/write_text_file", sessionId="s1", path="{project}/a", content="new"))
        prompt = read()
        send({{"method": "$/cancel_request", "params": {{"requestId": 1}}}})
        answer_to(1)
        send(end(prompt))
        read()
    """)

    async def story() -> None:
        async with agent.connect(files="write") as remote:
            session = await remote.new(cwd=project)
            await until(written.is_set)
            await session.prompt("go")
            goes_on.set()
            await until(lambda: results)

    run(story())
    assert agent.answers_to(1)[0]["error"]["code"] == -32800
    assert (project / "a").read_text() == "old"
    assert [each.name for each in project.iterdir()] == ["a"]


MALFORMED = [
    "{}",
    "[]",
    "None",
    "'text'",
    "{'sessionId': 's1'}",
    "{'sessionId': 's1', 'path': None, 'content': ''}",
    "{'sessionId': 's1', 'path': 7, 'content': ''}",
    "{'sessionId': 's1', 'path': ['/a'], 'content': ''}",
    "{'sessionId': ['s1'], 'path': '/a', 'content': ''}",
    "{'sessionId': 'ghost', 'path': '/a', 'content': ''}",
    "{'sessionId': 's1', 'path': '/a\\0b', 'content': ''}",
    "{'sessionId': 's1', 'path': '/' + 'x' * 100000, 'content': ''}",
    "{'sessionId': 's1', 'path': '/proc/self/environ', 'content': ''}",
]


@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file"])
def test_malformed_params_are_refused_one_by_one(script: Script, project: Path, method: str) -> None:
    frames = ", ".join(
        "{'id': %d, 'method': %r, 'params': %s}" % (number, method, params)  # noqa: UP031
        for number, params in enumerate(MALFORMED, 1000)
    )

    async def story(asked: Asked) -> None:
        for answer in await asked.send(f"[{frames}]"):
            assert answer["error"]["code"] == -32602, answer
        (project / "a").write_text("still there")
        answer = await asked.request("fs/read_text_file", path=str(project / "a"))
        assert answer == {"content": "still there"}

    in_project(script, project, story)


@pytest.mark.parametrize(
    "values", [{"line": -1}, {"limit": -1}, {"line": 2**32}, {"line": "1"}, {"limit": 1.5}]
)
def test_lines_that_are_no_numbers_of_lines_do_not_break_the_session(
    script: Script, project: Path, values: dict[str, Any]
) -> None:
    (project / "a").write_text("one\n")
    answer = outcome_of(script, project, "fs/read_text_file", path=str(project / "a"), **values)
    assert answer == {"content": "one\n"} or answer["code"] == -32602


def test_a_session_that_was_closed_serves_no_files(script: Script, project: Path) -> None:
    (project / "a").touch()
    agent = script(f"""
        HELLO["agentCapabilities"] = {{"sessionCapabilities": {{"close": {{}}}}}}
        open_sessions()
        closing = read()
        send(result(closing, {{}}), request(1, "fs/read_text_file", sessionId="s1", path="{project}/a"))
        answer_to(1)
        note("answered", True)
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new(cwd=project)).close()
            await until(lambda: agent.noted("answered"))

    run(story())
    assert agent.answers_to(1)[0]["error"]["data"]["reason"] == "session_ended"


def test_blocking_work_fails_in_the_task_that_waits_for_it() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            await client_files.in_thread(fail)
        assert await asyncio.gather(*(client_files.in_thread(lambda n=n: n) for n in range(20))) == [
            *range(20)
        ]

    run(story())
