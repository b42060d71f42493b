"""One question of the coder on its way: what the editor sees of it, and what it passes through."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from coder.script import use
from coder.served_coder import Coder, clerk, write
from raw_client import Frame

MOST_FILES = 50
"""Most files of Coupler's that a permission question passes through."""

TRACER = """
import json, os, sys, threading

files, judged, state = set(), [], {"is_on": False}

def note(frame, event, argument):
    if event != "call":
        return
    code = frame.f_code
    file, name = code.co_filename, code.co_name
    if file.endswith("editor_tools/tool_use.py") and name == "ask":
        state["is_on"] = True
    if not state["is_on"] or "/coupler/" not in file:
        return
    files.add(file.rpartition("/coupler/")[2])
    if name == "claims_of":
        judged.append(file)
    if name == "_go_on":
        state["is_on"] = False
        with open(os.environ["TRACE_FILE"], "w") as out:
            json.dump({"files": sorted(files), "judgements": len(judged)}, out)

threading.setprofile(note)
sys.setprofile(note)
"""


def statuses(frames: list[Frame]) -> dict[str, list[str]]:
    """The statuses of each call in the order in which the editor is told of them."""
    told: dict[str, list[str]] = {}
    for frame in frames:
        params = frame.get("params", {})
        call = params.get("update", params.get("toolCall", {}))
        if "toolCallId" in call and call.get("status"):
            told.setdefault(call["toolCallId"], []).append(call["status"])
    return told


def played(
    coder: Coder, project: Path, script: list[Any], *answers: str, servers: tuple[Frame, ...] = ()
) -> dict[str, list[str]]:
    editor = coder(project, script, *servers)
    request = editor.begin("Do it")
    waiting = iter(answers)
    frames = [editor.client.read()]
    while frames[-1].get("id") != request["id"] or "method" in frames[-1]:
        editor.serve(frames[-1], waiting)
        frames.append(editor.client.read())
    assert not [*waiting]
    return statuses(frames)


def test_a_call_is_pending_while_it_is_asked_about_then_in_progress_and_never_back(
    coder: Coder, project: Path
) -> None:
    write(project, {"x.txt": "x", "b.txt": "b"})
    script = [
        use("run_command", command="rm x.txt"),
        use("write_file", path="c.txt", content="c"),
        use("search", pattern="b"),
        "Done.",
    ]

    told = played(coder, project, script, "allow_once", "allow_once")

    command, writing, search = told.values()
    assert command == ["pending", "pending", "in_progress", "completed"]
    assert writing == ["pending", "pending", "in_progress", "completed"]
    assert search == ["pending", "in_progress", "completed"]
    assert not (project / "x.txt").exists()


def test_a_call_that_is_refused_never_ran(coder: Coder, project: Path) -> None:
    write(project, {"x.txt": "x"})

    [told] = played(
        coder, project, [use("run_command", command="rm x.txt"), "Then not."], "reject_once"
    ).values()

    assert told == ["pending", "pending", "failed"]


def test_a_tool_of_an_mcp_server_is_pending_while_it_is_asked_about(coder: Coder, project: Path) -> None:
    script = [use("read_memo", text="the memo"), "Read."]

    [told] = played(coder, project, script, "allow_once", servers=(clerk(),)).values()

    assert told[:3] == ["pending", "pending", "in_progress"]
    assert told[-1] == "completed"


def test_a_question_is_judged_once_and_passes_through_few_files(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "tracer").mkdir()
    (tmp_path / "tracer" / "sitecustomize.py").write_text(TRACER)
    write(project, {"x.txt": "x"})
    trace = tmp_path / "trace.json"
    coder.model.plays(use("run_command", command="rm x.txt"), "Done.")
    served = coder.served(fresh=True, env={"PYTHONPATH": str(tmp_path / "tracer"), "TRACE_FILE": str(trace)})

    served.opened(project).prompt("Delete it", "allow_once")

    passed = json.loads(trace.read_text())
    assert passed["judgements"] == 1
    assert len(passed["files"]) <= MOST_FILES, passed["files"]


def test_a_search_leaves_out_what_may_not_be_read_and_asks_nobody(coder: Coder, project: Path) -> None:
    write(project, {".env": "TOKEN=needle", "private/a.txt": "needle", "src/b.txt": "needle"})
    coder.model.plays(use("search", pattern="needle"), use("find_files", glob="**/*.txt"), "Found.")
    served = coder.served(config='[permissions]\ndeny = ["read(private/**)", "read(**/.env)"]\n')

    turn = served.opened(project).prompt("Look for it")

    found = "\n".join(coder.model.last.results)
    assert "src/b.txt" in found
    assert "needle" in found
    assert "private/a.txt:" not in found
    assert "private" not in coder.model.last.results[-1]
    assert "TOKEN" not in found
    assert [each["status"] for each in turn.uses] == ["completed", "completed"]


def test_a_search_in_a_directory_that_may_not_be_read_is_denied(coder: Coder, project: Path) -> None:
    write(project, {"private/a.txt": "needle"})
    coder.model.plays(use("search", pattern="needle", directory="private"), "I may not.")
    served = coder.served(config='[permissions]\ndeny = ["read(private/)"]\n')

    turn = served.opened(project).prompt("Look for it")

    assert "is denied by `read(private/)`" in coder.model.last.result
    assert turn.use["status"] == "failed"


MOST_HELD_UP = 2.0
"""Seconds that another session may wait at most, on a busy machine; it was 7.7 on an idle one."""


def test_wildcards_that_mean_half_the_disk_hold_up_no_other_session(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("run_command", command="ls /*/*/*/*/*/*/zzzq*"), "Then not."])
    editor.set_mode("agentic")
    beside = coder.beside(editor, project)
    request = editor.begin("Look everywhere")
    waits: list[float] = []
    frames: list[Frame] = []
    is_asked = False
    while not is_asked:
        ping = beside.client.request("session/set_mode", {"sessionId": beside.session, "modeId": "planning"})
        began = time.monotonic()
        beside.client.send(ping)
        while not (frames and frames[-1].get("id") == ping["id"]):
            frames.append(beside.client.read())
            is_asked = is_asked or frames[-1].get("method") == "session/request_permission"
        waits.append(time.monotonic() - began)

    [asked] = [frame for frame in frames if frame.get("method") == "session/request_permission"]
    editor.serve(asked, iter(["reject_once"]))
    editor.finish(request, before=frames)

    assert max(waits) < MOST_HELD_UP


def test_a_line_that_nobody_can_judge_in_time_is_asked_about(coder: Coder, project: Path) -> None:
    line = "rm -rf " + " ".join(["$(echo {a,b}{c,d}{e,f})/*"] * 200)
    editor = coder(project, [use("run_command", command=line), "Then not."])
    editor.set_mode("agentic")

    turn = editor.prompt("Do it", "reject_once")

    assert turn.use["status"] == "failed"
    assert [option["kind"] for option in editor.asked[0]["options"]] == ["allow_once", "reject_once"]
