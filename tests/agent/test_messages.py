"""What an agent says and thinks: pieces, messages, and everything that is not quite text."""

import asyncio

import pytest

from agent.steps import OBEDIENT, end_of, error_of, leave
from coupler import connect
from coupler.events import Text
from raw_client import texts


def ids(updates):
    return [(update["sessionUpdate"], update["messageId"]) for update in updates if "messageId" in update]


def test_pieces_in_a_row_are_one_message(converse):
    client, session = converse("""
        async def agent(turn):
            await turn.say("a")
            await turn.say("b")
    """)

    updates, _ = client.prompt(session)

    assert texts(updates) == "ab"
    assert len(set(ids(updates))) == 1


@pytest.mark.parametrize(
    "between",
    [
        "await turn.think('hm')",
        "await turn.plan('step')",
        "async with turn.tool('Look'): pass",
    ],
)
def test_a_thought_a_plan_or_a_tool_call_ends_a_message(share, between):
    client, session = share(OBEDIENT)

    updates, _ = client.prompt(session, f"await turn.say('before')\n{between}\nawait turn.say('after')")

    first, *_, last = [id for kind, id in ids(updates) if kind == "agent_message_chunk"]
    assert first != last


def test_thoughts_are_messages_of_their_own(converse):
    client, session = converse("""
        async def agent(turn):
            await turn.think("one ")
            await turn.think("two")
            await turn.say("answer")
            await turn.think("three")
    """)

    updates, _ = client.prompt(session)

    one, two, answer, three = ids(updates)
    assert one == two
    assert len({one, answer, three}) == 3
    assert [kind for kind, _ in (one, answer, three)] == [
        "agent_thought_chunk",
        "agent_message_chunk",
        "agent_thought_chunk",
    ]


def test_every_turn_begins_a_new_message(converse):
    client, session = converse("""
        async def agent(turn):
            await turn.say("x")
    """)

    assert ids(client.prompt(session)[0]) != ids(client.prompt(session)[0])


def test_nothing_said_is_nothing_sent(converse):
    client, session = converse("""
        async def agent(turn):
            await turn.say("")
            await turn.think("")
    """)

    assert client.prompt(session)[0] == []


def test_an_image_is_said_like_text(converse):
    client, session = converse("""
        from coupler.schema.v1 import ImageContent, TextContent
        async def agent(turn):
            await turn.say("look: ")
            await turn.say(ImageContent("AAAA", "image/png"))
            await turn.say(TextContent("nice"))
    """)

    updates, _ = client.prompt(session)

    assert [update["content"]["type"] for update in updates] == ["text", "image", "text"]
    assert len(set(ids(updates))) == 1


@pytest.mark.parametrize(
    "call",
    [
        "turn.say(5)",
        "turn.say(None)",
        "turn.say(b'bytes')",
        "turn.say(['a'])",
        "turn.say({'type': 'text', 'text': 'a'})",
        "turn.think(5)",
        "turn.think(None)",
        "turn.plan(5)",
        "turn.plan('a', None)",
        "turn.tool(5).__aenter__()",
        "turn.tool('t', kind='magic').__aenter__()",
        "turn.tool('t', name=5).__aenter__()",
        "turn.tool('t', id=5).__aenter__()",
        "turn.tool('t', path=5).__aenter__()",
        "turn.tool('t', path=b'a').__aenter__()",
        "turn.tool('t', path='a', line=-1).__aenter__()",
        "turn.tool('t', path='a', line='1').__aenter__()",
        "turn.tool('t', path='a', line=1.5).__aenter__()",
        "turn.tool('t', path='a', line=2**40).__aenter__()",
        "call.output(5)",
        "call.output(None)",
        "call.diff(5, None, '')",
        "call.diff('a', 5, '')",
        "call.diff('a', None, 5)",
        "call.locate(5)",
        "call.locate('a', -1)",
        "call.retitle(5)",
        "plan.add(5)",
        "plan.add('b', priority='urgent')",
        "plan.prioritize('a', 'urgent')",
        "plan.start('b')",
        "plan.start(1)",
    ],
)
def test_what_is_no_text_is_an_error_in_the_agents_code_and_never_a_bad_frame(share, call):
    client, session = share(OBEDIENT)

    code = f"""
plan = await turn.plan("a")
async with turn.tool("t") as call:
    await {call}
"""
    updates, answer = client.prompt(session, code)

    assert error_of(answer) == (-32603, "agent_failed")
    assert answer["error"]["message"].startswith(("TypeError: ", "ValueError: ", "IndexError: "))
    assert updates[-1]["status"] == "failed"


