"""The pytest plugin, as the tests of somebody else's agent use it."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

ECHO = [sys.executable, "-m", "coupler", "serve", str(Path(__file__).parents[1] / "examples" / "echo.py")]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Somebody's project, with none of the plugins that happen to be installed here."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest('pytest_plugins = ["coupler.pytest_plugin"]')
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\nfilterwarnings = ['error']")
    return pytester


def run(project: pytest.Pytester, code: str) -> pytest.RunResult:
    project.makepyfile(f"ECHO = {ECHO!r}\n{textwrap.dedent(code)}")
    return project.runpytest_subprocess("-q", "-p", "no:cacheprovider")


def test_an_agent_is_tested_in_a_few_lines(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        def test_it_repeats_what_was_said(acp_client):
            client = acp_client(ECHO)
            turn = client.prompt("hello")
            assert turn.text == "You said: hello"
            assert turn.stop_reason == "end_turn"
            assert client.introduction["agentInfo"]["name"] == "agent"
        """,
    )
    result.assert_outcomes(passed=1)


def test_an_agent_in_the_same_process_is_tested_alike(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        from coupler import Turn

        async def shout(turn: Turn):
            async with turn.tool("Shout", kind="think") as call:
                await call.output("loud")
            await turn.say(turn.text.upper())

        def test_it_shouts(acp_client, acp_recorder):
            turn = acp_client(shout).prompt("hello")
            assert turn.text == "HELLO"
            assert [u.body["status"] for u in turn.updates if "status" in u.body][-1] == "completed"
            assert acp_recorder.faults() == []
        """,
    )
    result.assert_outcomes(passed=1)


def test_a_cancel_and_a_raw_line_can_be_sent(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        import asyncio

        async def patient(turn):
            await turn.say("begun")
            await asyncio.Event().wait()

        def test_it_can_be_cancelled(acp_client):
            client = acp_client(patient)
            prompt = client.start_prompt("hello")
            client.update("agent_message_chunk")
            client.cancel()
            assert client.answer(prompt).result == {"stopReason": "cancelled"}

        def test_garbage_is_refused(acp_client):
            client = acp_client(ECHO)
            client.write(b"garbage\\n")
            assert client.answer(None).code == -32700
            client.close_input()
            assert client.exit() == 0
        """,
    )
    result.assert_outcomes(passed=2)


def test_a_failing_test_shows_what_was_said(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        def test_wrong(acp_client):
            assert acp_client(ECHO).prompt("hello").text == "something else"
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ACP traffic*", '*→ *"session/prompt"*', "*← *You said: hello*"])


def test_the_recorder_judges_by_the_rules_and_saves(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        import sys
        from coupler.recording.traces import Trace

        LIAR = '''
        import json, sys
        for line in sys.stdin:
            request = json.loads(line)
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"protocolVersion": 7}}
            print(json.dumps(answer), flush=True)
        '''

        def test_recorder(acp_client, acp_recorder, tmp_path):
            import textwrap
            client = acp_client([sys.executable, "-c", textwrap.dedent(LIAR)])
            assert client.introduction == {"protocolVersion": 7}
            assert acp_recorder.faults("A01") == ["A01: version 1 was asked for and 7 answered"]
            acp_recorder.save(tmp_path)
            assert len(Trace.load(tmp_path / "01.ndjson").entries) == 2
        """,
    )
    result.assert_outcomes(passed=1)


def test_the_whole_kit_can_be_run(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        def test_it_conforms(acp_check):
            report = acp_check(ECHO, only=["A01", "A02"])
            assert report.passes, report.verdict()
            assert report.count()["passed"] == 2

        def test_an_id_that_there_is_not_is_an_error(acp_check, acp_recorder):
            import pytest
            with pytest.raises(LookupError, match="there is no assertion A999"):
                acp_check(ECHO, only=["A999"])
            with pytest.raises(ValueError, match="need the agent itself"):
                acp_recorder.faults("A52")
        """,
    )
    result.assert_outcomes(passed=2)


def test_a_client_is_tested_with_an_agent_that_follows_a_script(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        import asyncio
        from coupler import connect

        async def ask(command):
            async with connect(command) as agent:
                return (await (await agent.new()).prompt("hello")).text

        def test_it_survives_an_unknown_update(acp_agent, acp_recorder):
            async def script(agent):
                turn = await agent.begin_turn()
                assert turn.text == "hello"
                turn.update("something_new", value=1)
                turn.say("still here")
                turn.end()

            assert asyncio.run(ask(acp_agent(script))) == "still here"
            assert [each.method for each in acp_recorder.traces[0].exchanges()] == [
                "initialize", "session/new", "session/prompt"
            ]

        def test_a_script_may_be_played_again(acp_agent):
            async def script(agent):
                turn = await agent.begin_turn()
                turn.say("one")
                turn.end()

            command = acp_agent(script)
            assert [asyncio.run(ask(command)) for _ in range(2)] == ["one", "one"]
        """,
    )
    result.assert_outcomes(passed=2)


def test_a_script_that_fails_or_waits_in_vain_is_an_error_of_the_test(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        import asyncio, contextlib
        from coupler import AgentError, connect

        async def hello(command):
            async with connect(command):
                await asyncio.sleep(0.5)

        def test_silent(acp_agent):
            async def script(agent):
                await agent.begin_turn(within=0.1)
            asyncio.run(hello(acp_agent(script)))

        def test_broken(acp_agent):
            async def script(agent):
                raise ValueError("the script is wrong")
            with contextlib.suppress(AgentError):
                asyncio.run(hello(acp_agent(script)))

        def test_never_started(acp_agent):
            async def script(agent): ...
            acp_agent(script)
        """,
    )
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(["*a request session/prompt did not come within 0.1 s*"])
