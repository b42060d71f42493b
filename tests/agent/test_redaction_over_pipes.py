"""An agent that gives its secret away wherever it can, over real pipes: nobody gets to see it.

Looked at is everything that leaves the process or lasts: both of its outputs, the log file, every byte of the
files it leaves behind, and what the shell commands make of them.
"""

import json
import os
import sys
from pathlib import Path

import pytest

import forked
from agent.steps import asks, leave, text_of, tool_updates
from raw_client import COUPLER, PATIENCE, RawClient, is_answer_to, serve, texts

pytestmark = pytest.mark.slow

SECRET = "Zq7Xk9Vw3Jy5Qz8Wx2Kv"
LEARNED = "Gj4Rn8Tb6Hm2Pd9Lf5Sc"
NAMED = "Uy3Bq7Ne9Ga4Yx6Do8Tz"
OFFERS = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
    "elicitation": {"form": {}, "url": {}},
}

LEAKY = f"""
import asyncio, logging, os, warnings
from coupler import Agent, Command, Mode, Select
from coupler.schema import v1
from coupler.wire.messages import RpcError

SECRETS = [os.environ["LEAKY_TOKEN"], "{LEARNED}", os.environ["LEAKY"]]
ALL = " ".join(SECRETS)

class Leaky(Agent):
    accepts = ("resource",)
    modes = [Mode("plain", ALL, name=ALL), Mode("other", "Other")]
    options = [Select("model", {{"a": ALL}}, description=ALL)]
    commands = [Command("go", ALL, hint=ALL)]

    async def opened(self, session):
        session.add_secret("LEARNED", "{LEARNED}")
        if os.path.exists(os.path.join(session.cwd, "refuse")):
            raise RuntimeError(f"cannot open with {{ALL}}")

    async def mode_changed(self, session):
        raise RuntimeError(f"no mode {{ALL}}")

    async def prompt(self, turn):
        await getattr(self, turn.text.split()[0])(turn)

    async def speak(self, turn):
        await turn.say(ALL)
        await turn.think(ALL)
        await turn.say(v1.TextContent(ALL))
        await turn.say(v1.ResourceLink(ALL, f"https://user:{{SECRETS[0]}}@host/", title=ALL, description=ALL))
        await turn.say(v1.EmbeddedResource(v1.TextResourceContents(ALL, "file:///x")))
        plan = await turn.plan(ALL)
        await plan.add(ALL)
        await turn.notice(ALL, ALL)
        turn.session.set_title(ALL)
        turn.session.set_commands([Command("go", ALL, hint=ALL)])
        turn.session.declare(modes=[Mode("plain", ALL)], options=[Select("model", {{"a": ALL, "b": ALL}})])
        async with turn.compaction() as compaction:
            await compaction.summarize(ALL)

    async def split(self, turn):
        for secret in SECRETS:
            for cut in range(1, len(secret)):
                pieces = secret[:cut], secret[cut:]
                for piece in pieces:
                    await turn.say(piece)
                for piece in pieces:
                    await turn.think(piece)
                async with turn.tool("Split", id=f"{{secret[:2]}}{{cut}}") as call:
                    for piece in pieces:
                        await call.output(piece)
                        await asyncio.sleep(0)
                async with turn.compaction() as compaction:
                    for piece in pieces:
                        await compaction.summarize(piece)

    async def use_tools(self, turn):
        async with turn.tool(ALL, input={{"text": ALL, "deep": [ALL]}}) as call:
            await call.output(ALL)
            await call.output(v1.TextContent(ALL, annotations=v1.Annotations(priority=1)))
            await call.diff("/x", ALL, ALL + ALL)
            await call.retitle(ALL)
            await call.result({{"text": ALL}})
        # So long that its head and its tail are cut somewhere inside of a secret.
        async with turn.tool("Long") as call:
            for start in range(40):
                await call.output("." * (start % 7) + ALL * 20)
        try:
            async with turn.tool("Fails"):
                raise RuntimeError(ALL)
        except RuntimeError:
            pass

    async def ask(self, turn):
        async with turn.tool(ALL, kind="edit", input={{"text": ALL}}) as call:
            await call.output(ALL)
            await call.permitted()
        field = v1.StringPropertySchema(title=ALL, description=ALL, default=ALL)
        schema = v1.ElicitationSchema(title=ALL, description=ALL, properties={{"field": field}})
        await turn.call_editor(v1.CreateFormElicitationRequest(ALL, schema, session_id=turn.session.id))
        url = v1.CreateUrlElicitationRequest(ALL, "id", "https://host", session_id=turn.session.id)
        await turn.call_editor(url)

    async def work(self, turn):
        answer = await turn.call_editor(v1.ReadTextFileRequest(turn.session.id, "/file"))
        assert answer.content in SECRETS, answer
        await turn.call_editor(v1.WriteTextFileRequest(turn.session.id, "/file", ALL))
        variable = v1.EnvVariable("LEAKY_TOKEN", ALL)
        await turn.call_editor(v1.CreateTerminalRequest(turn.session.id, "echo", (ALL,), (variable,)))

    async def log(self, turn):
        log = logging.getLogger("leaky")
        log.warning("a secret: %s", ALL)
        try:
            raise ValueError(ALL)
        except ValueError:
            log.exception("failed")
        warnings.warn(ALL)
        asyncio.get_running_loop().call_exception_handler({{"message": ALL}})

    async def run(self, turn):
        import sys
        program = "import os; print(os.environ['LEAKY_TOKEN'], os.environ['MORE_KEY'], sep='\\\\n')"
        turn.session.env["MORE_KEY"] = "Oi5Kc3Fv8Wp1Ar7Mx4Zb"
        await turn.terminal.run(sys.executable, "-c", program, input="")

    async def fail(self, turn):
        raise RuntimeError(ALL)

    async def refuse(self, turn):
        raise RpcError(-32000, ALL, {{"login": [ALL]}})

    async def hold(self, turn):
        for role in (turn.say, turn.think):
            await role("held: " + SECRETS[0][:10])
        async with turn.tool("Holds") as call:
            await call.output("held: " + SECRETS[0][:10])
"""
SECRETS = (SECRET, LEARNED, NAMED, "Oi5Kc3Fv8Wp1Ar7Mx4Zb")


