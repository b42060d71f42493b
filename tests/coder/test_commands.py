"""The coder's slash commands in an editor: those that need no model, /init, /thinking, and unknown ones."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from coder.editor import Editor
from coder.script import Asked, use
from coder.served_coder import Coder, Served, clerk, surroundings, tree, write
from coupler import Session, ask, connect
from coupler.coder.commands import COMMANDS
from coupler.coder.usage import usage_text
from forked import run
from labs.langchain.model_server import says
from raw_client import COUPLER, Frame

WITHOUT_MODEL = ["usage", "mcp", "add-dir", "export", "memory"]
WITH_MODEL = ["init", "compact", "undo", "redo"]
WORKFLOW = "name: {name}\nsteps:\n  - id: a\n    run: echo of the workflow\n"


def names_of(update: Frame) -> list[str]:
    return [each["name"] for each in update["availableCommands"]]


def offered(editor: Editor, expected: str) -> list[str]:
    """The commands of a session, once this one is among them."""

    def is_it(frame: Frame) -> bool:
        update = frame.get("params", {}).get("update", {})
        return update.get("sessionUpdate") == "available_commands_update" and expected in names_of(update)

    return names_of(editor.client.read_until(is_it)[-1]["params"]["update"])


def without_model(coder: Coder) -> Served:
    return coder.served(env={"COUPLER_MODEL": "", "COUPLER_BASE_URL": ""})


def test_the_commands_of_the_table_are_offered_at_once_and_those_for_a_model_only_with_one(
    coder: Coder, project: Path
) -> None:
    assert [each.name for each in COMMANDS if each.answer] == ["thinking", *WITHOUT_MODEL]

    with_one = offered(coder.served().opened(project), "usage")
    without = offered(without_model(coder).opened(project), "usage")

    assert [name for name in with_one if name not in ("resume", "runs")] == [*WITH_MODEL, *WITHOUT_MODEL]
    assert [name for name in without if name not in ("resume", "runs")] == WITHOUT_MODEL


def test_commands_that_need_no_model_work_without_one(coder: Coder, project: Path, tmp_path: Path) -> None:
    editor = without_model(coder).opened(project)
    (tmp_path / "other").mkdir()

    assert editor.prompt("/usage").text == "No model was asked in this session yet."
    assert "has no MCP servers" in editor.prompt("/mcp").text
    assert f"`{project}` (where it works)" in editor.prompt("/add-dir").text
    assert "works there, too" in editor.prompt("/add-dir ../other").text
    assert "Nothing is remembered" in editor.prompt("/memory").text
    assert "Exported 5 turns" in editor.prompt("/export all.md").text
    assert editor.prompt("/init").error["data"]["kind"] == "setup"


def test_usage_tells_what_the_models_servers_have_reported_and_goes_on_after_a_restart(
    coder: Coder, project: Path
) -> None:
    served = coder.served()
    editor = served.opened(project)
    coder.model.plays(says("One.", usage=(1000, 20)), says("Two.", usage=(2500, 30)))
    editor.prompt("First")
    editor.prompt("Second")
    before = editor.prompt("/usage").text
    served.leave()

    editor, _ = coder.served(home=served.home).loaded(editor.session, project)
    coder.model.plays(says("Three.", usage=(3000, 40)))
    loaded = editor.prompt("/usage").text
    editor.prompt("Third")
    after = editor.prompt("/usage").text

    assert before.splitlines()[2:] == [
        "- Model calls: 2",
        "- Input: 3,500 tokens",
        "- Output: 50 tokens",
        "- Context: 2,530 of 32,000 tokens (8%)",
        "- Cost: not reported",
    ]
    assert loaded == before
    assert "- Model calls: 3\n- Input: 6,500 tokens\n- Output: 90 tokens\n- Context: 3,040 of" in after


def test_usage_counts_summaries_and_calls_an_estimate_one(coder: Coder, project: Path) -> None:
    editor = coder(project, [says("Hello.", usage=(1000, 20)), says("NOTES", usage=(50, 7))])
    editor.prompt("Hello")
    editor.prompt("/compact")

    told = editor.prompt("/usage").text

    assert "- Model calls: 2\n- Input: 1,050 tokens\n- Output: 27 tokens\n" in told
    assert "tokens (0%, an estimate)" in told or "tokens (1%, an estimate)" in told


def test_usage_has_what_was_cached_thought_and_paid_as_far_as_it_is_reported(
    coder: Coder, project: Path
) -> None:
    reported = {
        "prompt_tokens_details": {"cached_tokens": 900},
        "completion_tokens_details": {"reasoning_tokens": 12},
        "cost": 0.0125,
    }
    said = says("One.", usage=(1000, 20), more_usage=reported)
    editor = coder(project, [said, said])
    editor.prompt("First")
    editor.prompt("Second")

    told = editor.prompt("/usage").text

    assert "- Input: 2,000 tokens, 1,800 of them read from a cache" in told
    assert "- Output: 40 tokens, 24 of them thought" in told
    assert "- Cost: $0.0250" in told


def test_usage_lists_models_when_there_were_several(coder: Coder, project: Path) -> None:
    served = coder.served(config='[coder]\nmodels = ["openai:other"]\n')
    editor = served.opened(project)
    coder.model.plays("One.", "Two.")
    editor.prompt("First")
    set_option(editor, "model", "openai:other")
    editor.prompt("Second")

    told = editor.prompt("/usage").text

    assert "- Model calls: 2" in told
    assert "- `scripted`: model calls: 1; Input: 10 tokens; Output: 5 tokens" in told
    assert "- `other`: model calls: 1; Input: 10 tokens; Output: 5 tokens" in told


def test_mcp_shows_states_and_tools_and_no_secrets(coder: Coder, project: Path) -> None:
    secret = "hunter2-hunter2-hunter2"
    fails = f"import sys; sys.exit('no access with {secret} at https://u:{secret}@host.example/{secret}?k=1')"
    broken = {
        "name": "bro\u202eken`",
        "command": "python3",
        "args": ["-c", fails, "--label", secret],
        "env": [{"name": "LABEL", "value": secret}],
    }
    by_address = {
        "type": "http",
        "name": "far",
        "url": f"http://127.0.0.1:9/{secret}?token={secret}",
        "headers": [{"name": "X-Label", "value": secret}],
    }
    editor = without_model(coder).opened(project, clerk(), broken, by_address)

    turn = editor.prompt("/mcp")
    while "connecting" in turn.text:
        turn = editor.prompt("/mcp")

    clerks, brokens, fars = turn.text.splitlines()[2:]
    assert clerks.startswith("- `clerk` (the command `python")
    assert "connected, " in clerks
    assert "`read_memo`" in clerks
    assert "(the command `python3`): failed: " in brokens
    assert "\\u202e" in brokens
    assert "https://host.example" in brokens
    assert fars.startswith("- `far` (`http://127.0.0.1:9`): failed: ")
    assert secret not in turn.text


def test_a_directory_that_the_user_adds_belongs_to_the_session_also_after_a_restart(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other dir"
    write(other, {"AGENTS.md": "OTHER-RULE", "b.txt": "of the other\n"})
    served = coder.served()
    editor = served.opened(project)
    coder.model.plays(use("read_file", path=str(other / "b.txt")), "No.")
    editor.prompt("Read b", "reject_once")
    assert "of the other" not in coder.model.last.result

    added = editor.prompt('/add-dir "../other dir"')
    coder.model.plays(use("read_file", path=str(other / "b.txt")), "Yes.")
    editor.prompt("Read b")
    assert added.text == f"Added `{other}`: the session works there, too, from now on."
    assert "of the other" in coder.model.last.result
    assert "OTHER-RULE" in coder.model.last.system
    assert f"Other directories of the session: {other}" in coder.model.last.system
    served.leave()

    editor, _ = coder.served(home=served.home).loaded(editor.session, project)
    write(other, {"c.txt": "still there\n"})
    coder.model.plays(use("write_file", path=str(other / "d.txt"), content="new\n"), "Written.")
    editor.set_mode("accept-edits")
    editor.prompt("Write d")
    assert (other / "d.txt").read_text() == "new\n"
    assert f"- `{other}`" in editor.prompt("/add-dir").text


def test_a_directory_that_cannot_be_added_is_explained(coder: Coder, project: Path) -> None:
    write(project, {"sub/a.txt": "a"})
    editor = coder(project, [])

    told = {
        given: editor.prompt(f"/add-dir {given}").text
        for given in ("../missing", "sub/a.txt", "sub", ".", "/", "~/missing")
    }

    assert told["../missing"] == f"There is no directory `{project.parent / 'missing'}`: nothing was added."
    assert "is not a directory" in told["sub/a.txt"]
    assert f"is in the session already, below `{project}`" in told["sub"]
    assert "is in the session already" in told["."]
    assert "The whole system cannot be added" in told["/"]
    assert "of-the-user/missing`: nothing was added" in told["~/missing"]
    assert editor.prompt("/add-dir").text.count("- `") == 1


def test_export_writes_the_session_and_replaces_nothing_unasked(coder: Coder, project: Path) -> None:
    editor = coder(project, ["The answer."])
    editor.prompt("The question")

    first, second = editor.prompt("/export").text, editor.prompt("/export").text
    editor.prompt("/export out.json")
    refused = editor.prompt("/export out.json").text
    before = (project / "out.json").read_text()
    replaced = editor.prompt("/export --force out.json").text
    missing = editor.prompt("/export nowhere/out.md").text
    directory = editor.prompt("/export .").text

    short = editor.session.removeprefix("sess_")[:8]
    assert first == f"Exported 1 turn to `{project}/session-{short}.md`."
    assert second == f"Exported 2 turns to `{project}/session-{short}-2.md`."
    text = (project / f"session-{short}.md").read_text()
    assert "> The question" in text
    assert "The answer." in text
    assert "/export" not in text
    assert refused == (
        f"`{project}/out.json` exists already: name another file, or write `/export --force "
        f"{project}/out.json` to replace it."
    )
    document = json.loads(before)
    assert document["format"] == "coupler-session/2"
    assert len(document["turns"]) == document["session"]["turns"] == 3
    assert "Exported 5 turns" in replaced
    assert (project / "out.json").read_text() != before
    assert "make it first" in missing
    assert "is a directory: name a file in it" in directory
    assert sorted(tree(project)) == ["out.json", f"session-{short}-2.md", f"session-{short}.md"]


def test_an_export_has_no_secret(coder: Coder, project: Path) -> None:
    served = coder.served()
    editor = served.opened(project)
    coder.model.plays("Noted.")
    editor.prompt("Nothing to hide")
    served.leave()
    # Declared since: what was stored before is redacted now.
    served = coder.served(home=served.home, env={"SECRET_WORD": "Nothing to hide"})
    editor, _ = served.loaded(editor.session, project)

    editor.prompt("/export out.md")

    assert "Nothing to hide" not in (project / "out.md").read_text()


def test_init_is_a_prompt_for_the_model_whose_file_is_asked_about(coder: Coder, project: Path) -> None:
    def asked(request: Asked) -> object:
        assert "Write AGENTS.md for this repository" in request.prompts[-1]
        assert request.prompts[-1].startswith("/init mind the tests")
        return use("write_file", path="AGENTS.md", content="Run make.\n")

    editor = coder(project, [asked, "Written."])

    turn = editor.prompt("/init mind the tests", "allow_once")

    assert turn.last_message == "Written."
    assert (project / "AGENTS.md").read_text() == "Run make.\n"
    assert editor.asked[0]["toolCall"]["kind"] == "edit"


def set_option(editor: Editor, option: str, value: str) -> Frame:
    params = {"sessionId": editor.session, "configId": option, "value": value}
    answer: Frame = editor.client.call("session/set_config_option", params)
    return answer["result"]


def test_thinking_is_offered_where_the_model_takes_it_and_sets_the_sessions_option(
    coder: Coder, project: Path
) -> None:
    url = coder.model.server.url
    served = coder.served(env={"COUPLER_MODEL": "openai:gpt-oss", "COUPLER_BASE_URL": url})
    answer = served.client.call("session/new", {"cwd": str(project), "mcpServers": []})["result"]
    option = next(each for each in answer["configOptions"] if each["id"] == "effort")
    editor = Editor(served.client, answer["sessionId"], project)
    assert "thinking" in offered(editor, "thinking")

    shown = editor.prompt("/thinking")
    changed = editor.prompt("/thinking High")
    wrong = editor.prompt("/thinking hihg")
    off = editor.prompt("/thinking off")
    kept = editor.prompt("/thinking on")
    coder.model.plays("Thought.")
    editor.prompt("Think")

    assert option["category"] == "thought_level"
    assert shown.text == (
        "Thinking: `default`. `openai:gpt-oss` takes `default`, `low`, `medium`, `high`; "
        "`/thinking LEVEL` changes it."
    )
    assert changed.text == "Thinking: `high`, from the next model call on."
    values = {
        each["id"]: each["currentValue"] for each in changed.of("config_option_update")[-1]["configOptions"]
    }
    assert values["effort"] == "high"
    assert "does not take `hihg`. Did you mean `high`?" in wrong.text
    assert "does not take `off`. It takes" in off.text
    assert kept.text == changed.text
    assert coder.model.last["reasoning_effort"] == "high"


def test_thinking_of_a_model_that_does_not_take_it_is_explained(coder: Coder, project: Path) -> None:
    editor = coder(project, [])

    assert "It is not known how much `openai:scripted` can think" in editor.prompt("/thinking on").text


def test_an_unknown_command_is_answered_without_the_model_and_a_path_goes_to_it(
    coder: Coder, project: Path
) -> None:
    write(project, {".agents/skills/release/SKILL.md": "---\nname: release\ndescription: Makes it\n---\nDo."})
    editor = coder(project, ["One.", "Two.", "Three.", "Four."])

    wrong = editor.prompt("/compcat the rest")
    skill = editor.prompt("/realese")
    path = editor.prompt("/etc/hosts is wrong")
    root = editor.prompt("/tmp is full")
    request = editor.begin({"type": "resource_link", "name": "a", "uri": "file:///a"}, "/compcat it")
    with_file = editor.finish(request)
    later = editor.prompt("What about /compcat?")

    assert "There is no command `/compcat`. Did you mean `/compact`?" in wrong.text
    assert "- `/usage`: Show what this session has used" in wrong.text
    assert wrong.reason == "end_turn"
    assert "Did you mean `/release`?" in skill.text
    assert "- `/release`: Makes it" in skill.text
    assert [path.text, root.text, with_file.text, later.text] == ["One.", "Two.", "Three.", "Four."]


def test_an_unknown_command_needs_no_model(coder: Coder, project: Path) -> None:
    editor = without_model(coder).opened(project)

    assert "Did you mean `/usage`?" in editor.prompt("/usgae").text
    assert editor.prompt("/etc/hosts is wrong").error["data"]["kind"] == "setup"


def test_a_coder_for_prompts_that_no_person_types_carries_out_no_such_command(
    coder: Coder, project: Path
) -> None:
    skill = "---\nname: release\ndescription: Makes it\n---\nDo it.\n"
    write(project, {".agents/skills/release/SKILL.md": skill})
    served = coder.served("--no-commands")
    editor = served.opened(project)
    assert {*offered(editor, "runs")} <= {"resume", "runs"}
    prompts = ("/export --force all.md", "/unknown", "/init", "/undo", "/redo", "/compact", "/release")
    answers = [f"{number}." for number in range(len(prompts))]
    coder.model.plays(*answers)

    told = [editor.prompt(text).text for text in prompts]

    assert told == answers
    assert coder.model.last.prompts == [*prompts]
    assert [*tree(project)] == [".agents/skills/release/SKILL.md"]


def test_a_prompt_that_is_marked_as_data_is_for_the_model_whatever_it_begins_with(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    write(tmp_path, {"home/workflows/deploy.yaml": WORKFLOW.format(name="deploy")})
    editor = coder.served(home=tmp_path / "home").opened(project)
    prompts = ("/export --force all.md", "/usgae", "/undo", "/deploy", "/runs")
    coder.model.plays(*prompts)

    for text in prompts:
        params = {"sessionId": editor.session, "prompt": [{"type": "text", "text": text}]}
        data = {"coupler": {"commands": False}}
        request = editor.client.request("session/prompt", {**params, "_meta": data})
        editor.client.send(request)
        assert editor.finish(request).text == text

    assert coder.model.last.prompts == [*prompts]
    assert tree(project) == {}


@pytest.mark.parametrize(
    ("words", "piped", "is_obeyed"),
    [
        (["/export all.md"], "", True),
        (["/export", "all.md"], "", True),
        ([], "/export all.md", False),
        (["-"], "/export all.md", False),
    ],
)
def test_exec_obeys_a_command_that_is_its_argument_and_none_that_is_piped(
    coder: Coder, project: Path, tmp_path: Path, words: list[str], piped: str, is_obeyed: bool
) -> None:
    coder.model.plays(*([] if is_obeyed else ["It is text."]))
    env = {**os.environ, **surroundings(tmp_path / "home", coder.model.server.url)}

    told = run(
        [*COUPLER, "exec", "coder", *words], cwd=project, env=env, input=piped, capture_output=True, text=True
    )

    assert told.returncode == 0, told.stderr
    assert [*tree(project)] == (["all.md"] if is_obeyed else [])
    assert ("It is text." in told.stdout) == (not is_obeyed)


def test_a_session_is_named_by_the_first_prompt_for_the_model_and_not_by_a_command(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    served = coder.served(home=tmp_path / "home")
    editor = served.opened(project)
    coder.model.plays("I have written it.", "Fixed.", "Again.")

    titles = []
    for text in ("/usage", "/init", "/mcp", "Fix the parser\nplease", "/usage", "And the tests"):
        editor.prompt(text)
        listed = editor.client.call("session/list", {"cwd": str(project)})["result"]["sessions"]
        titles.append(listed[0]["title"])

    assert titles == ["/usage", "/usage", "/usage", "Fix the parser", "Fix the parser", "Fix the parser"]
    served.leave()


def test_a_command_gives_way_as_the_title_also_after_a_restart(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    first = coder.served(home=tmp_path / "home")
    editor = first.opened(project)
    editor.prompt("/usgae")
    first.leave()
    coder.model.plays("Fixed.")
    again = coder.served(home=tmp_path / "home")
    loaded, _ = again.loaded(editor.session, project)

    turn = loaded.prompt("Fix the parser")

    assert [each["title"] for each in turn.of("session_info_update")] == ["Fix the parser"]
    again.leave()


def test_programs_give_data_and_say_when_a_person_has_typed_it(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    coder.model.plays("It is text.", "So is this.")
    env = surroundings(tmp_path / "home", coder.model.server.url)

    async def told() -> list[str]:
        async with connect("coder", cwd=project, env=env) as agent:
            session = await agent.new()
            texts = [str((await session.prompt("/export data.md")).text)]
            texts.append((await session.prompt("/export typed.md", commands=True)).text)
            return texts

    data, typed = asyncio.run(told())
    asked = ask("coder", "/export asked.md", cwd=project, env=env)

    ask("coder", "/export too.md", cwd=project, env=env, commands=True)

    assert (data, asked) == ("It is text.", "So is this.")
    assert "typed.md" in typed
    assert [*tree(project)] == ["too.md", "typed.md"]


def test_workflows_go_before_commands_of_the_same_name(coder: Coder, project: Path, tmp_path: Path) -> None:
    write(tmp_path, {"home/workflows/usage.yaml": WORKFLOW.format(name="usage")})
    editor = coder.served(home=tmp_path / "home").opened(project)

    told = editor.prompt("/usage")
    others = editor.prompt("/mcp")

    assert "No model was asked" not in told.text
    assert [each["title"] for each in told.uses]
    assert "has no MCP servers" in others.text


def test_what_an_earlier_version_has_counted_counts() -> None:
    model = {
        "calls": 2,
        "input": 30,
        "output": 12,
        "cached": 5,
        "cache_written": 4,
        "thought": 3,
        "cost": 0.5,
    }
    stored = {"session": "s", "models": {"m": model}, "context": None}
    session = cast(Session, SimpleNamespace(id="s", state={"usage": stored}))

    text = usage_text(session)

    assert "Model calls: 2" in text
    assert "Input: 30 tokens, 5 of them read from a cache, 4 written to one" in text
    assert "Output: 12 tokens, 3 of them thought" in text
    assert "Cost: $0.5000" in text
