"""What an agent under test may say and do must not disturb the kit."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from coupler.cli.check import exit_code
from coupler.conformance.assertion import MUST, Assertion, Case, RuleFinding, chosen
from coupler.conformance.candidate import Candidate
from coupler.conformance.examination import examine, judge
from coupler.conformance.peers import FULL_CAPABILITIES, ClientServices
from coupler.recording.traces import Trace, TraceError

REFUSING = """
    import json, sys
    code, *works = sys.argv[1:]
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        results = {"initialize": {"protocolVersion": 1}, "session/new": {"sessionId": "s"}}
        answer = {"jsonrpc": "2.0", "id": request["id"], "error": {"code": int(code), "message": "no key"}}
        if request["method"] in works:
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": results[request["method"]]}
        print(json.dumps(answer), flush=True)
"""
"""Refuses with the code that it is given all but the methods that it is given."""


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("fs/read_text_file", {"path": "app.py", "line": "first"}),
        ("fs/read_text_file", {"path": "app.py", "line": 1, "limit": []}),
        ("fs/read_text_file", {"path": "a\0b"}),
        ("fs/write_text_file", {"path": "a\0b", "content": 5}),
        ("terminal/output", {"terminalId": {}}),
        ("session/request_permission", {"options": 5}),
        ("session/request_permission", []),
        ("elicitation/create", None),
        ("no/such/method", {}),
    ],
)
def test_the_desk_answers_whatever_it_is_asked(method: str, params: object, tmp_path: Path) -> None:
    if isinstance(params, dict) and params.get("path") == "app.py":
        (tmp_path / "app.py").write_text("text")
        params = {**params, "path": str(tmp_path / "app.py")}

    answer = ClientServices(tmp_path, FULL_CAPABILITIES).answer({"id": 1, "method": method, "params": params})

    assert answer is not None and answer["id"] == 1
    assert "error" in answer or "outcome" in answer["result"]


def test_a_frame_with_a_carriage_return_survives_on_disk(tmp_path: Path) -> None:
    trace = Trace("x")
    trace.append(0.5, "agent", b'{"jsonrpc": "2.0",\r "method": "m"}')
    trace.save(tmp_path / "trace.ndjson")

    assert Trace.load(tmp_path / "trace.ndjson").entries[0].line == trace.entries[0].line


SECRET = "Zq7Xk9Vw3Jy5Qz8Wx2Kv"


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_trace_on_disk_shows_no_secret_also_none_in_pieces(tmp_path: Path, monkeypatch, cut: int) -> None:
    monkeypatch.setenv("A_TOKEN", SECRET)
    trace = Trace("x")
    trace.stdout, trace.stderr = f"printed {SECRET}", f"told {SECRET}"

    def said(text: str, kind: str = "agent_message_chunk") -> None:
        update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
        frame = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}
        trace.append(0.5, "agent", json.dumps(frame).encode())

    for kind in ("agent_message_chunk", "agent_thought_chunk"):
        said(SECRET[:cut], kind)
    trace.append(0.5, "agent", b'{"jsonrpc": "2.0", "id": 1, "error": {"data": "%s"}}' % SECRET.encode())
    for kind in ("agent_message_chunk", "agent_thought_chunk"):
        said(f"{SECRET[cut:]} there", kind)
    trace.append(0.5, "agent", b"no JSON: %s" % SECRET.encode())
    trace.append(0.5, "client", b'{"x": ' + b"[" * 900 + b'"%s"' % SECRET.encode() + b"]" * 900 + b"}")
    clean = b'{"jsonrpc": "2.0",  "method": "m"}'
    trace.append(0.5, "agent", clean)

    trace.save(tmp_path / "trace.ndjson")

    written = (tmp_path / "trace.ndjson").read_text()
    assert [SECRET[at : at + 4] for at in range(17) if SECRET[at : at + 4] in written] == []
    saved = Trace.load(tmp_path / "trace.ndjson")
    assert saved.entries[-1].line == clean
    assert (saved.stdout, saved.stderr) == ("printed [secret:A_TOKEN]", "told [secret:A_TOKEN]")
    texts = [update.body["content"]["text"] for update in saved.updates("s", "agent_message_chunk")]
    assert "".join(texts) == "[secret:A_TOKEN] there"


def test_a_line_that_was_cut_off_at_the_end_of_a_trace_is_left_out(tmp_path: Path) -> None:
    trace = Trace("x")
    for _ in range(3):
        trace.append(0.5, "agent", b'{"jsonrpc": "2.0", "method": "m"}')
    trace.save(tmp_path / "trace.ndjson")
    whole = (tmp_path / "trace.ndjson").read_bytes()
    (tmp_path / "trace.ndjson").write_bytes(whole[:-10])

    assert len(Trace.load(tmp_path / "trace.ndjson").entries) == 2
    (tmp_path / "trace.ndjson").write_bytes(b"{}\n" + whole)
    with pytest.raises(TraceError, match=r"trace\.ndjson:1 is no line of a trace"):
        Trace.load(tmp_path / "trace.ndjson")


@pytest.mark.parametrize(
    ("found", "outcome"), [([], "skipped"), ([None], "skipped"), ([RuleFinding("!")], "failed")]
)
def test_a_rule_that_fails_itself_blames_nobody_and_passes_nobody(found: list[Case], outcome: str) -> None:
    def rule(trace: Trace) -> Iterator[Case]:
        yield from found
        raise KeyError("oh")

    result = judge(Assertion("Z01", MUST, "sentence", "section", "clause", "agent", rule=rule), [Trace()])

    assert result.outcome == outcome
    assert outcome == "failed" or result.message.startswith("the kit itself failed")


def test_an_agent_that_refuses_every_prompt_is_not_blamed_for_it(tmp_path: Path) -> None:
    candidate = refusing(tmp_path, -32603, "initialize", "session/new")
    ids = {"A41", "A42", "A43", "A52", "A53", "A55", "A60"}

    report = asyncio.run(examine(candidate, chosen("agent", ids)))

    outcomes = {each.assertion.id: each.outcome for each in report.results}
    assert "failed" not in outcomes.values(), outcomes
    assert "no key" in next(each.message for each in report.results if each.outcome == "skipped")


@pytest.mark.parametrize(
    ("code", "works", "ids", "word"),
    [
        (-32603, ["initialize"], "A02,A21,A22,A44", "does not conform (1 passed, 1 failed, 2 skipped)"),
        (-32603, ["initialize"], "A02,A22,A44", "was judged only in part (1 passed, 2 skipped)"),
        (-32000, ["initialize"], "A02,A21,A22,A44", "was judged only in part (1 passed, 3 skipped)"),
        (
            -32603,
            ["initialize", "session/new"],
            "A02,A44,A52",
            "was judged only in part (1 passed, 2 skipped)",
        ),
        (-32603, ["initialize"], "A22,A44", "nothing was judged (2 skipped)"),
        (-32603, ["initialize"], "A02", "conforms (1 passed)"),
    ],
    ids=["no session", "no session, not asked for", "a login", "no prompt", "nothing", "nothing skipped"],
)
def test_an_agent_conforms_only_if_sessions_and_prompts_could_be_judged(
    code: int, works: list[str], ids: str, word: str, tmp_path: Path
) -> None:
    candidate = refusing(tmp_path, code, *works)

    report = asyncio.run(examine(candidate, chosen("agent", ids.split(","))))

    assert report.verdict() == f"ACP v1 agent: {word}"
    assert report.passes is word.startswith("conforms")
    assert exit_code(report) == (0 if report.passes else 1 if "not conform" in word else 2)


def refusing(directory: Path, code: int, *works: str) -> Candidate:
    command = [sys.executable, "-I", "-S", "-c", dedent(REFUSING), str(code), *works]
    return Candidate(command, directory, timeout=5.0, startup_timeout=20.0)