def traces_in(data: bytes) -> list[str]:
    """Every part of a secret in these bytes that is longer than the three characters which may be shown."""
    text = data.decode("utf-8", "replace")
    return [
        secret[start : start + 4]
        for secret in SECRETS
        for start in range(len(secret) - 3)
        if secret[start : start + 4] in text
    ]


class Case:
    """The leaky agent in its own home, and everything that it leaves."""

    def __init__(self, tmp_path: Path, home: Path) -> None:
        self.home = home
        self.cwd = tmp_path / "project"
        self.cwd.mkdir()
        (self.cwd / "coupler.toml").write_text('[secrets]\nnames = ["LEAKY"]\n')
        self.app = tmp_path / "app.py"
        self.app.write_text(LEAKY)
        self.log = tmp_path / "log"

    def start(self, *options: str) -> RawClient:
        return serve(self.app, *options, env={"LEAKY_TOKEN": SECRET, "LEAKY": NAMED})

    def shell(self, *words: str, **env: str) -> bytes:
        env = {**os.environ, **env}
        done = forked.run([*COUPLER, *words], capture_output=True, timeout=PATIENCE, check=True, env=env)
        return done.stdout + done.stderr

    def files(self) -> bytes:
        """All that lasts; a record of the target's introduction is none of it."""
        kept = [file for file in self.home.rglob("*") if file.is_file() and "introductions" not in file.parts]
        assert any(file.name == "coupler.db" for file in kept)
        return b"".join(file.read_bytes() for file in kept)


@pytest.fixture
def case(tmp_path, coupler_home):
    return Case(tmp_path, coupler_home)


