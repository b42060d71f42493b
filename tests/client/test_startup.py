"""Agents that start badly: too slow, dead, noisy, or speaking something else."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

import pytest

from client.stage import Scripted, run
from coupler import AgentError
from coupler.client import connection as connection_module

Script = Callable[[str], Scripted]

HANG = "import threading; threading.Event().wait()"


def start_error(agent: Scripted, **options: float) -> AgentError:
    """The error of an agent that cannot be started."""

    async def story() -> AgentError:
        with pytest.raises(AgentError) as caught:
            async with agent.connect(**options):
                raise AssertionError("it started")
        return caught.value

    return run(story())


def new_error(agent: Scripted, **options: float) -> AgentError:
    """The error of an agent that starts but opens no session."""

    async def story() -> AgentError:
        async with agent.connect(**options) as remote:
            with pytest.raises(AgentError) as caught:
                await remote.new()
            return caught.value

    return run(story())


def seconds_in(error: AgentError) -> float:
    """The elapsed time that the message names."""
    found = re.search(r"within (\d+\.\d) s", str(error))
    assert found, str(error)
    return float(found[1])


def test_an_agent_that_never_says_hello_times_out_with_its_last_words(script: Script) -> None:
    error = start_error(
        script(f"read(); print('loading the model', file=sys.stderr, flush=True); {HANG}"),
        startup_timeout=1.5,
    )
    assert error.kind == "initialize"
    assert "did not answer initialize" in str(error)
    assert "within 1.5 s" in str(error)
    assert "stderr: loading the model" in str(error)
    assert 1.4 <= seconds_in(error) <= 5


def test_an_agent_that_opens_no_session_times_out_and_is_told(script: Script) -> None:
    agent = script(f"hello(); read(); print('indexing', file=sys.stderr, flush=True); read(); {HANG}")
    error = new_error(agent, startup_timeout=1.5)
    assert error.kind == "session"
    assert "did not answer session/new" in str(error)
    assert "stderr: indexing" in str(error)
    [new] = agent.received_of("session/new")
    assert [frame["params"] for frame in agent.received_of("$/cancel_request")] == [{"requestId": new["id"]}]


def test_the_time_that_initialize_took_counts_for_the_first_session(script: Script) -> None:
    agent = script(f"""
        import threading
        request = read()
        threading.Event().wait(1.0)
        send(result(request, HELLO))
        read(); {HANG}
    """)

    async def story() -> None:
        async with agent.connect(startup_timeout=2.0) as remote:
            started = time.monotonic()
            with pytest.raises(AgentError, match="session/new") as caught:
                await remote.new()
            assert time.monotonic() - started < 1.5
            assert seconds_in(caught.value) >= 1.9

    run(story())


def test_the_second_session_has_the_whole_time_again(script: Script) -> None:
    agent = script("""
        import threading
        request = read()
        threading.Event().wait(1.0)
        send(result(request, HELLO))
        send(result(read(), {"sessionId": "s1"}))
        request = read()
        threading.Event().wait(1.0)
        send(result(request, {"sessionId": "s2"}))
        read()
    """)

    async def story() -> None:
        async with agent.connect(startup_timeout=1.9) as remote:
            await remote.new()
            assert (await remote.new()).id == "s2"

    run(story())


def test_a_session_that_comes_after_its_time_is_ignored(script: Script) -> None:
    agent = script("""
        hello()
        late = read()
        read_until(lambda frame: frame.get("method") == "$/cancel_request")
        send(result(late, {"sessionId": "late"}))
        send(result(read(), {"sessionId": "s2"}))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await remote.new()
            assert (await remote.new()).id == "s2"
            assert [*remote._connection.sessions] == ["s2"]

    run(story())


def test_an_agent_that_dies_at_once_is_noticed_at_once(script: Script) -> None:
    started = time.monotonic()
    error = start_error(script("print('no API key', file=sys.stderr); raise SystemExit(3)"))
    assert time.monotonic() - started < 10
    assert (error.kind, error.exit_code) == ("initialize", 3)
    assert error.stderr == "no API key\n"
    assert str(error).splitlines() == [
        "the agent ended before it answered initialize",
        "exit code: 3",
        "stderr: no API key",
    ]


def test_an_agent_that_is_killed_has_a_negative_exit_code(script: Script) -> None:
    error = start_error(script("import signal; read(); os.kill(os.getpid(), signal.SIGKILL)"))
    assert (error.kind, error.exit_code) == ("initialize", -9)


def test_an_agent_that_dies_over_a_session_is_noticed_at_once(script: Script) -> None:
    error = new_error(script("hello(); read(); print('disk full', file=sys.stderr); raise SystemExit(4)"))
    assert (error.kind, error.exit_code, error.stderr) == ("died", 4, "disk full\n")


def test_an_agent_that_closes_its_output_and_lives_is_as_good_as_dead(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "EXIT_CODE_TIMEOUT", 0.1)
    error = start_error(script("read(); os.close(1); read()"))
    assert (error.kind, error.exit_code) == ("initialize", None)
    assert "its process still runs" in str(error)


