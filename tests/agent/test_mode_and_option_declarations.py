"""Modes and options as agents declare them, and as clients are told of them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coupler.agent.agent import Choice, Group, Mode, Select, Toggle, declared_modes, declared_options
from coupler.fields import readable
from tables import table


class Text(str):
    """What frameworks hand over as text."""


def on_the_wire(struct):
    return msgspec.json.decode(msgspec.json.encode(struct))


def told(option, value=None):
    return on_the_wire(option.as_option(option.default if value is None else value))


class TestNames:
    @table(
        ("id", "name"),
        [
            ("ask", "Ask"),
            ("accept_edits", "Accept edits"),
            ("accept-edits", "Accept edits"),
            ("_private", "Private"),
            ("Ask me", "Ask me"),
            ("éditer", "Éditer"),
            ("gpt-4o", "gpt-4o"),
            ("ollama:qwen-coder", "ollama:qwen-coder"),
            ("org/model-large", "org/model-large"),
            ("level_2", "level_2"),
            ("_", "_"),
            ("--", "--"),
        ],
    )
    def test_an_id_is_made_readable(self, id, name):
        assert readable(id) == name
        assert Mode(id).name == name
        assert Toggle(id).name == name
        assert Choice(id).name == name

    @given(st.text(min_size=1).filter(str.strip))
    def test_no_name_is_blank(self, id):
        assert readable(id).strip()


BAD_TEXTS = [
    ("", "is text that is not blank"),
    (" \n", "is text that is not blank"),
    (None, "is text that is not blank"),
    (1, "is text that is not blank"),
    (b"ask", "is text that is not blank"),
    (["ask"], "is text that is not blank"),
    ("a\ud83d", "has an unpaired surrogate, take it out"),
    ("\ude00b", "has an unpaired surrogate, take it out"),
]


class TestIds:
    @table(("id", "message"), BAD_TEXTS)
    @table(
        ("declare", "what"),
        [
            (Mode, "a mode's id"),
            (lambda text: Select(text, ["a"]), "an option's id"),
            (Toggle, "an option's id"),
            (Choice, "the value of a choice"),
            (lambda text: Group(text, ["a"]), "the name of a group"),
        ],
    )
    def test_an_id_is_text_that_a_client_can_send_back(self, declare, what, id, message):
        with pytest.raises(ValueError, match=f"{what} {message}"):
            declare(id)

    @table("name", ["", " ", 1, "\ud83d"])
    @table(
        ("declare", "what"),
        [
            (lambda name: Mode("x", name=name), "the name of the mode 'x'"),
            (lambda name: Select("x", ["a"], name=name), "the name of the option 'x'"),
            (lambda name: Toggle("x", name=name), "the name of the option 'x'"),
            (lambda name: Choice("x", name), "the name of the choice 'x'"),
            (lambda name: Group("x", ["a"], id=name), "the id of the group 'x'"),
            (lambda name: Select("x", {"a": name}), "a name in the option 'x'"),
        ],
    )
    def test_a_name_that_is_given_is_text_too(self, declare, what, name):
        with pytest.raises(ValueError, match=what):
            declare(name)

    @table("text", [" ", 1, "\ud83d"])
    @table(
        ("declare", "what"),
        [
            (lambda text: Mode("x", text), "the description of the mode 'x'"),
            (lambda text: Select("x", ["a"], description=text), "the description of the option 'x'"),
            (lambda text: Toggle("x", description=text), "the description of the option 'x'"),
            (lambda text: Choice("x", "X", text), "the description of the choice 'x'"),
            (lambda text: Select("x", ["a"], category=text), "the category of the option 'x'"),
            (lambda text: Toggle("x", category=text), "the category of the option 'x'"),
        ],
    )
    def test_a_description_or_category_that_is_given_is_text_too(self, declare, what, text):
        with pytest.raises(ValueError, match=what):
            declare(text)

    def test_texts_of_a_subclass_become_plain_ones_that_can_be_encoded(self):
        text = Text("x")
        mode = Mode(text, text, name=text)
        groups = [Group(text, [Choice(text, text, text)], id=text)]
        select = Select(text, groups, default=text, name=text, description=text, category=text)
        toggle = Toggle(text, name=text, description=text, category=text)

        for struct in (mode.as_mode(), select.as_option(select.default), toggle.as_option(True)):
            assert msgspec.json.encode(struct)


class TestMode:
    def test_clients_are_told_id_name_and_description(self):
        assert on_the_wire(Mode("ask", "Ask before every change").as_mode()) == {
            "id": "ask",
            "name": "Ask",
            "description": "Ask before every change",
        }

    @pytest.mark.parametrize("description", [None, ""])
    def test_a_description_can_be_left_out(self, description):
        assert on_the_wire(Mode("a", description, name="Always").as_mode()) == {
            "id": "a",
            "name": "Always",
        }

    @table(
        ("modes", "message"),
        [
            ([Mode("a"), Mode("b"), Mode("a")], "two modes are called 'a': rename one of them"),
            ([Mode("a"), "b"], "modes are a list of Mode; make 'b' one"),
            ([Toggle("a")], r"modes are a list of Mode; make Toggle\('a'\) one"),
            ("ab", "modes are a list of Mode, not 'ab'"),
            (Mode("a"), r"modes are a list of Mode, not Mode\('a'\)"),
            (3, "modes are a list of Mode, not 3"),
        ],
    )
    def test_modes_that_cannot_be_told_apart_or_are_none_are_refused(self, modes, message):
        with pytest.raises(ValueError, match=message):
            declared_modes(modes)


class TestSelect:
    def test_a_mapping_names_the_choices(self):
        select = Select(
            "model", {"fast": "Fast one", "smart": "Smart one"}, default="smart", category="model"
        )

        assert told(select) == {
            "type": "select",
            "id": "model",
            "name": "Model",
            "currentValue": "smart",
            "options": [{"value": "fast", "name": "Fast one"}, {"value": "smart", "name": "Smart one"}],
            "category": "model",
        }

    def test_strings_are_choices_and_the_first_is_the_default(self):
        select = Select("effort", ["low", "high"], name="How hard", description="How long to think")

        assert told(select) == {
            "type": "select",
            "id": "effort",
            "name": "How hard",
            "description": "How long to think",
            "currentValue": "low",
            "options": [{"value": "low", "name": "Low"}, {"value": "high", "name": "High"}],
        }

    def test_choices_and_strings_go_together(self):
        select = Select("effort", iter(["low", Choice("high", "Very high", "slow")]))

        assert told(select, "high")["options"] == [
            {"value": "low", "name": "Low"},
            {"value": "high", "name": "Very high", "description": "slow"},
        ]

    def test_groups_hold_choices_in_every_form(self):
        select = Select(
            "model",
            [
                Group("Anthropic", [Choice("opus", "Opus", "the big one")]),
                Group("Open AI & others", {"gpt-5": "GPT 5"}),
                Group("Yours", ("local",), id="own"),
            ],
            default="gpt-5",
        )

        assert told(select)["currentValue"] == "gpt-5"
        assert told(select)["options"] == [
            {
                "group": "anthropic",
                "name": "Anthropic",
                "options": [{"value": "opus", "name": "Opus", "description": "the big one"}],
            },
            {
                "group": "open-ai-others",
                "name": "Open AI & others",
                "options": [{"value": "gpt-5", "name": "GPT 5"}],
            },
            {"group": "own", "name": "Yours", "options": [{"value": "local", "name": "Local"}]},
        ]
        assert select.values == ("opus", "gpt-5", "local")

    def test_a_group_whose_name_has_no_letters_is_its_own_id(self):
        assert Group("★★★", ["a"]).id == "★★★"

    @table(
        ("choices", "message"),
        [
            ([], "the option 'x' has no choices: give it at least one, or leave it out"),
            ({}, "the option 'x' has no choices"),
            (["a", "b", "a"], "two choices of the option 'x' are called 'a'"),
            (["a", Choice("a")], "two choices of the option 'x' are called 'a'"),
            (["a", Group("G", ["b"])], "the option 'x' has choices beside groups"),
            ([Group("G", ["b"]), Choice("a")], "the option 'x' has choices beside groups"),
            ([Group("G", ["b"]), 5], "the option 'x' has choices beside groups"),
            ([Group("G", ["a"]), Group("H", ["a"])], "two choices of the option 'x' are called 'a'"),
            ([Group("G", ["a"]), Group("g!", ["b"])], "two groups of the option 'x' are called 'g'"),
            ("low", "the option 'x' has a list of choices or a mapping of them to names, not 'low'"),
            (5, "the option 'x' has a list of choices or a mapping of them to names, not 5"),
            (None, "the option 'x' has a list of choices or a mapping of them to names, not None"),
            ([5], r"the option 'x' has choices that are strings or made with Choice\(…\), not 5"),
            ([("a", "A")], r"strings or made with Choice\(…\), not \('a', 'A'\)"),
            ({5: "a"}, "the value of a choice is text"),
            ([""], "the value of a choice is text"),
        ],
    )
    def test_choices_that_make_no_sense_are_refused_with_what_to_do(self, choices, message):
        with pytest.raises(ValueError, match=message):
            Select("x", choices)

    @table(
        ("choices", "message"),
        [
            ([], "the group 'G' has no choices"),
            (["a", "a"], "two choices of the group 'G' are called 'a'"),
            ([Group("H", ["a"])], r"the group 'G' has choices that are strings .*, not Group\('H'\)"),
            ("abc", "the group 'G' has a list of choices"),
        ],
    )
    def test_a_group_has_choices_and_no_groups(self, choices, message):
        with pytest.raises(ValueError, match=message):
            Group("G", choices)

    @table("default", ["c", "A", "", True, 1])
    def test_the_default_is_one_of_the_choices(self, default):
        with pytest.raises(ValueError, match=r"the default of the option 'x' is one of its choices \(a, b\)"):
            Select("x", ["a", "b"], default=default)

    @table("value", ["c", True, 1, None, ["a"], {}])
    def test_it_offers_its_values_and_nothing_else(self, value):
        select = Select("x", ["a", "b"])

        assert select.offers("a") and select.offers("b")
        assert not select.offers(value)


class TestToggle:
    def test_it_is_a_boolean_option(self):
        toggle = Toggle("web", default=True, description="May search the web", category="_search")

        assert told(toggle) == {
            "type": "boolean",
            "id": "web",
            "name": "Web",
            "description": "May search the web",
            "currentValue": True,
            "category": "_search",
        }

    @pytest.mark.parametrize(("default", "value"), [(True, "on"), (False, "off")])
    def test_it_can_be_a_select_between_on_and_off(self, default, value):
        toggle = Toggle("web", default=default, name="The web", description="Search", category="_search")

        assert told(toggle.as_select()) == {
            "type": "select",
            "id": "web",
            "name": "The web",
            "description": "Search",
            "currentValue": value,
            "options": [{"value": "on", "name": "On"}, {"value": "off", "name": "Off"}],
            "category": "_search",
        }

    def test_it_is_off_unless_said_otherwise(self):
        assert Toggle("web").default is False

    @table("default", ["on", 1, 0, None])
    def test_the_default_is_true_or_false(self, default):
        with pytest.raises(ValueError, match="the default of the option 'web' is True or False"):
            Toggle("web", default=default)

    @table("value", ["on", "true", 1, 0, None, []])
    def test_it_offers_true_and_false_and_nothing_else(self, value):
        assert Toggle("web").offers(True) and Toggle("web").offers(False)
        assert not Toggle("web").offers(value)


@table(
    ("options", "message"),
    [
        ([Toggle("a"), Select("a", ["b"])], "two options are called 'a'"),
        (["a"], "options are a list of Select or Toggle; make 'a' one"),
        ([Choice("a")], r"options are a list of Select or Toggle; make Choice\('a'\) one"),
        ({"a": Toggle("a")}, "options are a list of Select or Toggle; make 'a' one"),
        (Select("a", ["b"]), r"options are a list of Select or Toggle, not Select\('a'\)"),
    ],
)
def test_options_that_cannot_be_told_apart_or_are_none_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        declared_options(options)