def converse(case, client, *prompts, **offers):
    """Prompt one after the other, and answer everything that the agent asks; returns id, frames, asked."""
    client.initialize(**offers)
    session = client.new_session(str(case.cwd))
    frames, asked = [], []
    for prompt in prompts:
        request = client.prompt_request(session, prompt)
        client.send(request)
        while not is_answer_to(frame := client.read(), request["id"]):
            frames.append(frame)
            if "id" in frame:
                asked.append(frame)
                client.send({"id": frame["id"], "result": answer(frame["method"])})
        frames.append(frame)
    return session, frames, asked


def answer(method):
    return {
        "session/request_permission": {"outcome": {"outcome": "cancelled"}},
        "elicitation/create": {"action": "decline"},
        "fs/read_text_file": {"content": SECRET},
        "terminal/create": {"terminalId": "t"},
    }.get(method, {})


@pytest.mark.parametrize("offers", [OFFERS, {}], ids=["offers all", "offers nothing"])
def test_no_secret_is_shown_by_any_update_error_dialog_log_or_file(case, offers):
    prompts = ["speak", "split", "use_tools", "log", "fail", "refuse", "run"]
    with case.start("--log-file", str(case.log)) as client:
        asks_for_more = ["ask"] if offers else []
        session, frames, _ = converse(case, client, *prompts, *asks_for_more, **offers)
        client.call("session/set_mode", {"sessionId": session, "modeId": "other"})
        client.call("session/set_config_option", {"sessionId": session, "configId": "model", "value": "b"})
        client.call("session/list", {})
        client.call("session/close", {"sessionId": session})
        load = {"sessionId": session, "cwd": str(case.cwd), "mcpServers": []}
        assert "result" in client.call("session/load", load)
        (case.cwd / "refuse").touch()
        assert "error" in client.call("session/new", {"cwd": str(case.cwd), "mcpServers": []})
        leave(client)
        shown = b"".join(client.lines)

    kinds = {
        frame["params"]["update"]["sessionUpdate"] for frame in frames if "update" in frame.get("params", {})
    }
    assert {"agent_message_chunk", "agent_thought_chunk", "tool_call_update", "plan"} <= kinds
    assert shown.count(b"[secret:LEAKY_TOKEN]") > 100
    assert traces_in(shown) == []
    assert traces_in(client.stderr) == []
    assert b"[secret:LEARNED]" in case.log.read_bytes()
    assert traces_in(case.log.read_bytes()) == []
    assert traces_in(case.files()) == []
    for words in (["show"], ["export"], ["export", "--format", "json"]):
        told = case.shell("sessions", *words, session)
        assert b"LEAKY_TOKEN" in told
        assert traces_in(told) == []
    assert traces_in(case.shell("sessions", "list")) == []


def test_every_event_was_among_them_if_the_client_offers_all(case):
    with case.start() as client:
        _, frames, asked = converse(case, client, "speak", "use_tools", "ask", **OFFERS)
        leave(client)

    kinds = {
        frame["params"]["update"]["sessionUpdate"] for frame in frames if "update" in frame.get("params", {})
    }
    assert kinds == {
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "notice",
        "compaction_update",
        "compaction_summary_chunk",
        "session_info_update",
        "available_commands_update",
        "config_option_update",
    } | (kinds & {"current_mode_update"})
    assert [frame["method"] for frame in asked] == [
        "session/request_permission",
        "elicitation/create",
        "elicitation/create",
    ]
    assert all(b"[secret:LEAKY_TOKEN]" in json.dumps(frame).encode() for frame in asked)


def test_functional_payloads_arrive_as_they_are(case):
    with case.start() as client:
        _, frames, asked = converse(case, client, "work", **OFFERS)
        leave(client)

    assert frames[-1]["result"] == {"stopReason": "end_turn"}
    everything = f"{SECRET} {LEARNED} {NAMED}"
    _, write, create = asked
    assert write["params"]["content"] == everything
    assert create["params"]["args"] == [everything]
    assert create["params"]["env"] == [{"name": "LEAKY_TOKEN", "value": everything}]


