"""Servers that refuse a conversation: it is mended, the user is told, and the next prompt works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coder.editor import Turn
from coder.script import Answer, Asked, Scripted, use
from coder.served_coder import Coder, clerk
from labs.langchain.model_server import Reply, refuses, strictly

EMPTY = Reply([{"content": ""}])
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
"""An image of one pixel."""
NO_RETRIES = "[coder]\nretry_seconds = 0\n"


def strict(answer: Answer) -> Scripted:
    """The answer of a server that takes nothing but what OpenAI's own takes."""

    def reply(asked: Asked) -> Answer:
        for message in asked.messages:
            content = message.get("content")
            if message["role"] == "tool" and not isinstance(content, str):
                return refuses(400, "messages.content: tool messages take a string")
            if not content and not message.get("tool_calls"):
                return refuses(400, f"messages: the {message['role']} message must not be empty")
        refused = strictly(Reply())(asked)
        return refused if refused.status != 200 else answer

    return reply


def refusing(matches: Callable[[Asked], object], reason: str, answer: Answer) -> Scripted:
    """The answer, unless the request is one that the server refuses."""
    return lambda asked: refuses(400, reason) if matches(asked) else answer


def thoughts(turn: Turn) -> str:
    return "\n".join(str(each["content"]["text"]) for each in turn.of("agent_thought_chunk"))


def has_image(asked: Asked) -> bool:
    return "image_url" in str(asked.messages)


def test_images_of_tools_follow_all_results_of_the_step_in_a_message_of_the_user(
    coder: Coder, project: Path
) -> None:
    editor = coder(
        project,
        [(use("show", text=DOT), use("read_memo")), strict("I see a picture."), strict("Still here.")],
        clerk(),
    )
    editor.set_mode("agentic")

    first = editor.prompt("Show me")
    second = editor.prompt("And now?")

    assert (first.last_message, second.last_message) == ("I see a picture.", "Still here.")
    roles = [each["role"] for each in coder.model.asked[1].messages[-5:]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]
    shown, read, followed = coder.model.asked[1].messages[-3:]
    assert "some words" in shown["content"]
    assert "image" not in read["content"]
    assert f"data:image/png;base64,{DOT}" in str(followed["content"])
    assert not first.of("agent_thought_chunk")


def test_an_empty_answer_is_told_and_is_no_empty_message_afterwards(coder: Coder, project: Path) -> None:
    editor = coder(project, [EMPTY, strict("Here I am.")])

    first = editor.prompt("Hello")
    second = editor.prompt("Are you there?")

    assert first.reason == "end_turn"
    assert "The model's answer is empty" in thoughts(first)
    assert second.last_message == "Here I am."
    assert coder.model.last.prompts == ["Hello", "Are you there?"]


def test_a_stored_session_with_what_its_server_refuses_goes_on(coder: Coder, project: Path) -> None:
    first = coder.served()
    editor = first.opened(project, clerk())
    editor.set_mode("agentic")
    coder.model.plays(use("show", text=DOT), EMPTY)
    editor.prompt("Show me")
    first.client.process.kill()

    again = coder.served(home=first.home)
    loaded, _ = again.loaded(editor.session, project)
    coder.model.plays(refusing(has_image, "image input is not supported", "Mended."), "Mended.", "Well.")

    turn = loaded.prompt("And now?")
    later = loaded.prompt("Still?")

    assert turn.last_message == "Mended."
    assert "image input is not supported" in thoughts(turn)
    assert "Images and files were taken out" in thoughts(turn)
    assert later.last_message == "Well."
    assert not has_image(coder.model.last)
    assert not thoughts(later)
    again.leave()


def test_an_image_in_a_prompt_that_is_refused_is_taken_out_for_good(coder: Coder, project: Path) -> None:
    answer = refusing(has_image, "image_url is too large: 20 MB", "I cannot see it.")
    editor = coder(project, [answer, answer, answer])

    image = {"type": "image", "data": DOT, "mimeType": "image/png"}
    turn = editor.finish(editor.begin("What is this?", image))
    later = editor.prompt("Go on")

    assert (turn.last_message, later.last_message) == ("I cannot see it.", "I cannot see it.")
    assert "an image was here" in coder.model.last.text
    assert len(coder.model.asked) == 3