def test_a_banner_and_garbage_between_frames_are_skipped_and_never_answered(script: Script) -> None:
    agent = script(r"""
        write("Welcome to the agent v1 ⚡\n\n".encode())
        hello()
        write(b'{"half": \n[1, 2]\n\xff\xfe\x00\nnull\n"text"\n7\n{}\n{"id": {}}\n' + b"{" * 3000 + b"\n")
        request = read()
        write(b"\x1b[31mlog line\x1b[0m\r\n")
        send(result(request, {"sessionId": "s1"}))
        prompt = read()
        send(say("a"))
        write(b'DEBUG {"jsonrpc": "2.0"}\n')
        send(say("b"))
        write(b"no line end before this ->")
        write(b"\n")
        send(end(prompt))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            assert (await session.prompt("hello")).text == "ab"

    run(story())
    assert [frame["method"] for frame in agent.received] == ["initialize", "session/new", "session/prompt"]


def test_an_agent_of_another_version_is_refused(script: Script) -> None:
    error = start_error(script("""send(result(read(), {"protocolVersion": 2})); read()"""))
    assert error.kind == "initialize"
    assert "speaks version 2" in str(error)
    assert "Coupler speaks 1" in str(error)


def test_an_agent_that_refuses_to_be_introduced_is_quoted(script: Script) -> None:
    error = start_error(
        script("""send(error(read(), -32000, "log in first", data={"url": "/login"})); read()""")
    )
    assert (error.kind, error.code, error.data) == ("initialize", -32000, {"url": "/login"})
    assert 'the agent refused initialize: log in first (-32000): {"url":"/login"}' in str(error)


@pytest.mark.parametrize("answer", ["None", "{}", "[]", "7", "'yes'", "{'protocolVersion': 'one'}"])
def test_an_introduction_that_is_nonsense_is_an_error_that_says_so(script: Script, answer: str) -> None:
    error = start_error(script(f"send(result(read(), {answer})); read()"))
    assert error.kind == "initialize"
    assert "answer to initialize cannot be read" in str(error)


@pytest.mark.parametrize("answer", ["None", "{}", "[]", "{'sessionId': 7}", "{'sessionId': None}"])
def test_a_session_that_is_nonsense_is_an_error_that_says_so(script: Script, answer: str) -> None:
    error = new_error(script(f"hello(); send(result(read(), {answer})); read()"))
    assert error.kind == "session"
    assert "answer to session/new cannot be read" in str(error)


def test_a_refused_session_is_quoted_and_the_next_may_work(script: Script) -> None:
    agent = script("""
        hello()
        send(error(read(), -32603, "Internal error", data="the index is locked"))
        send(result(read(), {"sessionId": "s1"}))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            with pytest.raises(AgentError) as caught:
                await remote.new()
            assert caught.value.kind == "session"
            assert "Internal error (-32603): the index is locked" in str(caught.value)
            assert (await remote.new()).id == "s1"

    run(story())


def test_an_error_of_any_shape_is_an_error(script: Script) -> None:
    error = new_error(script("""hello(); send({"id": read()["id"], "error": "no"}); read()"""))
    assert error.kind == "session"
    assert "no" in str(error)


def test_two_sessions_with_one_id_are_not_confused(script: Script) -> None:
    agent = script("""
        hello()
        for _ in range(2):
            send(result(read(), {"sessionId": "same"}))
        prompt = read()
        send(say("mine", "same"), end(prompt))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            first = await remote.new()
            with pytest.raises(AgentError, match="the id of an open one: 'same'"):
                await remote.new()
            assert (await first.prompt("hello")).text == "mine"

    run(story())


def test_sessions_can_be_opened_at_the_same_time_and_answered_in_any_order(script: Script) -> None:
    agent = script("""
        hello()
        one, two = read(), read()
        send(result(two, {"sessionId": "b"}), result(one, {"sessionId": "a"}))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            first, second = await asyncio.gather(remote.new(), remote.new())
            assert (first.id, second.id) == ("a", "b")

    run(story())


def test_the_mode_of_a_new_session_is_known(script: Script) -> None:
    agent = script("""
        hello()
        modes = [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]
        send(result(read(), {"sessionId": "s1", "modes": {"currentModeId": "ask", "availableModes": modes}}))
        prompt = read()
        send(update("current_mode_update", currentModeId="code"), end(prompt))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            assert session.mode == "ask"
            await session.prompt("switch")
            assert session.mode == "code"

    run(story())


def test_a_flood_on_stderr_blocks_nothing_and_its_end_is_kept(script: Script) -> None:
    error = start_error(
        script("""
        sys.stderr.write("noise\\n" * 500_000 + "the last word\\n")
        sys.stderr.flush()
        raise SystemExit(1)
    """)
    )
    assert error.stderr.endswith("noise\nthe last word\n")
    assert len(error.stderr) <= 64 * 1024
    assert len(str(error)) < 2200
