"""`connect(record=…)`: all that is said, in a file, as `coupler record` writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from client.stage import Scripted, run
from coupler import AgentError, Turn, connect
from coupler.recording.traces import Trace

Script = Callable[[str], Scripted]

SECRET = "hunter2-4711-zebra-quartz"


def test_every_frame_of_both_sides_is_in_the_file_with_its_time(script: Script, tmp_path: Path) -> None:
    agent = script("for prompt in prompts(): send(say('a'), say('b'), end(prompt))")

    async def story() -> None:
        async with agent.connect(record=tmp_path / "talk.ndjson") as remote:
            assert (await (await remote.new()).prompt("go")).text == "ab"

    run(story())
    trace = Trace.load(tmp_path / "talk.ndjson")
    assert [exchange.method for exchange in trace.exchanges()] == [
        "initialize",
        "session/new",
        "session/prompt",
    ]
    assert [update.body["content"]["text"] for update in trace.updates()] == ["a", "b"]
    assert [entry.message for entry in trace.entries if entry.sender == "client"] == agent.received
    times = [entry.at for entry in trace.entries]
    assert times == sorted(times)
    assert trace.exit_code == 0
    assert (tmp_path / "talk.ndjson").stat().st_mode & 0o777 == 0o600


def test_what_is_secret_to_us_or_only_to_the_agent_is_masked_in_the_file_and_nowhere_else(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = "correct-horse-9163-battery"
    monkeypatch.setenv("OUR_API_KEY", ours)
    agent = script(
        "for prompt in prompts(): send(say(os.environ['ITS_TOKEN']), say(text_of(prompt)), end(prompt))"
    )

    async def story() -> None:
        async with agent.connect(
            record=tmp_path / "talk.ndjson", env={"ITS_TOKEN": SECRET, "LANG": None}
        ) as remote:
            assert (await (await remote.new()).prompt(f" {ours}")).text == f"{SECRET} {ours}"

    run(story())
    text = (tmp_path / "talk.ndjson").read_text()
    assert SECRET not in text and ours not in text
    assert "[secret:ITS_TOKEN]" in text and "[secret:OUR_API_KEY]" in text


def test_an_agent_that_is_started_again_is_recorded_in_another_file(script: Script, tmp_path: Path) -> None:
    agent = script("for prompt in prompts(): send(say('a'), end(prompt))")

    async def story() -> None:
        async with agent.connect(record=tmp_path / "talk.ndjson") as remote:
            await remote.new()
            await remote.restart()
            await (await remote.new()).prompt("go")

    run(story())
    assert not Trace.load(tmp_path / "talk.ndjson").exchanges("session/prompt")
    assert Trace.load(tmp_path / "talk-2.ndjson").exchanges("session/prompt")


def test_an_agent_in_this_process_is_recorded_too(tmp_path: Path) -> None:
    async def echo(turn: Turn) -> None:
        await turn.say(turn.text)

    async def story() -> None:
        async with connect(echo, record=tmp_path / "talk.ndjson") as remote:
            await (await remote.new()).prompt("go")

    run(story())
    trace = Trace.load(tmp_path / "talk.ndjson")
    assert trace.label == "echo"
    assert [update.body["content"]["text"] for update in trace.updates()] == ["go"]


def test_a_file_that_cannot_be_made_is_an_error_before_anything_is_started(
    script: Script, tmp_path: Path
) -> None:
    agent = script("prompts()")

    async def story() -> None:
        with pytest.raises(AgentError, match="recording cannot be begun") as caught:
            async with agent.connect(record=tmp_path / "missing" / "talk.ndjson"):
                pass
        assert caught.value.kind == "spawn"

    run(story())
    assert not agent.noted("pid")


@pytest.mark.parametrize("command", ["'unclosed", "no-such-program"])
def test_a_command_that_cannot_be_started_fails_as_it_does_without_a_recording(
    command: str, tmp_path: Path
) -> None:
    async def story() -> None:
        with pytest.raises(AgentError) as caught:
            async with connect(command, record=tmp_path / "talk.ndjson"):
                pass
        assert caught.value.kind == "spawn"

    run(story())
