"""Starting and ending agents: every way to name one, and every way in which it can refuse."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from client.stage import Scripted, gone_within, is_running, run
from coupler import Agent, AgentError, Environment, Turn, connect
from coupler.client import connection as connection_module
from coupler.client.observation import AgentEnded, PromptSent, SessionOpened, TurnFinished
from coupler.events import Content
from coupler.schema.v1 import ImageContent
from tables import table

Script = Callable[[str], Scripted]

ECHO = "for prompt in prompts(): send(say(text_of(prompt)), end(prompt))"


def test_a_command_can_be_a_string(script: Script) -> None:
    agent = script(ECHO)

    async def story() -> None:
        async with connect(shlex.join(agent.command)) as remote:
            session = await remote.new()
            assert (await session.prompt("hello")).text == "hello"

    run(story())


@table(
    ("agent", "kind", "words"),
    [
        ("", ValueError, "an empty text"),
        ("  ", ValueError, "an empty text"),
        ([], ValueError, "an empty list"),
        (None, TypeError, "this is None"),
        (5, TypeError, "this is 5"),
        (b"agent", TypeError, "this is b'agent'"),
    ],
)
def test_what_can_be_no_agent_is_told_where_it_is_given(
    agent: object, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        connect(agent)


def test_a_command_can_be_a_list_whose_words_are_not_split(tmp_path: Path, script: Script) -> None:
    agent = script(f"note('words', sys.argv[2:])\n{ECHO}")

    async def story() -> None:
        async with connect([*agent.command, "two words", "$HOME;", "'"]):
            pass

    run(story())
    assert agent.noted("words") == [["two words", "$HOME;", "'"]]


def test_an_agent_is_introduced_to_coupler_and_introduces_itself(script: Script) -> None:
    agent = script("""
        request = read()
        info = {"name": "scripted", "title": "A script", "version": "3"}
        capabilities = {"promptCapabilities": {"image": True}}
        send(result(request, {"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": info}))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            assert remote.info is not None
            assert (remote.info.name, remote.info.title, remote.info.version) == ("scripted", "A script", "3")
            assert remote.capabilities.prompt_capabilities.image is True

    run(story())
    [frame] = agent.received
    assert frame["params"]["protocolVersion"] == 1
    assert frame["params"]["clientInfo"]["name"] == "coupler"


