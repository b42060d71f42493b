"""Sessions that are kept under a name: gone on with, or begun anew with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client.stage import Scripted, run
from coupler import AgentError
from coupler.client import kept_sessions
from coupler.client.kept_sessions import fingerprint
from coupler.client.observation import Observation, SessionOpened
from coupler.schema.v1 import EnvVariable, McpServerStdio
from coupler.store.store import Store

Script = Callable[[str], Scripted]

KEEPER = """
    import pathlib
    KEPT = pathlib.Path(sys.argv[1]).with_suffix(".kept")
    CAPABILITIES = %s
    while True:
        frame = read()
        method, params = frame.get("method"), frame.get("params", {})
        known = KEPT.read_text().split() if KEPT.exists() else []
        if method == "initialize":
            send(result(frame, {"protocolVersion": 1, "agentCapabilities": CAPABILITIES}))
        elif method == "session/new":
            id = f"s{len(known) + 1}"
            KEPT.write_text(" ".join([*known, id]))
            send(result(frame, {"sessionId": id}))
        elif method in ("session/load", "session/resume"):
            is_known = params["sessionId"] in known
            send(result(frame, {}) if is_known else error(frame, -32002, "no such session"))
        elif method == "session/delete":
            KEPT.write_text(" ".join(each for each in known if each != params["sessionId"]))
            send(result(frame, {}))
"""
LOADS = KEEPER % '{"loadSession": True}'
RESUMES = KEEPER % '{"loadSession": True, "sessionCapabilities": {"resume": {}, "delete": {}}}'
FORGETS = KEEPER % "{}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(str(tmp_path / "store.db"))
    yield store
    store.close()


async def opened(
    agent: Scripted, store: Store, name: str = "review", mark: str = "same", cwd: Path = Path("/")
) -> SessionOpened:
    """Open the session as one run of a program does; what was observed of it."""
    seen: list[Observation] = []
    async with agent.connect(on_event=seen.append) as remote:
        await kept_sessions.open_kept(remote, name, mark, store=store, cwd=cwd)
    [observation] = [each for each in seen if isinstance(each, SessionOpened)]
    return observation


@pytest.mark.parametrize(("agent", "how"), [(LOADS, "load"), (RESUMES, "resume")])
def test_a_name_is_gone_on_with_the_next_time(script: Script, store: Store, agent: str, how: str) -> None:
    keeper = script(agent)

    async def story() -> None:
        assert await opened(keeper, store) == SessionOpened("s1", "new")
        assert await opened(keeper, store) == SessionOpened("s1", how)  # type: ignore[arg-type]
        assert await opened(keeper, store, name="other") == SessionOpened("s2", "new")

    run(story())


SUMS = """
    import pathlib
    TURNS = pathlib.Path(sys.argv[1]).with_suffix(".turns")
    while True:
        frame = read()
        method = frame.get("method")
        if method == "initialize":
            info = {"name": "hermes-agent", "version": "0.19.0"}
            capabilities = {"loadSession": True}
            send(result(frame, {"protocolVersion": 1, "agentInfo": info, "agentCapabilities": capabilities}))
        elif method == "session/new":
            send(result(frame, {"sessionId": "s1"}))
        elif method == "session/load":
            send(result(frame, {}))
        elif method == "session/prompt":
            turns = len(TURNS.read_text()) + 1 if TURNS.exists() else 1
            TURNS.write_text("." * turns)
            counts = {"inputTokens": 20 * turns, "outputTokens": 5 * turns, "totalTokens": 25 * turns}
            send(say("ok"), end(frame, usage=counts))
"""


def test_each_run_is_charged_its_own_turns_by_an_agent_that_reports_the_sum_of_all(
    script: Script, store: Store
) -> None:
    agent = script(SUMS)

    async def one_run(turns: int) -> list[tuple[int, bool]]:
        async with agent.connect() as remote:
            session = await kept_sessions.open_kept(remote, "review", "same", store=store, cwd="/")
            usages = [(await session.prompt("go")).usage for _ in range(turns)]
            return [(usage.total, usage.is_estimated) for usage in usages]

    async def story() -> list[list[tuple[int, bool]]]:
        return [await one_run(turns) for turns in (2, 0, 1, 2)]

    told = (25, False)
    assert run(story()) == [[told, told], [], [told], [told, told]]


def test_a_name_belongs_to_its_directory(script: Script, store: Store, tmp_path: Path) -> None:
    keeper = script(LOADS)

    async def story() -> None:
        await opened(keeper, store)
        assert await opened(keeper, store, cwd=tmp_path) == SessionOpened("s2", "new")
        (tmp_path / "link").symlink_to("/")
        assert await opened(keeper, store, cwd=tmp_path / "link") == SessionOpened("s1", "load")

    run(story())


def test_other_circumstances_begin_a_new_session_and_say_why(script: Script, store: Store) -> None:
    keeper = script(LOADS)

    async def story() -> None:
        await opened(keeper, store)
        observed = await opened(keeper, store, mark="another")
        assert (observed.session_id, observed.how) == ("s2", "new")
        assert observed.reason is not None and "other circumstances" in observed.reason
        assert await opened(keeper, store, mark="another") == SessionOpened("s2", "load")

    run(story())


def test_a_failed_load_begins_a_new_session_and_says_why(script: Script, store: Store) -> None:
    keeper = script(LOADS)

    async def story() -> None:
        await opened(keeper, store)
        keeper.log.with_suffix(".kept").write_text("")
        observed = await opened(keeper, store)
        assert observed.reason is not None and "no such session" in observed.reason

    run(story())


def test_an_agent_that_loads_nothing_gets_a_new_session_and_that_is_said(
    script: Script, store: Store
) -> None:
    keeper = script(FORGETS)

    async def story() -> None:
        await opened(keeper, store)
        observed = await opened(keeper, store)
        assert (observed.session_id, observed.how) == ("s2", "new")
        assert observed.reason is not None and "no session again" in observed.reason

    run(story())


def test_a_forgotten_name_is_a_new_one_and_the_agent_forgets_too(script: Script, store: Store) -> None:
    keeper = script(RESUMES)

    async def story() -> None:
        await opened(keeper, store)
        async with keeper.connect() as remote:
            assert await kept_sessions.forget(remote, "review", store=store, cwd="/")
            assert not await kept_sessions.forget(remote, "review", store=store, cwd="/")
        assert (await opened(keeper, store)).reason is None

    run(story())
    assert [frame["params"]["sessionId"] for frame in keeper.received_of("session/delete")] == ["s1"]


def test_a_blank_name_is_refused(script: Script, store: Store) -> None:
    keeper = script(LOADS)

    async def story() -> None:
        with pytest.raises(AgentError, match="not blank"):
            await opened(keeper, store, name=" ")

    run(story())


def test_a_fingerprint_tells_command_servers_and_project_apart_and_no_secrets(tmp_path: Path) -> None:
    def server(value: str, command: str = "serve") -> McpServerStdio:
        return McpServerStdio("files", command, [], [EnvVariable("TOKEN", value)])

    base = fingerprint(["agent", "acp"], tmp_path, [server("one")], environ={})
    assert fingerprint(["agent", "acp"], tmp_path, [server("another")], environ={}) == base
    assert fingerprint(["agent"], tmp_path, [server("one")], environ={}) != base
    assert fingerprint(["agent", "acp"], tmp_path, [server("one", "other")], environ={}) != base
    assert fingerprint(["agent", "acp"], tmp_path, environ={}) != base
    (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["edit"]\n')
    assert fingerprint(["agent", "acp"], tmp_path, [server("one")], environ={}) != base