def test_a_secret_that_the_user_types_reaches_the_agent_but_no_file(case, app):
    case.app.write_text("""
async def agent(turn):
    import os
    assert os.environ["LEAKY_TOKEN"] in turn.text
    await turn.say("yes")
""")
    blocks = [
        {"type": "text", "text": f"use {SECRET} for it"},
        {
            "type": "resource",
            "resource": {"uri": "file:///.env", "text": f"TOKEN={SECRET}\n", "later": [1.50]},
        },
        {"type": "text", "text": "as sent: é 😀", "_meta": {"a": 1}},
    ]
    with case.start() as client:
        client.initialize()
        session = client.new_session(str(case.cwd))
        answer = client.call("session/prompt", {"sessionId": session, "prompt": blocks})
        client.call("session/close", {"sessionId": session})
        request = client.request(
            "session/load", {"sessionId": session, "cwd": str(case.cwd), "mcpServers": []}
        )
        client.send(request)
        frames = client.read_until(lambda frame: is_answer_to(frame, request["id"]))
        leave(client)

    assert answer["result"] == {"stopReason": "end_turn"}
    assert traces_in(b"".join(client.lines)) == []
    assert traces_in(case.files()) == []
    replayed = [
        frame["params"]["update"]["content"]
        for frame in frames
        if frame.get("params", {}).get("update", {}).get("sessionUpdate") == "user_message_chunk"
    ]
    assert replayed == json.loads(json.dumps(blocks).replace(SECRET, "[secret:LEAKY_TOKEN]"))


def test_what_only_looked_like_a_secret_is_shown_whole_and_in_its_place(case):
    with case.start() as client:
        _, frames, _ = converse(case, client, "hold")
        leave(client)

    updates = [frame["params"]["update"] for frame in frames[:-1]]
    said = [update for update in updates if update["sessionUpdate"].endswith("_chunk")]
    held = f"held: {SECRET[:10]}"
    assert texts(updates) == held
    thought = [
        update["content"]["text"] for update in said if update["sessionUpdate"] == "agent_thought_chunk"
    ]
    assert "".join(thought) == held
    order = [
        update["sessionUpdate"] for update in updates if update["sessionUpdate"] != "session_info_update"
    ]
    assert order.index("agent_thought_chunk") > len(texts(updates)) * 0
    assert order.index("tool_call") > max(
        index for index, kind in enumerate(order) if kind == "agent_thought_chunk"
    )
    call = {key: value for update in tool_updates(updates) for key, value in update.items()}
    assert text_of(call) == held


@pytest.mark.parametrize("ending", ["return", "raise ValueError"])
def test_what_is_held_back_when_the_turn_ends_is_shown_before_its_answer_and_when_it_is_loaded(case, ending):
    case.app.write_text(f"""
import os

async def agent(turn):
    await turn.say("last: " + os.environ["LEAKY_TOKEN"][:10])
    {ending}
""")
    with case.start() as client:
        session, frames, _ = converse(case, client, "go")
        client.call("session/close", {"sessionId": session})
        request = client.request(
            "session/load", {"sessionId": session, "cwd": str(case.cwd), "mcpServers": []}
        )
        client.send(request)
        *loaded, _ = client.read_until(lambda frame: is_answer_to(frame, request["id"]))
        leave(client)

    for told in (frames[:-1], loaded):
        updates = [frame["params"]["update"] for frame in told if frame.get("method") == "session/update"]
        assert texts(updates) == f"last: {SECRET[:10]}"


