"""What models think: shown as thoughts, stored, and sent back where servers want it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coder.script import Asked, Scripted
from coder.served_coder import Coder
from labs.langchain.model_server import Reply, call_deltas, refuses
from raw_client import Frame

NO_RETRIES = "[coder]\nretry_seconds = 0\n"


def deltas(*parts: dict[str, Any], calls: str | None = None) -> Reply:
    """An answer of these deltas, and the listing of a directory at the end."""
    more = call_deltas(0, calls, "list_files", {"path": "."}) if calls else []
    return Reply([*parts, *more], "tool_calls" if calls else "stop")


def thinks(*pieces: str, field: str = "reasoning_content") -> list[dict[str, Any]]:
    return [{field: piece} for piece in pieces]


def says(*pieces: str) -> list[dict[str, Any]]:
    return [{"content": piece} for piece in pieces]


def thoughts(updates: list[Frame]) -> str:
    return "".join(
        each["content"]["text"] for each in updates if each["sessionUpdate"] == "agent_thought_chunk"
    )


def text(updates: list[Frame]) -> str:
    return "".join(
        each["content"]["text"] for each in updates if each["sessionUpdate"] == "agent_message_chunk"
    )


def answers_in(asked: Asked) -> list[dict[str, Any]]:
    return [each for each in asked.messages if each["role"] == "assistant"]


SHAPES: dict[str, tuple[Reply, str, str]] = {
    "reasoning_content": (
        deltas(*thinks("I ", "wonder."), *says("Here ", "it is.")),
        "I wonder.",
        "Here it is.",
    ),
    "reasoning": (deltas(*thinks("Well.", field="reasoning"), *says("Done.")), "Well.", "Done."),
    "both fields": (deltas({"reasoning_content": "Hm.", "reasoning": "Hm."}, *says("Done.")), "Hm.", "Done."),
    "details": (
        deltas(
            {"reasoning_details": [{"type": "reasoning.text", "text": "Deep.", "index": 0}]}, *says("Done.")
        ),
        "Deep.",
        "Done.",
    ),
    "block": (deltas(*says("<think>\nLet me see.\n</think>\n\nDone.")), "Let me see.\n", "Done."),
    "block in pieces": (
        deltas(*says("\n", "<th", "ink>", "a < b", " and <", "/thi", "nk>", "\n\n", "Do", "ne.")),
        "a < b and ",
        "Done.",
    ),
    "empty block": (deltas(*says("<think>\n\n</think>\n\n", "Done.")), "", "Done."),
    "block without an end": (deltas(*says("<think>So long </th")), "So long </th", ""),
    "block in the text": (
        deltas(*says("Write `", "<think>x</think>", "` so.")),
        "",
        "Write `<think>x</think>` so.",
    ),
    "half a tag": (deltas(*says("<thi")), "", "<thi"),
    "like a tag": (deltas(*says("<", "thin", "g>")), "", "<thing>"),
    "text after a field": (deltas(*thinks("Hm."), *says("<think> is a tag.")), "Hm.", "<think> is a tag."),
    "no text in the field": (deltas({"reasoning_content": None, "reasoning": {}}, *says("Hi.")), "", "Hi."),
}


def test_reasoning_in_every_shape_is_shown_as_thoughts_and_is_no_text(coder: Coder, project: Path) -> None:
    editor = coder(project, [reply for reply, _, _ in SHAPES.values()])
    wrong = {}
    for name, (_, thought, said) in SHAPES.items():
        turn = editor.prompt(name)
        notice = "The model's answer is empty" in thoughts(turn.updates)
        shown = thoughts([each for each in turn.updates if "answer is empty" not in str(each)])
        if (shown, text(turn.updates), notice) != (thought, said, not said):
            wrong[name] = (shown, text(turn.updates), notice)
    assert wrong == {}


def test_the_thoughts_of_an_answer_are_one_message(coder: Coder, project: Path) -> None:
    editor = coder(project, [deltas(*thinks("I ", "won", "der."), *says("Here."))])

    turn = editor.prompt("Go")

    ids = {each.get("messageId") for each in turn.of("agent_thought_chunk")}
    assert len(ids) == 1, ids


def test_reasoning_goes_back_as_it_came_in_turns_that_have_called_tools(coder: Coder, project: Path) -> None:
    editor = coder(
        project,
        [
            deltas(*thinks("A question."), *says("Hello.")),
            deltas(*thinks("I look ", "first."), calls="c1"),
            deltas(*thinks("And now.", field="reasoning"), calls="c2"),
            deltas(*says("<think>Both.</think>Looking."), calls="c3"),
            deltas(*thinks("Enough."), *says("Seen.")),
            "Bye.",
        ],
    )

    editor.prompt("Hello")
    editor.prompt("Look")
    editor.prompt("Bye")

    first, second, third, fourth, last = answers_in(coder.model.last)
    assert not {"reasoning_content", "reasoning"} & first.keys()
    assert second["reasoning_content"] == "I look first."
    assert (third["reasoning"], "reasoning_content" in third) == ("And now.", False)
    assert fourth["content"] == "<think>\nBoth.\n</think>\n\nLooking."
    assert last["reasoning_content"] == "Enough."
    # What the model was sent within the turn is what it is sent later: servers find it in their caches.
    assert answers_in(coder.model.asked[4]) == [first, second, third, fourth]


def test_details_go_back_joined_and_otherwise_as_they_came(coder: Coder, project: Path) -> None:
    def part(**more: Any) -> dict[str, Any]:
        return {"reasoning_details": [more]}

    kind = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    locked = {"type": "reasoning.encrypted", "data": "c2VjcmV0", "id": "r1", "index": 1}
    editor = coder(
        project,
        [
            deltas(
                {"reasoning": "I ", **part(**kind, text="I ")},
                {"reasoning": "look.", **part(**kind, text="look.", signature=None)},
                part(**kind, text="", signature="sig"),
                part(**locked),
                calls="c1",
            ),
            "Seen.",
        ],
    )

    turn = editor.prompt("Look")

    assert thoughts(turn.updates) == "I look."
    [sent] = answers_in(coder.model.last)
    assert sent["reasoning_details"] == [{**kind, "text": "I look.", "signature": "sig"}, locked]
    assert sent["reasoning"] == "I look."


def test_a_loaded_session_shows_the_thoughts_and_sends_them_back(coder: Coder, project: Path) -> None:
    coder.model.plays(
        deltas(*thinks("I look."), calls="c1"), deltas(*says("<think>Fine.</think>Seen.")), "Still here."
    )
    served = coder.served()
    session = served.opened(project)
    session.prompt("Look")
    served.leave()

    again = coder.served(home=served.home)
    editor, updates = again.loaded(session.session, project)
    turn = editor.prompt("And now?")

    assert (thoughts(updates), text(updates)) == ("I look.Fine.", "Seen.")
    assert turn.last_message == "Still here."
    assert answers_in(coder.model.last)[0]["reasoning_content"] == "I look."
    again.leave()


def test_a_server_that_refuses_reasoning_gets_none_any_more_and_it_is_told_once(
    coder: Coder, project: Path
) -> None:
    def picky(reply: Reply | str) -> Scripted:
        def answer(asked: Asked) -> Reply | str:
            if "reasoning_content" in str(answers_in(asked)):
                return refuses(400, "messages.1.reasoning_content: Extra inputs are not permitted")
            return reply

        return answer

    second = picky(deltas(*thinks("Again."), calls="c2"))
    coder.model.plays(deltas(*thinks("I look."), calls="c1"), second, second, picky("Seen."))
    served = coder.served(config=NO_RETRIES)

    turn = served.opened(project).prompt("Look")

    assert turn.last_message == "Seen."
    assert str(turn.updates).count("Extra inputs are not permitted") == 1
    served.leave()


def test_a_server_that_wants_reasoning_of_all_answers_gets_a_placeholder_for_those_of_others(
    coder: Coder, project: Path
) -> None:
    def picky(asked: Asked) -> Reply | str:
        if all(each.get("reasoning_content") for each in answers_in(asked)):
            return "Seen."
        return refuses(
            400, "thinking is enabled but reasoning_content is missing in assistant tool call message"
        )

    coder.model.plays(deltas(*says("Looking."), calls="c1"), picky, picky)
    served = coder.served(config=NO_RETRIES)

    turn = served.opened(project).prompt("Look")

    assert turn.last_message == "Seen."
    assert [each["reasoning_content"] for each in answers_in(coder.model.last)] == ["(none)"]
    assert "(none)" not in text(turn.updates)
    served.leave()
