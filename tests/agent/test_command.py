"""Slash commands: how they are declared, and how a prompt invokes them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coupler.agent.agent import Command, Invocation, declared_commands, find_invocation
from coupler.schema.v1 import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from tables import table

COMMANDS = [Command("plan", "Plan"), Command("plan-b", "Plan again"), Command("über", "Go over it")]
LINK = ResourceLink("a.py", "file:///a.py")
IMAGE = ImageContent("AAAA", "image/png")
AUDIO = AudioContent("AAAA", "audio/wav")
EMBEDDED = EmbeddedResource(TextResourceContents("x = 1", "file:///a.py"))


class TestDeclaring:
    def test_clients_are_told_name_description_and_hint(self):
        command = Command("plan", "Plan without changing anything", hint="what to plan")

        assert msgspec.to_builtins(command.as_available()) == {
            "name": "plan",
            "description": "Plan without changing anything",
            "input": {"hint": "what to plan"},
        }

    @pytest.mark.parametrize("hint", [None, ""])
    def test_a_command_without_a_hint_has_no_input(self, hint):
        available = Command("plan", "Plan", hint=hint).as_available()

        assert msgspec.to_builtins(available) == {"name": "plan", "description": "Plan"}

    @table("name", ["plan", "plan-b", "plan_b", "mcp:server:plan", "git/commit", "über", "1"])
    def test_a_name_is_any_one_word(self, name):
        assert Command(name, "Plan").name == name

    @table(
        ("name", "message"),
        [
            ("/plan", "has no slash before it: write 'plan'"),
            ("//plan", "has no slash before it: write 'plan'"),
            ("make plan", "is one word; use '-' in place of the blanks in 'make plan'"),
            (" plan", "is one word"),
            ("plan\n", "is one word"),
            ("pl\u00a0an", "is one word"),
            ("", "is text that is not blank, not ''"),
            (" ", "is text that is not blank, not ' '"),
            (None, "is text that is not blank, not None"),
            (b"plan", "is text that is not blank, not b'plan'"),
            ("pl\ud800an", "has an unpaired surrogate"),
        ],
    )
    def test_other_names_are_refused_with_what_to_do(self, name, message):
        with pytest.raises(ValueError, match="a command's name") as caught:
            Command(name, "Plan")

        assert message in str(caught.value)

    @table("description", ["", "\n", None, "\udc80"])
    def test_a_command_is_described(self, description):
        with pytest.raises(ValueError, match="the description of /plan"):
            Command("plan", description)

    @pytest.mark.parametrize("hint", [" ", 1, "\udc80"])
    def test_a_hint_is_text(self, hint):
        with pytest.raises(ValueError, match="the hint of /plan"):
            Command("plan", "Plan", hint=hint)

    def test_texts_of_a_subclass_become_plain_ones_that_can_be_encoded(self):
        class Text(str):
            pass

        available = Command(Text("plan"), Text("Plan"), hint=Text("what")).as_available()

        assert msgspec.json.encode(available)

    def test_commands_keep_their_order(self):
        assert declared_commands(iter(COMMANDS)) == tuple(COMMANDS)

    @table(
        ("commands", "message"),
        [
            ([Command("a", "A"), Command("a", "B")], "two commands are called 'a'"),
            (["plan"], "commands are a list of Command; make 'plan' one"),
            ("plan", "commands are a list of Command, not 'plan'"),
            (Command("a", "A"), r"commands are a list of Command, not Command\('a'\)"),
        ],
    )
    def test_commands_that_cannot_be_told_apart_or_are_none_are_refused(self, commands, message):
        with pytest.raises(ValueError, match=message):
            declared_commands(commands)


def typed(*blocks):
    return find_invocation(
        COMMANDS, [TextContent(block) if isinstance(block, str) else block for block in blocks]
    )


class TestInvoking:
    @table(
        ("text", "name", "arguments"),
        [
            ("/plan", "plan", ""),
            ("/plan ", "plan", ""),
            ("/plan the release", "plan", "the release"),
            ("/plan\tthe release", "plan", "the release"),
            ("/plan\nfirst\n\nsecond\n", "plan", "first\n\nsecond\n"),
            ("/plan\r\nfirst", "plan", "first"),
            ("/plan\rfirst", "plan", "first"),
            ("/plan  indented", "plan", " indented"),
            ("/plan\n\nfirst", "plan", "\nfirst"),
            ("/plan\u00a0first", "plan", "first"),
            ("  \n/plan first", "plan", "first"),
            ("/plan /plan", "plan", "/plan"),
            ("/plan-b c", "plan-b", "c"),
            ("/über x", "über", "x"),
        ],
    )
    def test_the_name_is_followed_by_the_arguments(self, text, name, arguments):
        assert typed(text) == Invocation(name, arguments)

    @table(
        "text",
        [
            "",
            " ",
            "/",
            "/ plan",
            "//plan",
            "plan",
            "please /plan",
            "/Plan",
            "/planner",
            "/plan-",
            "/plan:x",
            "/x plan",
            "\\/plan",
            "\u200b/plan",
        ],
    )
    def test_anything_else_invokes_nothing(self, text):
        assert typed(text) is None

    @table("before", [[LINK], [IMAGE, AUDIO], [EMBEDDED], [""], [" \n", LINK]])
    def test_what_an_editor_puts_before_the_text_does_not_matter(self, before):
        assert typed(*before, "/plan it") == Invocation("plan", "it")

    @table(
        ("following", "arguments"),
        [
            (["more"], "it\n\nmore"),
            ([LINK], "it\n\n[Resource: a.py](file:///a.py)"),
            ([LINK, " and more"], "it\n\n[Resource: a.py](file:///a.py)\n\n and more"),
            ([EMBEDDED], "it\n\n[Resource: a.py](file:///a.py)\n```\nx = 1\n```"),
            ([IMAGE], "it"),
            (["/plan-b"], "it\n\n/plan-b"),
        ],
    )
    def test_what_follows_is_part_of_the_arguments(self, following, arguments):
        assert typed("/plan it", *following) == Invocation("plan", arguments)

    @pytest.mark.parametrize("text", ["/plan", "/plan "])
    def test_arguments_that_are_a_link_alone_begin_with_it(self, text):
        assert typed(text, LINK) == Invocation("plan", "[Resource: a.py](file:///a.py)")

    def test_only_the_first_text_is_looked_at(self):
        assert typed("first", "/plan") is None

    @pytest.mark.parametrize("blocks", [[], [LINK], [IMAGE]])
    def test_a_prompt_without_text_invokes_nothing(self, blocks):
        assert typed(*blocks) is None

    def test_without_commands_nothing_is_invoked(self):
        assert find_invocation([], [TextContent("/plan")]) is None

    @given(st.sampled_from([command.name for command in COMMANDS]), st.sampled_from(" \n\t"), st.text())
    def test_any_arguments_arrive_as_they_were_typed(self, name, separator, arguments):
        assert typed(f"/{name}{separator}{arguments}") == Invocation(name, arguments)

    @given(st.lists(st.text() | st.sampled_from([LINK, IMAGE, EMBEDDED])))
    def test_whatever_is_typed_only_known_commands_are_found(self, blocks):
        invocation = typed(*blocks)

        assert invocation is None or invocation.name in {command.name for command in COMMANDS}