def test_a_title_is_not_cut_in_the_middle_of_a_secret(case):
    with case.start() as client:
        _, frames, _ = converse(case, client, f"hold {'x' * 60} {SECRET}")
        (listed,) = client.call("session/list", {})["result"]["sessions"]
        leave(client)

    assert listed["title"].startswith("hold xxx")
    assert "[secret" in listed["title"]
    assert SECRET[:4] not in listed["title"]
    titles = [frame["params"]["update"].get("title", "") for frame in frames if "params" in frame]
    assert not [title for title in titles if SECRET[:4] in title]


def test_variables_for_one_command_and_those_that_are_set_late_count_too(case):
    case.app.write_text("""
import os, sys

async def agent(turn):
    if turn.text == "run":
        env = {"ONE_TOKEN": "Oi5Kc3Fv8Wp1Ar7Mx4Zb"}
        await turn.terminal.run(sys.executable, "-c", "import os; print(os.environ['ONE_TOKEN'])", env=env)
    os.environ["LATE_TOKEN"] = "Gj4Rn8Tb6Hm2Pd9Lf5" + "Sc"
    if turn.text == "late":
        await turn.say(os.environ["LATE_TOKEN"])
""")
    with case.start() as client:
        _, frames, _ = converse(case, client, "run", "late")
        leave(client)

    updates = [frame["params"]["update"] for frame in frames if "params" in frame]
    assert texts(updates) == "[secret:LATE_TOKEN]"
    assert b"[secret:ONE_TOKEN]" in b"".join(client.lines)
    assert traces_in(b"".join(client.lines) + case.files()) == []


def test_what_was_said_before_a_dialog_is_whole_when_the_user_sees_it(case):
    case.app.write_text("""
import os
from coupler.schema import v1

async def agent(turn):
    secret = os.environ["LEAKY_TOKEN"]
    await turn.say("before " + secret[:9])
    schema = v1.ElicitationSchema(properties={"x": v1.StringPropertySchema()})
    await turn.call_editor(v1.CreateFormElicitationRequest("?", schema, session_id=turn.session.id))
    await turn.say(secret[9:] + " after")
""")
    with case.start() as client:
        client.initialize(**OFFERS)
        session = client.new_session(str(case.cwd))
        request = client.prompt_request(session, "go")
        client.send(request)
        *before, question = client.read_until(asks("elicitation/create"))
        client.send({"id": question["id"], "result": {"action": "decline"}})
        *after, _ = client.read_until(lambda frame: is_answer_to(frame, request["id"]))
        leave(client)

    first, second = ([frame["params"]["update"] for frame in frames] for frames in (before, after))
    assert texts(first) == f"before {SECRET[:9]}"
    assert texts(second) == "[secret:LEAKY_TOKEN] after"
    ids = [update["messageId"] for update in (*first, *second) if "messageId" in update]
    assert len(set(ids)) == 2, "so that no reader joins what the dialog stands between"


