"""References in the place of secrets: nothing of a secret is kept, and everything comes back."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from coupler.events import ToolCall
from coupler.redaction.sources import Secret
from coupler.workflow.journal.log import entry_of
from coupler.workflow.journal.run_events import (
    AgentEvent,
    Decided,
    Failure,
    Place,
    Result,
    RunFinished,
    RunStarted,
    StepFinished,
    logged_in,
)
from coupler.workflow.journal.run_secrets import OPENING, RunSecrets, UnknownSecretsError
from tables import table
from workflow.kept_runs import finished

TOKEN = 'hunter2 "quoted" / é'
SECRECY = RunSecrets.of({"TOKEN": TOKEN, "OTHER": "quoted-and-more"}, {})


@table(
    ("text", "redacted"),
    [
        ("nothing here", "nothing here"),
        (f"a {TOKEN} b", "a «secret:TOKEN» b"),
        (TOKEN * 2, "«secret:TOKEN»" * 2),
        ("quoted-and-more", "«secret:OTHER»"),
        ("«secret:TOKEN»", "«secret:»TOKEN»"),
        (f"«secret:{TOKEN}", "«secret:»«secret:TOKEN»"),
        ("«secret:»", "«secret:»»"),
        ("\udc80 and no text", "\udc80 and no text"),
    ],
)
def test_references_stand_in_the_place_of_secrets(text, redacted):
    assert SECRECY.redacted(text) == redacted
    assert SECRECY.revealed(redacted) == text


@pytest.mark.parametrize(
    "spelled",
    [json.dumps(TOKEN), base64.b64encode(TOKEN.encode()).decode(), "hunter2%20%22quoted%22%20%2F%20%C3%A9"],
)
def test_other_spellings_come_back_as_they_were(spelled):
    redacted = SECRECY.redacted(f"x {spelled} y")

    assert spelled.strip('"') not in redacted
    assert "«secret:TOKEN:" in redacted
    assert SECRECY.revealed(redacted) == f"x {spelled} y"


def test_secrets_that_overlap_show_nothing_of_each_other():
    secrecy = RunSecrets([Secret("A", "abcdefgh"), Secret("B", "efghijkl")])

    redacted = secrecy.redacted("-abcdefghijkl-")

    assert redacted == "-«secret:A»«secret:B:0:4»-"
    assert secrecy.revealed(redacted) == "-abcdefghijkl-"


def test_names_may_hold_anything():
    secrecy = RunSecrets([Secret("a:b»«%/é", "swordfish")])
    assert secrecy.revealed(secrecy.redacted("a swordfish")) == "a swordfish"
    assert "swordfish" not in secrecy.redacted("a swordfish")


ALPHABET = st.sampled_from(["abc", "bcabca", "«", "»", "secret:", OPENING, "A", ":", "0", "x", "\udc80", "é"])
TEXTS = st.lists(ALPHABET, max_size=12).map("".join)


@given(TEXTS)
def test_any_text_comes_back(text):
    secrecy = RunSecrets([Secret("A", "abcabc"), Secret("A", "xA"), Secret("B", "cabx"), Secret("é", "»0")])
    redacted = secrecy.redacted({"key " + text: [text, 1, None, (text,)]})

    assert secrecy.revealed(redacted) == {"key " + text: [text, 1, None, (text,)]}


def test_every_text_of_a_result_is_covered_and_ids_are_left_alone():
    secrecy = RunSecrets([Secret("S", "success")])
    inner = Result(status="success", text="success")
    result = Result(
        status="success",
        stdout="success",
        stderr="success",
        text="success",
        output={"success": ["success"]},
        error=Failure(kind="exit", message="success"),
        session_id="success",
        agent="run --token success",
        results=({"success": inner},),
    )

    kept = secrecy.kept(StepFinished(place=Place("success"), id="success", kind="run", result=result))

    assert (kept.place.path, kept.id, kept.result.status, kept.result.session_id) == ("success",) * 4
    redacted = kept.result
    assert {redacted.stdout, redacted.stderr, redacted.text, redacted.error.message} == {"«secret:S»"}
    assert redacted.output == {"«secret:S»": ["«secret:S»"]}
    assert redacted.agent == "run --token «secret:S»"
    assert redacted.results == ({"«secret:S»": Result(status="success", text="«secret:S»")},)
    assert secrecy.revealed(kept).result == result


@table(
    ("happening", "field", "expected"),
    [
        (Decided(what="items", value=["pass-word"]), "value", ["«secret:P»"]),
        (RunStarted(run="r", workflow="w", inputs={"a": "pass-word"}), "inputs", {"a": "«secret:P»"}),
        (
            RunFinished(status="failed", exit_code=3, outputs={"a": "pass-word"}),
            "outputs",
            {"a": "«secret:P»"},
        ),
        (RunFinished(status="failed", exit_code=3, message="pass-word"), "message", "[secret:P]"),
    ],
)
def test_what_is_only_shown_is_masked_and_what_is_needed_again_is_referred_to(happening, field, expected):
    assert getattr(RunSecrets([Secret("P", "pass-word")]).kept(happening), field) == expected


def test_variables_of_the_environment_that_look_secret_count():
    secrecy = RunSecrets.of({}, {"API_TOKEN": "abc-123-def-456", "HOME": "/home/someone"})
    assert secrecy.redacted("abc-123-def-456 /home/someone") == "«secret:API_TOKEN» /home/someone"


def test_a_new_value_is_filled_in_after_a_secret_was_changed():
    redacted = SECRECY.redacted(f"login {TOKEN}")
    assert RunSecrets.of({"TOKEN": "a-new-one"}, {}).revealed(redacted) == "login a-new-one"


def test_all_that_are_missing_are_named():
    redacted = SECRECY.redacted([TOKEN, {"a": "quoted-and-more"}])

    with pytest.raises(UnknownSecretsError, match="OTHER, TOKEN") as caught:
        RunSecrets().revealed(redacted)

    assert caught.value.names == {"OTHER", "TOKEN"}


@table("secrecy", [RunSecrets(), RunSecrets([Secret("P", "pass-word")])])
@table(("raw", "expected"), [(b'{"a": ["pass-word", 1]}', {"a": ["{}", 1]}), (b"pass-word {", "{} {{")])
def test_json_that_nobody_has_decoded_is_looked_into(secrecy, raw, expected):
    kept = secrecy.kept(AgentEvent(event=ToolCall(id="c", title="t", raw_input=Raw(raw))))

    mark = secrecy.masker.mask("pass-word")
    (logged,) = logged_in(entry_of(kept, 1, 0))
    assert logged.happening.event.raw_input == json.loads(
        json.dumps(expected).replace("{}", mark).replace("{{", "{")
    )


def test_what_is_nested_without_end_is_left_out_rather_than_shown():
    deep = "pass-word"
    for _ in range(300):
        deep = [deep]

    kept = RunSecrets([Secret("P", "pass-word")]).kept(finished(output=deep))

    assert "pass-word" not in repr(kept)
    assert "nested too deeply" in repr(kept)
