"""New sessions of a target that takes its time to import: there at once, with an agent that comes later."""

import json
import os

import pytest

from agent.steps import error_of, leave
from raw_client import is_answer_to, serve, texts

APP = """
    import os
    from coupler import Agent, Mode, Toggle

    if os.path.exists("broken"):
        raise ValueError("no key")

    class Reviewer(Agent):
        modes = [Mode("ask", "Ask first"), Mode("auto", "Go ahead")][: 1 if os.path.exists("fewer") else 2]
        options = [Toggle("deep")]

        async def prompt(self, turn):
            await turn.say(f"in mode {turn.session.mode}")
"""


class Target:
    """Was started before, and now waits in the import of a package until it is let go on."""

    def __init__(self, path, directory, home):
        self.path = path
        self.directory = directory
        self.gate = directory / "gate"
        self.environment = {"PYTHONPATH": str(directory / "packages"), "PYTEST_CURRENT_TEST": "any"}
        self._records = home / "cache" / "introductions"

    def start(self):
        return serve(self.path, cwd=self.directory, env=self.environment)

    def first_start(self):
        with self.start() as client:
            client.initialize()
            answer = client.call("session/new", {"cwd": str(self.directory), "mcpServers": []})
            leave(client)
        return answer["result"]

    @property
    def record(self):
        (path,) = self._records.glob("*.json")
        return path

    def change_record(self, **fields):
        self.record.write_text(json.dumps({**json.loads(self.record.read_text()), **fields}))

    def delay(self):
        self.change_record(packages=["slow_package"])
        os.mkfifo(self.gate)

    def go_on(self):
        self.gate.write_text("go")

    def new(self, client):
        return client.call("session/new", {"cwd": str(self.directory), "mcpServers": []})


@pytest.fixture
def target(app, tmp_path, coupler_home):
    (tmp_path / "packages").mkdir()
    app(f"open({str(tmp_path / 'gate')!r}).read()", "packages/slow_package.py")
    return Target(app(APP), tmp_path, coupler_home)


def test_a_session_is_there_before_its_agent_and_what_is_asked_waits(target):
    learned = target.first_start()
    target.delay()
    with target.start() as client:
        client.initialize()
        told = target.new(client)["result"]
        session = told["sessionId"]
        assert {**told, "sessionId": ""} == {**learned, "sessionId": ""}

        mode = client.request("session/set_mode", {"sessionId": session, "modeId": "auto"})
        prompt = client.request("session/prompt", {"sessionId": session, "prompt": []})
        client.send(mode, prompt)
        assert "result" in target.new(client)  # others are served meanwhile
        target.go_on()

        assert "result" in client.answer_to(mode)
        *before, answer = client.read_until(lambda frame: is_answer_to(frame, prompt["id"]))
        assert texts([frame["params"]["update"] for frame in before]) == "in mode auto"
        assert answer["result"]["stopReason"] == "end_turn"
        leave(client)


def test_a_cancel_does_not_wait_for_the_agent(target):
    target.first_start()
    target.delay()
    with target.start() as client:
        client.initialize()
        session = target.new(client)["result"]["sessionId"]
        prompt = client.request("session/prompt", {"sessionId": session, "prompt": []})
        client.send(prompt, {"method": "session/cancel", "params": {"sessionId": session}})
        assert client.answer_to(prompt)["result"]["stopReason"] == "cancelled"
        target.go_on()
        assert texts(client.prompt(session)[0]) == "in mode ask"
        leave(client)


def test_a_session_survives_a_kill_before_its_agent_came(target):
    target.first_start()
    target.delay()
    with target.start() as client:
        client.initialize()
        session = target.new(client)["result"]["sessionId"]
        client.process.kill()
        client.wait()
    target.gate.unlink()
    target.change_record(packages=[])
    with target.start() as client:
        client.initialize()
        place = {"cwd": str(target.directory), "mcpServers": []}
        assert "result" in client.call("session/load", {"sessionId": session, **place})
        assert texts(client.prompt(session)[0]) == "in mode ask"
        leave(client)


def test_a_target_that_fails_now_fails_the_prompts(target):
    target.first_start()
    target.delay()
    (target.directory / "broken").touch()
    with target.start() as client:
        client.initialize()
        session = target.new(client)["result"]["sessionId"]
        prompt = client.request("session/prompt", {"sessionId": session, "prompt": []})
        client.send(prompt)
        target.go_on()
        assert error_of(client.answer_to(prompt)) == (-32603, "target_failed")
        again = client.call("session/prompt", {"sessionId": session, "prompt": []})
        assert error_of(again) == (-32603, "target_failed")
        leave(client)


def test_settings_that_have_changed_are_told_and_known_from_then_on(target):
    target.first_start()
    target.delay()
    (target.directory / "fewer").touch()
    with target.start() as client:
        client.initialize()
        session = target.new(client)["result"]["sessionId"]
        target.go_on()
        told = client.read_until(lambda frame: "config_option_update" in str(frame))[-1]
        options = told["params"]["update"]["configOptions"]
        assert [choice["value"] for choice in options[0]["options"]] == ["ask"]
        assert texts(client.prompt(session)[0]) == "in mode ask"
        leave(client)
    assert '"auto"' not in json.loads(target.record.read_text())["forecast"]["told"]


@pytest.mark.parametrize(
    "forecast", [None, 7, {}, {"identity": "x", "store": None, "told": "{", "booleans": False}]
)
def test_a_record_that_somebody_has_edited_costs_only_the_time(target, forecast):
    target.first_start()
    target.change_record(forecast=forecast)
    with target.start() as client:
        client.initialize()
        assert texts(client.prompt(client.new_session())[0]) == "in mode ask"
        leave(client)


def test_a_target_with_logins_has_to_be_asked_first(app, target):
    app("""
        from coupler import Agent, Login
        class Member(Agent):
            logins = [Login("key", "Key", check=lambda: True)]
            async def prompt(self, turn): ...
    """)
    target.first_start()
    assert json.loads(target.record.read_text())["forecast"] is None
