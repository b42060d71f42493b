"""Logging in, over stdio: what is advertised, what is gated, and what a terminal does."""

import re
import sys

import pytest

import forked
from agent.sessions.steps import setup
from agent.steps import error_of
from raw_client import COUPLER, texts

AGENT = """
import os, pathlib, sys
from coupler import Agent, Login, serve

TOKEN = pathlib.Path(__file__).with_name("token")

class Private(Agent):
    logins = [
        Login("key", "Key file", "Makes the key", check=TOKEN.exists, login=TOKEN.touch, logout=TOKEN.unlink),
        Login("terminal", "In a terminal", check=TOKEN.exists, command=["login", "now"]),
    ]

    async def prompt(self, turn):
        await turn.say("welcome")

if sys.argv[1:] == ["login", "now"]:
    TOKEN.touch()
    print("logged in")
else:
    serve(Private)
"""
REQUIRED = (-32000, "auth_required")


@pytest.fixture
def client(start):
    return start(AGENT)


def methods(answer):
    return [method["id"] for method in answer["result"].get("authMethods", ())]


def test_terminal_methods_are_for_clients_that_can_run_them(client, start, app):
    assert methods(client.initialize()) == ["key"]
    able = start(AGENT)
    answer = able.initialize(auth={"terminal": True})
    assert methods(answer) == ["key", "terminal"]
    assert answer["result"]["authMethods"][1]["args"] == ["login", "now"]
    assert answer["result"]["agentCapabilities"]["auth"] == {"logout": {}}


def test_the_same_holds_for_a_start_that_is_remembered(start):
    for _ in range(2):
        assert methods(start(AGENT).initialize(auth={"terminal": True})) == ["key", "terminal"]
        assert methods(start(AGENT).initialize()) == ["key"]


def test_nothing_works_before_the_login_and_everything_after_it(client, tmp_path):
    client.initialize()

    refused = client.call("session/new", setup(None, tmp_path))
    assert error_of(refused) == REQUIRED
    assert "Key file" in refused["error"]["message"]
    assert error_of(client.call("session/load", setup("x", tmp_path))) == REQUIRED

    assert client.call("authenticate", {"methodId": "key"})["result"] == {}
    session = client.new_session(str(tmp_path))
    assert texts(client.prompt(session)[0]) == "welcome"
    assert client.call("authenticate", {"methodId": "key"})["result"] == {}


def test_the_refusal_names_the_command_to_run_and_it_works(client, tmp_path):
    client.initialize(auth={"terminal": True})
    message = client.call("session/new", setup(None, tmp_path))["error"]["message"]
    [command] = re.findall("run `(.*)` in a terminal", message)

    ended = forked.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)

    assert (ended.returncode, ended.stdout) == (0, "logged in\n")
    assert client.new_session(str(tmp_path))


def test_what_is_kept_can_be_looked_through_without_a_login(client):
    client.initialize()

    assert client.call("session/list", {})["result"] == {"sessions": []}
    assert client.call("session/delete", {"sessionId": "x"})["result"] == {}


def test_after_a_logout_it_is_as_before(client, tmp_path):
    client.initialize()
    client.call("authenticate", {"methodId": "key"})
    session = client.new_session(str(tmp_path))

    assert client.call("logout", {})["result"] == {}

    assert error_of(client.prompt(session, "again")[1]) == REQUIRED
    assert error_of(client.call("session/new", setup(None, tmp_path))) == REQUIRED
    client.call("authenticate", {"methodId": "key"})
    assert texts(client.prompt(session)[0]) == "welcome"


@pytest.mark.parametrize("method", ["none", "terminal", ""])
def test_a_method_that_is_not_for_authenticate_is_refused(client, method):
    client.initialize(auth={"terminal": True})

    assert error_of(client.call("authenticate", {"methodId": method})) == (-32602, "invalid_params")


def test_an_agent_without_logins_has_neither_method(start):
    client = start("async def agent(turn): pass")
    answer = client.initialize()

    assert methods(answer) == []
    for method, params in (("authenticate", {"methodId": "x"}), ("logout", {})):
        assert client.call(method, params)["error"]["code"] == -32601


def test_words_after_the_target_run_it_as_a_program(app, tmp_path, start_target):
    path = app(AGENT)

    ended = forked.run([*COUPLER, "serve", str(path), "login", "now"], capture_output=True, text=True)

    assert (ended.returncode, ended.stdout) == (0, "logged in\n")
    client = start_target(path)
    client.initialize()
    assert client.new_session(str(tmp_path))


def test_a_program_that_fails_says_so_by_its_exit_code(app):
    path = app("import sys\nif sys.argv[1:]: sys.exit(7)\nasync def agent(turn): pass")

    assert forked.run([sys.executable, "-m", "coupler", "serve", str(path), "login"]).returncode == 7
