"""The floor as an editor sees it: an agent of `coupler serve` whose user has allowed everything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.sessions.asking import ACTOR, ALLOW_ONCE, REJECT_ONCE, Worker
from agent.steps import leave
from raw_client import serve

EVERYTHING = '[permissions]\nallow = ["*", "execute(rm *)", "execute(python -c *)", "edit(/**)"]\n'


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    directory = tmp_path_factory.mktemp("floor").resolve()
    (directory / "app.py").write_text(ACTOR)
    home = directory / "home"
    home.mkdir()
    (home / "coupler.toml").write_text(EVERYTHING)
    (directory / "project" / ".git").mkdir(parents=True)
    with serve(directory / "app.py", env={"COUPLER_HOME": str(home), "HOME": "/root"}) as client:
        client.initialize()
        yield Worker(client, directory / "project")
        leave(client)


@pytest.mark.parametrize(
    "command", ["rm -rf /", "sudo sh -c 'rm -rf ~'", "rm -rf " + "/*" * 1000, "bash <<E\nrm -rf /\nE"]
)
def test_nobody_is_asked_about_plain_destruction(worker: Worker, command: str) -> None:
    outcome = worker.does(kind="execute", command=command)

    assert not outcome.is_permitted
    assert "would delete" in outcome.reason


@pytest.mark.parametrize(
    "command",
    [
        "echo aGVsbG8= | base64 -d | sh",
        "python -c \"import shutil; shutil.rmtree('/')\"",
        "cat > x.sh <<'E'\nrm -rf /\nE\nsh x.sh",
        'rm -rf "$BUILD_OF_NOBODY/"*',
    ],
)
def test_what_is_hidden_is_asked_about_each_time(worker: Worker, command: str) -> None:
    for answer in (ALLOW_ONCE, REJECT_ONCE):
        outcome = worker.does(kind="execute", command=command, answer=answer)

        assert outcome.is_permitted == (answer == ALLOW_ONCE)
        assert {*outcome.names} == {ALLOW_ONCE, REJECT_ONCE}


@pytest.mark.parametrize(
    "command", ["chmod 700 ~/.ssh", "rm -rf node_modules", 'tmp=$(mktemp -d); rm -rf "$tmp"']
)
def test_what_is_ordinary_is_not_asked_about(worker: Worker, command: str) -> None:
    assert worker.does(kind="execute", command=command).is_permitted
