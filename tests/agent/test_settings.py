"""A session's settings: current values are always offered ones, and the mode and its option are one."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import UNSET

from coupler.agent.agent import Choice, Group, Mode, Select, Toggle
from coupler.agent.session import SessionSettings, SettingError
from coupler.schema.decoding import decode
from coupler.schema.v1 import SetSessionConfigOptionResponse
from tables import table

MODES = [Mode("ask", "Ask before every change"), Mode("auto")]
MODEL = Select("model", {"fast": "Fast", "smart": "Smart"}, category="model")
GROUPED = Select(
    "voice", [Group("High", ["soprano", "alto"]), Group("Low", [Choice("bass")])], default="bass"
)
WEB = Toggle("web", default=True)


def make(modes=MODES, options=(MODEL, GROUPED, WEB), *, booleans=True):
    return SessionSettings(modes, options, booleans=booleans)


def state(settings):
    return settings.mode, settings.values, settings.as_modes(), settings.as_options()


def on_the_wire(structs):
    return msgspec.json.decode(msgspec.json.encode(structs))


def options_of(settings):
    """The options as a client reads them."""
    options = settings.as_options()
    return [] if options is UNSET else on_the_wire(options)


def values_in(option):
    if option["type"] == "boolean":
        return [True, False]
    return [item["value"] for each in option["options"] for item in each.get("options", [each])]


class TestBeginning:
    def test_a_session_begins_with_the_first_mode_and_the_defaults(self):
        settings = make()

        assert settings.mode == "ask"
        assert settings.values == {"model": "fast", "voice": "bass", "web": True}
        assert settings["model"] == "fast"
        assert settings["web"] is True

    def test_an_option_that_is_not_there_is_a_key_error_that_names_those_that_are(self):
        with pytest.raises(KeyError, match="there is no option 'x'; there are mode, model, voice, web"):
            make()["x"]

    def test_without_modes_and_options_there_is_nothing_to_tell(self):
        settings = make([], [])

        assert settings.mode is None
        assert settings.values == {}
        assert settings.as_modes() is UNSET
        assert settings.as_options() is UNSET
        assert settings.saved() == {"mode": None, "options": {}}

    def test_options_without_modes_are_told_alone(self):
        settings = make([])

        assert settings.as_modes() is UNSET
        assert [option["id"] for option in options_of(settings)] == ["model", "voice", "web"]

    def test_the_declared_lists_belong_to_the_agent_and_the_values_to_the_session(self):
        modes, options = [*MODES], [MODEL]
        one, other = make(modes, options), make(modes, options)
        one.set("model", "smart")
        modes.clear()
        options.clear()

        assert (one["model"], other["model"]) == ("smart", "fast")
        assert one.mode == other.mode == "ask"

    def test_the_values_handed_out_change_nothing(self):
        settings = make()
        dict.update(settings.values, model="other")

        assert settings["model"] == "fast"


class TestTelling:
    def test_modes_are_told_with_the_current_one(self):
        settings = make()
        settings.set_mode("auto")

        assert on_the_wire(settings.as_modes()) == {
            "currentModeId": "auto",
            "availableModes": [
                {"id": "ask", "name": "Ask", "description": "Ask before every change"},
                {"id": "auto", "name": "Auto"},
            ],
        }

    def test_the_modes_are_the_first_option(self):
        settings = make()
        settings.set_mode("auto")

        assert options_of(settings)[0] == {
            "type": "select",
            "id": "mode",
            "name": "Mode",
            "category": "mode",
            "currentValue": "auto",
            "options": [
                {"value": "ask", "name": "Ask", "description": "Ask before every change"},
                {"value": "auto", "name": "Auto"},
            ],
        }

    def test_all_options_are_told_in_their_order(self):
        assert [(option["id"], option["type"], option["currentValue"]) for option in options_of(make())] == [
            ("mode", "select", "ask"),
            ("model", "select", "fast"),
            ("voice", "select", "bass"),
            ("web", "boolean", True),
        ]

    @pytest.mark.parametrize(("value", "told"), [(True, "on"), (False, "off")])
    def test_a_client_without_booleans_is_told_of_a_select(self, value, told):
        settings = make(booleans=False)
        settings.set("web", value)

        web = options_of(settings)[-1]

        assert (web["type"], web["currentValue"], values_in(web)) == ("select", told, ["on", "off"])
        assert settings["web"] is value


class TestDeclarationsTogether:
    def test_modes_make_their_option_by_themselves(self):
        with pytest.raises(
            ValueError, match="the option 'mode' is made of the agent's modes: take yours out"
        ):
            make(MODES, [Toggle("mode")])

    def test_without_modes_an_option_may_be_called_mode(self):
        settings = make([], [Select("mode", ["a", "b"])])

        assert settings.mode is None
        assert settings.values == {"mode": "a"}
        assert settings.set_by_client("mode", "b")
        assert settings.saved() == {"mode": None, "options": {"mode": "b"}}

    @table(
        ("modes", "options"),
        [([Mode("a"), Mode("a")], []), ([], [Toggle("a"), Toggle("a")]), (["a"], []), ([], ["a"])],
    )
    def test_what_cannot_be_told_apart_or_is_none_is_refused(self, modes, options):
        with pytest.raises(ValueError, match=r"two|are a list of"):
            make(modes, options)


class TestSetting:
    @table(
        ("option", "value"),
        [("model", "smart"), ("voice", "soprano"), ("web", False)],
    )
    @table("how", ["set", "set_by_client"])
    def test_a_change_is_said_to_be_one_and_the_same_value_again_is_not(self, how, option, value):
        settings = make()

        assert getattr(settings, how)(option, value) is True
        assert settings[option] == value
        assert getattr(settings, how)(option, value) is False
        assert settings[option] == value

    def test_the_mode_and_its_option_are_one(self):
        settings = make()

        assert settings.set_mode("auto") is True
        assert options_of(settings)[0]["currentValue"] == "auto"
        assert settings.set_by_client("mode", "ask") is True
        assert settings.mode == settings.as_modes().current_mode_id == "ask"
        assert settings.set_mode("ask") is False

    @pytest.mark.parametrize(("value", "taken"), [("off", False), ("on", True)])
    def test_a_client_without_booleans_says_on_or_off(self, value, taken):
        settings = make(booleans=False)
        settings.set("web", not taken)

        assert settings.set_by_client("web", value) is True
        assert settings["web"] is taken
        assert settings.set_by_client("web", value) is False

    @table("id", ["x", "", "Ask", True, None, ["ask"]])
    def test_an_unknown_mode_is_refused_with_those_there_are(self, id):
        settings = make()
        before = state(settings)

        with pytest.raises(SettingError, match=r"there is no mode .*; there are ask, auto"):
            settings.set_mode(id)
        assert state(settings) == before

    def test_an_agent_without_modes_says_so(self):
        with pytest.raises(SettingError, match="there is no mode 'ask': the agent has no modes"):
            make([]).set_mode("ask")

    @table(
        ("option", "value", "message"),
        [
            ("x", "fast", "there is no option 'x'; there are mode, model, voice, web"),
            (["x"], "fast", "there is no option"),
            ("model", "slow", "the option 'model' has no value 'slow'; it has fast, smart"),
            ("model", "Fast", "the option 'model' has no value 'Fast'"),
            ("model", True, "the option 'model' has no value True"),
            ("model", None, "the option 'model' has no value None"),
            ("voice", "Low", "the option 'voice' has no value 'Low'; it has soprano, alto, bass"),
            ("voice", "low", "the option 'voice' has no value 'low'"),
            ("web", "on", "the option 'web' is a boolean, true or false, not 'on'"),
            ("web", "true", "the option 'web' is a boolean"),
            ("web", 1, "the option 'web' is a boolean"),
        ],
    )
    @table("how", ["set", "set_by_client"])
    def test_what_is_not_offered_is_refused_and_nothing_changes(self, how, option, value, message):
        settings = make()
        before = state(settings)

        with pytest.raises(SettingError) as caught:
            getattr(settings, how)(option, value)

        assert message in str(caught.value)
        assert state(settings) == before

    @pytest.mark.parametrize("value", ["x", "", True])
    def test_a_client_can_choose_no_other_mode_than_those_there_are(self, value):
        settings = make()
        before = state(settings)

        with pytest.raises(SettingError, match=r"the option 'mode' has no value .*; it has ask, auto"):
            settings.set_by_client("mode", value)
        assert state(settings) == before

    @pytest.mark.parametrize("value", ["auto", "x"])
    def test_agents_set_the_mode_as_a_mode(self, value):
        settings = make()

        with pytest.raises(SettingError, match="change it with set_mode"):
            settings.set("mode", value)
        assert settings.mode == "ask"

    @table("value", [True, False, "true", "On", ""])
    def test_a_client_without_booleans_can_say_nothing_but_on_and_off(self, value):
        settings = make(booleans=False)

        with pytest.raises(SettingError, match=r"the option 'web' has no value .*; it has on, off"):
            settings.set_by_client("web", value)
        assert settings["web"] is True

    @pytest.mark.parametrize("value", ["on", "off"])
    def test_agents_say_true_or_false_whatever_the_client_knows(self, value):
        with pytest.raises(SettingError, match="is a boolean"):
            make(booleans=False).set("web", value)

    def test_without_options_an_error_says_that_there_are_none(self):
        with pytest.raises(SettingError, match="there is no option 'x'; there are none"):
            make([], []).set("x", "y")

    def test_an_error_stays_short(self):
        settings = make([], [Select("model", [f"model-{number}" for number in range(500)])])

        with pytest.raises(SettingError, match=r"model-19 and 480 more$") as caught:
            settings.set_by_client("model", "x" * 1_000_000)
        assert len(str(caught.value)) < 500

    def test_a_value_of_a_subclass_of_str_is_kept_as_a_plain_one(self):
        class Text(str):
            pass

        settings = make()
        settings.set("model", Text("smart"))
        settings.set_mode(Text("auto"))

        assert {type(value) for value in (settings["model"], settings.mode)} == {str}


class TestDeclaringAnew:
    def test_values_that_are_still_offered_are_kept(self):
        settings = make()
        settings.set("model", "smart")
        settings.set("web", False)
        settings.set_mode("auto")

        settings.declare(
            [Mode("plan"), Mode("auto")],
            [Toggle("web", default=True), Select("model", ["new", "smart"])],
        )

        assert settings.mode == "auto"
        assert settings.values == {"web": False, "model": "smart"}

    def test_values_that_are_gone_become_the_default(self):
        settings = make()
        settings.set("model", "smart")
        settings.set_mode("auto")

        settings.declare([Mode("plan")], [Select("model", ["new", "newer"], default="newer")])

        assert settings.mode == "plan"
        assert settings.values == {"model": "newer"}

    @pytest.mark.parametrize(
        ("old", "new"), [(WEB, Select("web", ["off", "on"])), (Select("web", ["on"]), WEB)]
    )
    def test_an_option_of_another_kind_begins_with_its_default(self, old, new):
        settings = make([], [old])

        settings.declare(options=[new])

        assert settings["web"] == new.default

    def test_modes_alone_can_change(self):
        settings = make()
        settings.set("model", "smart")

        settings.declare(modes=[Mode("plan")])

        assert (settings.mode, settings["model"]) == ("plan", "smart")
        assert [option["id"] for option in options_of(settings)] == ["mode", "model", "voice", "web"]

    def test_options_alone_can_change(self):
        settings = make()
        settings.set_mode("auto")

        settings.declare(options=[])

        assert settings.mode == "auto"
        assert [option["id"] for option in options_of(settings)] == ["mode"]

    def test_all_modes_can_go(self):
        settings = make()

        settings.declare(modes=[])

        assert settings.mode is None
        assert settings.as_modes() is UNSET
        assert [option["id"] for option in options_of(settings)] == ["model", "voice", "web"]

    def test_nothing_said_is_nothing_changed(self):
        settings = make()
        settings.set("model", "smart")
        before = state(settings)

        settings.declare()

        assert state(settings) == before

    @table(
        ("modes", "options"),
        [
            ([Mode("a"), Mode("a")], None),
            ([Mode("a")], [Toggle("b"), Toggle("b")]),
            ([Mode("a")], [Toggle("mode")]),
            (None, [Toggle("mode")]),
            ("ab", []),
        ],
    )
    def test_a_bad_declaration_changes_nothing(self, modes, options):
        settings = make()
        settings.set_mode("auto")
        before = state(settings)

        with pytest.raises(ValueError, match=r"two|made of|are a list of"):
            settings.declare(modes, options)

        assert state(settings) == before


GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["mode", "options", "model", "web", "a"]) | st.integers(), inner)
    ),
    max_leaves=8,
)


class TestSaving:
    @pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True)])
    def test_what_was_saved_is_restored_whatever_the_next_client_knows(self, before, after):
        settings = make(booleans=before)
        settings.set_mode("auto")
        settings.set("web", False)
        settings.set("voice", "alto")

        restored = make(booleans=after)
        restored.restore(json.loads(json.dumps(settings.saved())))

        assert settings.saved() == {
            "mode": "auto",
            "options": {"model": "fast", "voice": "alto", "web": False},
        }
        assert (restored.mode, restored.values) == (settings.mode, settings.values)

    def test_what_is_no_longer_offered_is_passed_over(self):
        settings = make()

        settings.restore(
            {
                "mode": "gone",
                "options": {"model": "gone", "web": "off", "voice": "alto", "gone": "x", "mode": "auto"},
                "more": 1,
            }
        )

        assert settings.mode == "ask"
        assert settings.values == {"model": "fast", "voice": "alto", "web": True}

    @table(
        "saved",
        [
            None,
            "x",
            3,
            [],
            {},
            {"mode": None, "options": None},
            {"mode": ["ask"], "options": [["model", "smart"]]},
            {"mode": {}, "options": {"model": ["smart"], "web": {}, "voice": 1.5, 3: 4}},
            {"options": {"web": 0}},
        ],
    )
    def test_garbage_changes_nothing(self, saved):
        settings = make()
        before = state(settings)

        settings.restore(saved)

        assert state(settings) == before

    @given(GARBAGE)
    def test_no_garbage_does_harm(self, saved):
        settings = make()

        settings.restore(saved)

        check(settings, booleans=True)

    def test_a_part_of_what_was_saved_restores_that_part(self):
        settings = make()
        settings.set_mode("auto")
        settings.set("model", "smart")
        settings.set("web", False)

        settings.restore({"options": {"model": "fast"}})

        assert settings.mode == "auto"
        assert settings.values == {"model": "fast", "voice": "bass", "web": False}

    def test_a_saved_mode_is_nothing_to_an_agent_without_modes(self):
        settings = make([])

        settings.restore({"mode": "auto", "options": {"model": "smart"}})

        assert settings.mode is None
        assert settings["model"] == "smart"


class TestRestoringBeforeDeclaring:
    """An agent may look up what it offers after its session was restored."""

    SAVED = {"mode": "auto", "options": {"model": "smart", "web": False}}  # noqa: RUF012

    def test_saved_values_are_taken_over_as_soon_as_they_are_offered(self):
        settings = make([], [])
        settings.restore(self.SAVED)

        settings.declare(options=[MODEL])
        settings.declare(modes=MODES)
        settings.declare(options=[MODEL, WEB])

        assert settings.mode == "auto"
        assert settings.values == {"model": "smart", "web": False}

    def test_a_default_that_stood_in_for_a_saved_value_gives_way_to_it(self):
        settings = make([], [Select("model", ["fast"])])
        settings.restore(self.SAVED)
        assert settings["model"] == "fast"

        settings.declare(options=[MODEL])

        assert settings["model"] == "smart"

    @pytest.mark.parametrize("how", ["set", "set_by_client"])
    def test_what_was_set_since_counts_more(self, how):
        settings = make([], [Select("model", ["fast"])])
        settings.restore(self.SAVED)
        getattr(settings, how)("model", "fast")

        settings.declare(options=[MODEL])

        assert settings["model"] == "fast"

    def test_a_part_restored_later_does_not_make_the_rest_forgotten(self):
        settings = make([], [MODEL])
        settings.restore(self.SAVED)

        settings.restore({"options": {"model": "fast"}})
        settings.declare(options=[MODEL, WEB])

        assert settings.values == {"model": "fast", "web": False}

    def test_a_value_is_taken_over_once(self):
        settings = make([], [])
        settings.restore(self.SAVED)
        settings.declare(options=[MODEL])
        settings.declare(options=[])

        settings.declare(options=[MODEL])

        assert settings["model"] == "fast"


def check(settings, *, booleans):
    """What clients rely on."""
    options = settings.as_options()
    by_id = {option["id"]: option for option in options_of(settings)}
    if options is not UNSET:
        raw = msgspec.Raw(msgspec.json.encode(SetSessionConfigOptionResponse(options)))
        assert len(decode(SetSessionConfigOptionResponse, raw, "client").config_options) == len(by_id)
    for option in by_id.values():
        assert option["currentValue"] in values_in(option)
        assert booleans or option["type"] != "boolean"
    modes = settings.as_modes()
    if modes is UNSET:
        assert settings.mode is None
    else:
        assert settings.mode == modes.current_mode_id == by_id["mode"]["currentValue"] == settings["mode"]
        assert [mode.id for mode in modes.available_modes] == values_in(by_id["mode"])
        assert next(iter(by_id)) == "mode"
    own = [id for id in by_id if modes is UNSET or id != "mode"]
    assert [*settings.values] == own
    assert json.loads(json.dumps(settings.saved())) == settings.saved()


IDS = st.sampled_from(["a", "b", "c", "mode", "on"])
VALUES = st.sampled_from(["a", "b", "c", "on", "off"]) | st.booleans()
WORDS = st.lists(st.sampled_from(["a", "b", "c", "on", "off"]), min_size=1, unique=True)
GROUPS = WORDS.map(lambda words: [Group(word.upper(), [word]) for word in words])
SELECTS = st.builds(
    lambda name, choices, last: Select(name, choices, default=_values(choices)[-1] if last else None),
    IDS,
    WORDS | GROUPS,
    st.booleans(),
)
TOGGLES = st.builds(Toggle, IDS, default=st.booleans())
MODE_LISTS = st.lists(st.builds(Mode, IDS), max_size=4)
OPTION_LISTS = st.lists(SELECTS | TOGGLES, max_size=4)


def _values(choices):
    return [choice.choices[0].value if isinstance(choice, Group) else choice for choice in choices]


class SettingsMachine(RuleBasedStateMachine):
    """Any order of changes, good and bad, keeps what clients rely on."""

    @initialize(booleans=st.booleans())
    def begin(self, booleans):
        self.booleans = booleans
        self.settings = SessionSettings([], [], booleans=booleans)
        self.kept = []

    @rule(modes=st.none() | MODE_LISTS, options=st.none() | OPTION_LISTS)
    def declare(self, modes, options):
        self.attempt(lambda: self.settings.declare(modes, options))

    @rule(id=IDS)
    def set_mode(self, id):
        if self.attempt(lambda: self.settings.set_mode(id)):
            assert self.settings.mode == id

    @rule(id=IDS, value=VALUES)
    def set(self, id, value):
        if self.attempt(lambda: self.settings.set(id, value)):
            assert self.settings[id] is value or self.settings[id] == value

    @rule(id=IDS, value=VALUES)
    def set_by_client(self, id, value):
        if self.attempt(lambda: self.settings.set_by_client(id, value)):
            shown = next(option for option in options_of(self.settings) if option["id"] == id)
            assert shown["currentValue"] == value

    @rule(data=st.data())
    def the_client_takes_any_value_it_was_shown(self, data):
        options = options_of(self.settings)
        if options:
            option = data.draw(st.sampled_from(options))
            value = data.draw(st.sampled_from(values_in(option)))
            changed = self.settings.set_by_client(option["id"], value)
            assert changed == (value != option["currentValue"])

    @rule()
    def save(self):
        self.kept.append(self.settings.saved())

    @rule(data=st.data())
    def restore(self, data):
        self.settings.restore(data.draw(st.sampled_from([{}, *self.kept]) | GARBAGE))

    @rule()
    def restore_what_is(self):
        before = state(self.settings)
        self.settings.restore(self.settings.saved())
        assert state(self.settings) == before

    @invariant()
    def clients_can_rely_on_it(self):
        check(self.settings, booleans=self.booleans)

    def attempt(self, change):
        """Do it, or be refused without a trace; returns whether it was done."""
        before = state(self.settings)
        try:
            changed = change()
        except ValueError:
            assert state(self.settings) == before
            return False
        assert changed is None or changed == (state(self.settings) != before)
        return True


TestAnyOrder = SettingsMachine.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