def test_kinds_of_text_are_text(converse):
    client, session = converse("""
        import enum
        from pathlib import Path
        class Word(str):
            def __str__(self):
                return "not this"
        class Colour(enum.StrEnum):
            RED = "red"
        async def agent(turn):
            await turn.say(Word("word "))
            await turn.say(Colour.RED)
            await turn.think(Word("thought"))
            plan = await turn.plan(Word("step"))
            await plan.start(Word("step"))
            async with turn.tool(Word("title"), name=Word("name"), path=Path("x.py"), id=Word("id")) as call:
                await call.output(Word("out"))
                await call.diff(Path("y.py"), Word("old"), Word("new"))
                await call.retitle(Colour.RED)
    """)

    updates, answer = client.prompt(session)

    assert answer["result"] == {"stopReason": "end_turn"}
    assert texts(updates) == "word red"


def test_text_that_utf8_cannot_hold_arrives_repaired(converse):
    client, session = converse(r"""
        async def agent(turn):
            await turn.say("cut \ud83d emoji")
            await turn.say("line\nend\u2028\x00\x7f")
    """)

    assert texts(client.prompt(session)[0]) == "cut \ufffd emojiline\nend\u2028\x00\x7f"


def test_ten_megabytes_in_one_piece_arrive_in_pieces_of_one_message(converse):
    client, session = converse("""
        async def agent(turn):
            await turn.say("0123456789" * 1_000_000)
            await turn.think("x" * 100_000)
    """)
    request = client.prompt_request(session, "")
    client.send(request)

    updates, answer = end_of(client, request)

    assert texts(updates) == "0123456789" * 1_000_000
    assert len(set(ids(updates))) == 2
    assert max(len(update["content"]["text"]) for update in updates) < 100_000
    assert max(map(len, client.lines)) < 256 * 1024
    assert answer["result"] == {"stopReason": "end_turn"}


def test_concurrent_pieces_all_arrive(converse):
    client, session = converse("""
        import asyncio
        async def agent(turn):
            await asyncio.gather(*(turn.say(f"{i} ") for i in range(100)))
    """)

    assert sorted(map(int, texts(client.prompt(session)[0]).split())) == list(range(100))


def chunks(updates):
    return [
        (update["sessionUpdate"].split("_")[1], update["content"]["text"])
        for update in updates
        if update["sessionUpdate"].endswith("_chunk")
    ]


class TestClientsThatIgnoreMessageIds:
    """They append each chunk to the last: a blank line comes before a message that follows another."""

    TALKS = """
        from coupler.schema.v1 import TextContent

        async def agent(turn):
            if turn.text == "think":
                await turn.think("one")
                turn.begin_new_message()
                await turn.think("two")
                await turn.say("said")
                return
            await turn.notice("The disk is nearly full.")
            await turn.say("First ")
            await turn.say("answer.")
            await turn.usage(1, 10)
            turn.begin_new_message()
            await turn.say(TextContent("A block."))
            async with turn.tool("Look"):
                pass
            await turn.say("After a call.")
    """

    SHOWN = "The disk is nearly full.{0}First answer.{0}A block.After a call."

    @pytest.mark.parametrize("client", ["acpx", "CodeCompanion.nvim", "toad"])
    def test_the_second_message_begins_with_a_blank_line(self, converse, client):
        client, session = converse(self.TALKS, client=client)
        for _ in range(2):  # a prompt stands between the messages of two turns
            updates, _ = client.prompt(session, "go")
            assert texts(updates) == self.SHOWN.format("\n\n")
            assert len({id for kind, id in ids(updates) if kind == "agent_message_chunk"}) == 4

    def test_thoughts_too_and_nothing_between_a_thought_and_the_answer(self, converse):
        client, session = converse(self.TALKS, client="acpx")
        updates, _ = client.prompt(session, "think")
        assert chunks(updates) == [("thought", "one"), ("thought", "\n\ntwo"), ("message", "said")]

    def test_one_that_honours_them_and_the_journal_have_the_text_as_it_was_said(self, start):
        with start(self.TALKS) as first:
            first.initialize(client="acpx")
            session = first.new_session()
            first.prompt(session, "go")
            leave(first)
        for name, blank in (("Zed", ""), ("acpx", "\n\n")):
            with start(self.TALKS) as client:
                client.initialize(client=name)
                place = {"sessionId": session, "cwd": "/", "mcpServers": []}
                request = client.request("session/load", place)
                client.send(request)
                updates, _ = end_of(client, request)
                assert texts(updates) == self.SHOWN.format(blank)
                leave(client)

    def test_a_client_of_coupler_gets_the_text_as_it_was_said(self):
        async def agent(turn):
            await turn.say("One.")
            turn.begin_new_message()
            await turn.say("Two.")

        async def events():
            async with connect(agent) as remote:
                events = [event async for event in (await remote.new()).prompt("go")]
                return [event.text for event in events if isinstance(event, Text)]

        assert asyncio.run(events()) == ["One.", "Two."]