ENDINGS = {
    "cancel": lambda client, session: client.send(
        {"method": "session/cancel", "params": {"sessionId": session}}
    ),
    "end of input": lambda client, session: client.close_stdin(),
    "crash": lambda client, session: client.process.kill(),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("cut", [3, 8, 10, 11, 19])
def test_a_turn_that_is_cut_off_in_the_middle_of_a_secret_shows_and_keeps_half_of_it_at_most(
    case, ending, cut
):
    case.app.write_text(f"""
import asyncio, os

async def agent(turn):
    await turn.say("last: " + os.environ["LEAKY_TOKEN"][:{cut}])
    async with turn.tool("Tool", id="tool") as call:
        await call.output("last: " + os.environ["LEAKY_TOKEN"][:{cut}])
        turn.session.set_title("ready")
        await asyncio.Event().wait()
""")
    with case.start() as client:
        client.initialize()
        session = client.new_session(str(case.cwd))
        client.send(client.prompt_request(session, "go"))
        client.read_until(
            lambda frame: frame.get("params", {}).get("update", {}).get("title") == "ready",
        )
        ENDINGS[ending](client, session)
        if ending == "cancel":
            leave(client)
        client.wait()
    shown = b"".join(client.lines) + case.files() + case.shell("sessions", "export", session)

    assert SECRET[:11].encode() not in shown
    if cut <= 10 and ending != "crash":
        assert f"last: {SECRET[:cut]}".encode() in case.shell("sessions", "show", session)


def test_whatever_stands_between_two_parts_of_a_secret_nobody_sees_both(case):
    case.app.write_text("""
import os
from coupler.schema import v1

async def agent(turn):
    secret = os.environ["LEAKY_TOKEN"]
    for cut in range(1, len(secret)):
        for number in range(8):
            await turn.say(secret[:cut])
            match number:
                case 0:
                    await turn.think(secret[:cut])
                case 1:
                    async with turn.tool("Tool") as call:
                        await call.output(secret[:cut])
                        await call.diff("/x", "a", "b")
                        await call.output(secret[cut:])
                case 2:
                    await turn.plan("something")
                case 3:
                    await turn.usage(1, 2)
                case 4:
                    await turn.say(v1.ImageContent("", "image/png"))
                case 5:
                    turn.session.set_title("title")
                case 6:
                    async with turn.compaction():
                        pass
                case 7:
                    await turn.call_editor(v1.CreateUrlElicitationRequest(
                        "?", "id", "https://host", session_id=turn.session.id))
            await turn.say(secret[cut:])
            if number == 0:
                await turn.think(secret[cut:])
            await turn.say(" ")
""")
    with case.start() as client:
        session, _, asked = converse(case, client, "go", **OFFERS)
        leave(client)

    assert len(asked) == len(SECRET) - 1
    assert b"".join(client.lines).count(b"[secret:LEAKY_TOKEN]") >= 8 * (len(SECRET) - 1)
    kept = case.files() + case.shell("sessions", "export", "--format", "json", session)
    # Of the second half there is nowhere a trace.
    assert [trace for trace in traces_in(b"".join(client.lines) + kept) if trace in SECRET[10:]] == []


def test_a_target_that_cannot_be_loaded_shows_none(case):
    case.app.write_text("import os\nraise RuntimeError(os.environ['LEAKY_TOKEN'])\n")
    with case.start() as client:
        client.initialize()
        answer = client.call("session/new", {"cwd": str(case.cwd), "mcpServers": []})
        leave(client)

    assert "[secret:LEAKY_TOKEN]" in answer["error"]["message"]
    assert b"RuntimeError: [secret:LEAKY_TOKEN]" in client.stderr
    assert traces_in(client.stderr + b"".join(client.lines)) == []


LATE = """
import os
from coupler.schema import v1

async def agent(turn):
    secret = os.environ["PLAIN"]
    turn.session.set_title(f"title {secret}")
    turn.session.state = {"data": [secret], "secret": secret}
    await turn.say(f"said {secret}")
    await turn.think(f"thought {secret}")
    await turn.say(v1.EmbeddedResource(v1.TextResourceContents(secret, "file:///x")))
    await turn.plan(f"plan {secret}")
    await turn.notice(f"notice {secret}", secret)
    async with turn.compaction() as compaction:
        await compaction.summarize(f"summary {secret}")
    async with turn.tool(f"tool {secret}", input={"in": secret}) as call:
        await call.output("x" * 190 + secret)
        await call.diff("/x", f"old {secret}", f"new {secret}")
        await call.result({"out": secret})
    raise RuntimeError(f"error {secret}")
"""


@pytest.mark.parametrize("known", [{"LATE_TOKEN": SECRET}, {"LEAKY": SECRET}], ids=["environment", "named"])
def test_what_was_kept_before_it_was_known_as_secret_is_not_shown_by_the_shell(case, known):
    case.app.write_text(LATE)
    with serve(case.app, env={"PLAIN": SECRET}) as client:
        session, _, _ = converse(case, client, f"prompt {SECRET}", **OFFERS)
        leave(client)
    assert SECRET.encode() in case.files()

    for words in (
        ("list",),
        ("list", "--json"),
        ("show", session),
        ("show", "--full", session),
        ("export", session),
        ("export", "--format", "json", session),
    ):
        assert SECRET.encode() in case.shell("sessions", *words), words
        told = case.shell("sessions", *words, **known)
        assert f"[secret:{next(iter(known))}]".encode() in told, words
        assert traces_in(told) == [], words
    exported = json.loads(case.shell("sessions", "export", "--format", "json", session, **known))
    assert exported["session"]["id"] == session
    assert exported["session"]["cwd"] == str(case.cwd)
    assert exported["turns"][0]["end"]["outcome"] == "failed"


def test_logs_show_none_whoever_brought_the_handler_and_whenever(case):
    case.app.write_text("""
import logging, os, sys, threading, warnings

SECRET = os.environ["LEAKY_TOKEN"]
logging.basicConfig(force=True, format="own %(message)s")
library = logging.getLogger("library")
library.addHandler(logging.StreamHandler())
library.propagate = False

class Careless:
    def __del__(self):
        raise RuntimeError(f"deleted {SECRET}")

def thread():
    raise RuntimeError(f"thread {SECRET}")

async def agent(turn):
    match turn.text:
        case "log":
            logging.warning("root %s", SECRET)
            library.warning("library %s", SECRET)
            warnings.warn(f"warned {SECRET}")
        case "format":
            logging.root.handlers[0].setFormatter(logging.Formatter("other %(message)s"))
            logging.warning("%s", SECRET)
        case "last resort":
            logging.root.handlers.clear()
            logging.getLogger("other").warning("last %s", SECRET)
            logging.warning("anew %s", SECRET)
        case "raise":
            worker = threading.Thread(target=thread)
            worker.start()
            worker.join()
            Careless()
            sys.excepthook(ValueError, ValueError(f"uncaught {SECRET}"), None)
""")
    with case.start() as client:
        converse(case, client, "log", "format", "last resort", "raise")
        leave(client)

    mark = "[secret:LEAKY_TOKEN]"
    told = client.stderr.decode()
    for line in (
        f"own root {mark}",
        f"library {mark}",
        f"UserWarning: warned {mark}",
        f"other {mark}",
        f"last {mark}",
        f"anew {mark}",
        f"RuntimeError: thread {mark}",
        f"RuntimeError: deleted {mark}",
        f"ValueError: uncaught {mark}",
    ):
        assert line in told
    assert traces_in(client.stderr) == []


def test_a_plain_function_can_add_a_secret(case):
    case.app.write_text(f"""
def agent(turn):
    turn.session.add_secret("LEARNED", "{LEARNED}")
    turn.say("{LEARNED[:7]}")
    turn.say("{LEARNED[7:]}")
""")
    with case.start() as client:
        _, frames, _ = converse(case, client, "go")
        leave(client)

    assert texts([frame["params"]["update"] for frame in frames[:-1]]) == "[secret:LEARNED]"


def test_nothing_of_it_is_imported_before_the_first_answer(case):
    case.app.write_text("""
import sys

async def agent(turn):
    await turn.say("ok")
""")
    program = (
        "import os, runpy, sys\n"
        "write = os.write\n"
        "def spy(fd, data):\n"
        "    if b'protocolVersion' in bytes(data):\n"
        "        state = 'loaded' if 'coupler.secrets' in sys.modules else 'clean'\n"
        "        print(state, file=sys.stderr, flush=True)\n"
        "    return write(fd, data)\n"
        "os.write = spy\n"
        f"sys.argv = ['coupler', 'serve', {str(case.app)!r}]\n"
        "runpy.run_module('coupler', run_name='__main__')\n"
    )
    for _ in range(2):
        env = {"LEAKY_TOKEN": SECRET, "LEAKY": NAMED}
        with RawClient(sys.executable, "-c", program, env=env) as client:
            client.initialize()
            client.prompt(client.new_session(str(case.cwd)), "go")
            leave(client)
        assert client.stderr == b"clean\n"