def test_an_agent_that_says_little_about_itself_is_good_enough(script: Script) -> None:
    agent = script("""
        answer = {"protocolVersion": 1, "agentCapabilities": None, "agentInfo": None, "authMethods": 7}
        send(result(read(), answer))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            assert remote.info is None
            assert remote.capabilities.load_session is False

    run(story())


def test_the_process_runs_in_the_directory_and_so_do_its_sessions(tmp_path: Path, script: Script) -> None:
    agent = script(f"import os\nnote('cwd', os.getcwd())\n{ECHO}")
    (tmp_path / "project").mkdir()
    (tmp_path / "other").mkdir()

    async def story() -> None:
        async with agent.connect(cwd=tmp_path / "project") as remote:
            assert (await remote.new()).cwd == str(tmp_path / "project")
            assert (await remote.new(cwd=tmp_path / "other")).cwd == str(tmp_path / "other")

    run(story())
    assert agent.noted("cwd") == [str(tmp_path / "project")]
    cwds = [frame["params"]["cwd"] for frame in agent.received_of("session/new")]
    assert cwds == [str(tmp_path / "project"), str(tmp_path / "other")]


def test_a_relative_directory_becomes_absolute_on_the_wire(
    tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = script(ECHO)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)

    async def story() -> None:
        async with agent.connect(cwd="project") as remote:
            await remote.new()

    run(story())
    assert agent.received_of("session/new")[0]["params"]["cwd"] == str(tmp_path / "project")


def test_the_environment_is_ours_with_overrides(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = script(f"import os\nnote('environment', dict(os.environ))\n{ECHO}")
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.setenv("REMOVED", "no")

    async def story() -> None:
        async with agent.connect(env={"ADDED": "1", "REMOVED": None}):
            pass

    run(story())
    [environment] = agent.noted("environment")
    assert environment["INHERITED"] == "yes"
    assert environment["ADDED"] == "1"
    assert "REMOVED" not in environment


def test_an_exact_environment_holds_nothing_else(script: Script) -> None:
    agent = script(f"import os\nnote('environment', dict(os.environ))\n{ECHO}")

    async def story() -> None:
        async with agent.connect(env=Environment.exact({"ONLY": "this"})):
            pass

    run(story())
    [environment] = agent.noted("environment")
    environment.pop("LC_CTYPE", None)  # Python adds it to itself
    assert environment == {"ONLY": "this"}


def spawn_error(command: object, **options: object) -> AgentError:
    async def story() -> AgentError:
        with pytest.raises(AgentError) as caught:
            async with connect(command, **options):  # type: ignore[arg-type]
                raise AssertionError("it started")
        return caught.value

    error = run(story())
    assert error.kind == "spawn"
    return error


def test_a_missing_program_is_named_with_what_to_do() -> None:
    message = str(spawn_error("no-such-agent --acp"))
    assert "'no-such-agent' was not found" in message
    assert "Install it" in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "gone") in str(spawn_error([str(tmp_path / "gone")]))


def test_a_file_that_is_not_executable_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text("#!/bin/sh\n")
    message = str(spawn_error([str(tmp_path / "agent.sh")]))
    assert str(tmp_path / "agent.sh") in message
    assert "chmod +x" in message


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    message = str(spawn_error([sys.executable], cwd=tmp_path / "gone"))
    assert f"{str(tmp_path / 'gone')!r} does not exist" in message


@pytest.mark.parametrize("command", ["agent 'unbalanced", ["agent\0"]])
def test_a_command_that_is_none_is_refused_when_it_is_started(command: object) -> None:
    assert "command" in str(spawn_error(command))


def test_a_bad_environment_is_refused_when_the_agent_is_started() -> None:
    assert "environment variable" in str(spawn_error([sys.executable], env={"A=B": "1"}))


def test_an_environment_for_an_agent_in_this_process_is_refused() -> None:
    async def agent(turn: object) -> None: ...

    with pytest.raises(AgentError, match="`env` is for commands"):
        connect(agent, env={"A": "1"})


@pytest.mark.parametrize("target", [object(), lambda: None])
def test_what_is_no_agent_is_refused_with_what_would_be_one(target: object) -> None:
    assert "function with one parameter named `turn`" in str(spawn_error(target))


def test_a_session_needs_a_started_agent() -> None:
    async def story() -> None:
        agent = connect([sys.executable])
        with pytest.raises(AgentError, match="async with connect") as caught:
            await agent.new()
        assert caught.value.kind == "closed"
        await agent.close()

    run(story())


def test_an_agent_is_started_once(script: Script) -> None:
    agent = script(ECHO)

    async def story() -> None:
        remote = agent.connect()
        async with remote:
            with pytest.raises(AgentError, match="started before"):
                await remote.__aenter__()
        with pytest.raises(AgentError, match="connect again"):
            await remote.__aenter__()

    run(story())
    assert len(agent.noted("pid")) == 1


def test_the_default_for_starting_is_30_seconds_and_120_for_installers() -> None:
    def timeout(command: object, **options: object) -> float:
        return connect(command, **options)._startup_timeout  # type: ignore[arg-type]

    async def function(turn: object) -> None: ...

    assert timeout("opencode acp") == 30
    assert timeout(function) == 30
    for command in ("npx -y agent", ["/usr/bin/npx", "agent"], "uvx agent", ["npx.cmd"]):
        assert timeout(command) == 120
    assert timeout("agent npx") == 30
    assert timeout("npx agent", startup_timeout=5) == 5
    assert timeout("'unbalanced") == 30


def test_an_agent_ends_by_itself_when_its_input_is_closed(script: Script) -> None:
    agent = script(f"""
        try:
            {ECHO}
        finally:
            note("left", "orderly")
    """)

    async def story() -> float:
        async with agent.connect() as remote:
            await remote.new()
            started = time.monotonic()
        return time.monotonic() - started

    assert run(story()) < 5
    assert agent.noted("left") == ["orderly"]


def test_an_agent_that_ignores_eof_gets_sigterm(script: Script) -> None:
    agent = script("""
        import signal, threading
        def leave(*_):
            note("left", "SIGTERM")
            raise SystemExit
        signal.signal(signal.SIGTERM, leave)
        hello()
        threading.Event().wait()
    """)

    async def story() -> None:
        async with agent.connect():
            pass

    run(story())
    assert agent.noted("left") == ["SIGTERM"]


def test_an_agent_that_ignores_eof_and_sigterm_is_killed(script: Script) -> None:
    agent = script("""
        import signal, threading
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hello()
        while True:
            threading.Event().wait()
    """)

    async def story() -> None:
        async with agent.connect():
            pass

    run(story())
    assert not is_running(agent.noted("pid")[0])


def test_what_an_agent_started_is_gone_with_it(script: Script) -> None:
    agent = script("""
        import subprocess
        orphan = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
        note("grandchild", orphan.pid)
        hello()
        read()
    """)

    async def story() -> None:
        async with agent.connect():
            assert is_running(agent.noted("grandchild")[0])

    run(story())
    assert gone_within(5, agent.noted("grandchild")[0])


def test_closing_twice_or_at_the_same_time_is_closing_once(script: Script) -> None:
    agent = script(ECHO)

    async def story() -> None:
        async with agent.connect() as remote:
            await asyncio.gather(remote.close(), remote.close())
            await remote.close()
            with pytest.raises(AgentError) as caught:
                await remote.new()
            assert caught.value.kind == "closed"

    run(story())


def test_an_error_in_the_body_ends_the_process_and_comes_through(script: Script) -> None:
    agent = script(ECHO)

    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            async with agent.connect() as remote:
                await remote.new()
                raise ZeroDivisionError

    run(story())
    assert not is_running(agent.noted("pid")[0])


def test_cancelling_the_start_leaves_no_process(script: Script) -> None:
    agent = script("read(); note('asked', {'id': 0, 'method': '_'}); read()")

    async def story() -> None:
        async def start() -> None:
            async with agent.connect():
                raise AssertionError("it started")

        starting = asyncio.create_task(start())
        while not agent.noted("got"):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    run(story())
    assert not is_running(agent.noted("pid")[0])


def test_cancelling_the_end_kills_at_once(script: Script) -> None:
    agent = script("""
        import signal, threading
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hello()
        while True:
            threading.Event().wait()
    """)

    async def story() -> float:
        remote = agent.connect()
        await remote.__aenter__()
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await remote.close()
        assert gone_within(5, agent.noted("pid")[0])
        await remote.close()
        return time.monotonic() - started

    assert run(story()) < 4


def test_interrupting_the_program_ends_the_agent(tmp_path: Path, script: Script) -> None:
    agent = script("""
        open_sessions()
        prompt = read()
        note("prompted", True)
        send(end(read_until(is_cancel) and prompt, "cancelled"))
        read()
    """)
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, signal\n"
        "from coupler import connect\n"
        "async def main():\n"
        f"    async with connect({agent.command!r}) as agent:\n"
        "        session = await agent.new()\n"
        "        await session.prompt('work')\n"
        # Whoever runs the tests in the background has it ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, str(program)], stderr=subprocess.PIPE, text=True)
    while not agent.noted("prompted"):
        assert process.poll() is None
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "was never" not in stderr
    assert gone_within(5, agent.noted("pid")[0])
    assert len(agent.received_of("session/cancel")) == 1


def test_a_program_without_logging_prints_nothing_of_an_agents_faults(tmp_path: Path, script: Script) -> None:
    agent = script("""
        write(b"Welcome!\\n")
        for prompt in prompts():
            write(b"log line\\n[]\\n")
            send(update("plan"), say("a", "ghost"), {"id": 99, "result": {}}, end(prompt))
    """)
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio\n"
        "from coupler import connect\n"
        "async def main():\n"
        f"    async with connect({agent.command!r}) as agent:\n"
        "        session = await agent.new()\n"
        "        await session.prompt('work')\n"
        "        async for _ in session.prompt('work'):\n"
        "            break\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_what_cannot_be_waited_for_is_not_waited_for(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that died while its child holds the output open."""
    monkeypatch.setattr(connection_module, "STDOUT_EOF_TIMEOUT", 0.1)
    agent = script("""
        import os, subprocess
        open_sessions()
        read()
        keeper = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
        note("grandchild", keeper.pid)
        sys.stderr.write("out of memory\\n")
        sys.stderr.flush()
        os._exit(9)
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with pytest.raises(AgentError, match="out of memory") as caught:
                await session.prompt("work")
            assert (caught.value.kind, caught.value.exit_code) == ("died", 9)

    run(story())
    assert gone_within(5, agent.noted("grandchild")[0])


def test_coupler_is_found_without_its_environment_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.py").write_text("async def agent(turn):\n    await turn.say(turn.text)\n")
    monkeypatch.setenv("PATH", "/nowhere")

    async def ask() -> str:
        async with connect("coupler serve agent.py", cwd=tmp_path) as agent:
            return (await (await agent.new()).prompt("hello")).text

    assert asyncio.run(ask()) == "hello"


def test_an_update_of_sixty_megabytes_arrives() -> None:
    async def long_winded(turn: Turn) -> None:
        await turn.say(ImageContent("A" * 60_000_000, "image/png"))

    async def ask() -> list[int]:
        async with connect(long_winded) as agent:
            session = await agent.new()
            return [
                len(event.block.data)
                async for event in session.prompt("go")
                if isinstance(event, Content) and isinstance(event.block, ImageContent)
            ]

    assert asyncio.run(ask()) == [60_000_000]


def test_an_agent_that_accepts_what_does_not_exist_is_refused_at_the_start() -> None:
    class Painter(Agent):
        accepts = ("video",)

    async def start() -> None:
        async with connect(Painter):
            pass

    with pytest.raises(AgentError, match="video") as raised:
        asyncio.run(start())
    assert raised.value.kind == "spawn"


def test_that_an_agent_ended_by_itself_is_told_and_that_we_ended_it_is_not(script: Script) -> None:
    seen: list[object] = []
    dying, lasting = script("for prompt in prompts(): os._exit(3)"), script("for prompt in prompts(): pass")

    async def story() -> None:
        async with dying.connect(on_event=seen.append) as remote:
            with pytest.raises(AgentError):
                await (await remote.new()).prompt("go")
        assert [type(each) for each in seen] == [SessionOpened, PromptSent, TurnFinished, AgentEnded]
        seen.clear()
        async with lasting.connect(on_event=seen.append) as remote:
            await remote.new()
        assert [type(each) for each in seen] == [SessionOpened]

    run(story())