def test_what_no_repair_is_for_is_given_up_piece_by_piece_until_the_server_takes_it(
    coder: Coder, project: Path
) -> None:
    def answer(asked: Asked) -> Answer:
        return refuses(422, "unprocessable: POISON") if "POISON" in asked.text else "Clean."

    editor = coder(project, [])
    editor.set_mode("agentic")
    coder.model.plays(use("run_command", command="echo POI''SON"), "Done.")
    editor.prompt("Go")
    coder.model.improvises(answer)

    turn = editor.prompt("And now?")
    asked = len(coder.model.asked)
    later = editor.prompt("Still?")

    assert turn.last_message == "Clean."
    assert "POISON" in thoughts(turn)
    assert "The earlier turns were left out" in thoughts(turn)
    assert later.last_message == "Clean."
    assert len(coder.model.asked) == asked + 1
    assert coder.model.last.prompts == ["And now?", "Still?"]


def test_a_result_that_spoils_the_running_turn_is_left_out_with_it(coder: Coder, project: Path) -> None:
    def answer(asked: Asked) -> Answer:
        if "POISON" in asked.text:
            return refuses(400, "cannot be processed")
        is_first = asked.prompts == ["Go"] and not went
        went.append(True)
        return use("run_command", command="echo POI''SON") if is_first else "Clean."

    went: list[bool] = []
    editor = coder(project, [])
    editor.set_mode("agentic")
    coder.model.improvises(answer)

    turn = editor.prompt("Go")
    later = editor.prompt("Still?")

    assert (turn.last_message, later.last_message) == ("Clean.", "Clean.")
    assert "All but your last prompt was left out" in thoughts(turn)


def test_calls_of_tools_that_are_gone_are_told_in_words(coder: Coder, project: Path) -> None:
    def answer(asked: Asked) -> Answer:
        calls = [call for each in asked.messages for call in each.get("tool_calls", ())]
        unknown = {call["function"]["name"] for call in calls} - asked.tools
        return refuses(400, f"unknown tool name: {unknown}") if unknown else "It said: a memo."

    first = coder.served()
    editor = first.opened(project, clerk())
    coder.model.plays(use("read_memo", text="x"), "Read.")
    editor.prompt("Read it", "allow_once")
    first.client.process.kill()
    again = coder.served(home=first.home)
    loaded, _ = again.loaded(editor.session, project)
    coder.model.improvises(answer)

    turn = loaded.prompt("What did it say?")

    assert turn.last_message == "It said: a memo."
    assert "[Called read_memo" in coder.model.last.text
    assert len(coder.model.asked) == 2
    again.leave()


def test_too_many_tools_are_fewer_from_then_on(coder: Coder, project: Path) -> None:
    def answer(asked: Asked) -> Answer:
        if (number := len(asked["tools"])) > 10:
            return refuses(400, f"Invalid 'tools': array too long. Expected maximum length 10, got {number}.")
        return "Enough."

    editor = coder(project, [])
    coder.model.improvises(answer)

    assert editor.prompt("Hello").last_message == "Enough."
    assert editor.prompt("Again").last_message == "Enough."
    assert [len(asked["tools"]) for asked in coder.model.asked[1:]] == [10, 10]


def test_what_is_refused_whatever_is_sent_is_an_error_with_the_servers_own_reason(
    coder: Coder, project: Path
) -> None:
    refused = refuses(400, "temperature is not supported with this model")
    editor = coder(project, ["Hello.", *[refused] * 2, "Back again."])
    editor.prompt("Hello")

    failed = editor.prompt("And now?")
    later = editor.prompt("Still?")

    assert failed.error["data"]["kind"] == "refused"
    assert "temperature is not supported" in failed.error["message"]
    assert "can use tools" not in failed.error["message"]
    assert later.last_message == "Back again."
    assert coder.model.last.prompts == ["Hello", "Still?"]
