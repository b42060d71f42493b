"""Skills: where they are found, which of two counts, what the model and the user get of them."""

import os

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk

from coder.talking import talk
from coupler import acp
from coupler.coder.prompt import PromptMiddleware
from coupler.coder.skills import SkillCommands, Skills, read_document, skill_tools
from coupler.events import Notice
from labs.langchain.scripted_model import ScriptedModel, call
from tables import table


class Place:
    """What skills need of a session."""

    def __init__(self, cwd, home):
        self.cwd, self.roots = str(cwd), (str(cwd),)
        self.env = {"COUPLER_HOME": str(home), "HOME": str(home / "of-user")}


def write_skill(folder, name, description="Does things", body="Do it.", more=""):
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n{more}---\n\n{body}\n")
    return place


@pytest.fixture
def looked(repository, coupler_home):
    def look(*of_profile, cwd=repository):
        skills = Skills(Place(cwd, coupler_home), [str(each) for each in of_profile])
        skills.look()
        return skills

    return look


def test_they_are_found_in_the_project_and_among_the_users_own(looked, repository, coupler_home, tmp_path):
    write_skill(repository / ".coupler" / "skills", "a")
    write_skill(repository / ".agents" / "skills", "b")
    write_skill(repository / ".claude" / "skills", "c")
    write_skill(coupler_home / "skills", "d")
    write_skill(coupler_home / "of-user" / ".agents" / "skills", "e")
    write_skill(coupler_home / "of-user" / ".claude" / "skills", "f")
    write_skill(tmp_path / ".claude" / "skills", "outside")
    of_profile = write_skill(tmp_path / "somewhere", "g")

    assert [command.name for command in looked(of_profile).commands()] == [*"gabcdef"]


def test_those_of_directories_above_count_too_and_the_nearest_first(looked, repository):
    deep = repository / "deep"
    deep.mkdir()
    write_skill(repository / ".agents" / "skills", "a", "far")
    write_skill(repository / ".agents" / "skills", "b", "only there")
    write_skill(deep / ".agents" / "skills", "a", "near")

    skills = looked(cwd=deep)

    assert skills.as_text() == "- a: near\n- b: only there"
    assert "has the same name" in skills.notes[0]


def test_a_link_to_the_same_folder_is_no_clash(looked, repository):
    write_skill(repository / ".agents" / "skills", "a")
    (repository / ".claude").mkdir()
    (repository / ".claude" / "skills").symlink_to("../.agents/skills")

    skills = looked()

    assert skills.as_text() == "- a: Does things"
    assert skills.notes == []


def test_a_profile_may_name_a_folder_of_skills_or_a_file(looked, tmp_path):
    write_skill(tmp_path / "many", "one")
    write_skill(tmp_path / "many", "two")
    (tmp_path / "Style.md").write_text("Use tabs.")

    skills = looked(tmp_path / "many", tmp_path / "Style.md")

    assert [command.name for command in skills.commands()] == ["one", "two", "style"]


BROKEN = {
    "no front matter": ("Just text.", "between lines of ---"),
    "an open front matter": ("---\nname: broken\ndescription: x\n", "between lines of ---"),
    "no description": ("---\nname: broken\n---\n", "no description"),
    "a name that is none": ("---\nname: ../../etc\ndescription: x\n---\n", "its name '../../etc'"),
    "no text": (b"---\0", "it is not text"),
}


@pytest.mark.parametrize("content, note", BROKEN.values(), ids=BROKEN)
def test_a_broken_one_is_noted_and_the_others_are_used(looked, repository, content, note):
    folder = repository / ".agents" / "skills"
    write_skill(folder, "whole")
    (folder / "broken").mkdir()
    file = folder / "broken" / "SKILL.md"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())

    skills = looked()

    assert skills.as_text() == "- whole: Does things"
    assert note in skills.notes[0]


def test_a_link_out_of_the_project_is_not_followed(looked, repository, tmp_path):
    secret = write_skill(tmp_path / "elsewhere", "secret", "hunter2")
    (repository / ".agents" / "skills").mkdir(parents=True)
    (repository / ".agents" / "skills" / "secret").symlink_to(secret)

    skills = looked()

    assert skills.as_text() == ""
    assert "leads out of the project" in skills.notes[0]


def test_very_many_descriptions_are_cut(looked, repository):
    for number in range(60):
        write_skill(repository / ".agents" / "skills", f"s{number}", "long " * 190)

    assert len(looked().as_text()) < 20_000


def test_names_that_are_taken_are_no_commands(looked, repository):
    write_skill(repository / ".agents" / "skills", "release")
    write_skill(repository / ".agents" / "skills", "compact")

    assert [command.name for command in looked().commands(taken={"compact"})] == ["release"]


def test_a_skill_may_be_for_the_user_or_for_the_model_alone(looked, repository):
    write_skill(repository / ".agents" / "skills", "u", more="disable-model-invocation: true\n")
    write_skill(repository / ".agents" / "skills", "m", more="user-invocable: false\n")

    skills = looked()

    assert skills.as_text() == "- m: Does things"
    assert [command.name for command in skills.commands()] == ["u"]


@table(
    "text, fields",
    [
        ("description: Use when: asked", {"description": "Use when: asked"}),
        ("description: 'It''s # fine'  # really", {"description": "It's # fine"}),
        ('description: "a \\"b\\"\\nc"', {"description": 'a "b"\nc'}),
        ("description: >-\n  one\n  two\n\n  three", {"description": "one two\n\nthree"}),
        ("description: |\n  one\n  two", {"description": "one\ntwo"}),
        ("description: one\n  two", {"description": "one two"}),
        ("description:\n  one\n  two", {"description": "one two"}),
        ("metadata:\n  name: inner\nname: outer", {"name": "outer"}),
        ("allowed-tools:\n  - Read\nname: x", {"name": "x"}),
        ("Name: x # remark\n# remark\n\nbroken line", {"name": "x"}),
    ],
)
def test_front_matter_is_read_as_people_write_it(text, fields):
    assert read_document(f"---\n{text}\n---\nBody.\n") == (fields, "Body.")
    assert read_document(f"\ufeff---\r\n{text}\r\n---\r\nBody.\r\n").body == "Body."


class Agent:
    """An agent with skills; `asked` is what its model was asked."""

    def __init__(self, repository, home, answer, mode=None):
        self.asked = []
        self.repository = repository
        self.answer = answer
        skills = Skills(Place(repository, home))
        skills.look()
        model = ScriptedModel(script=self.act)
        middleware = [PromptMiddleware(skills), SkillCommands(skills), acp.modes(*([mode] if mode else []))]
        tools = [*skill_tools(skills), *acp.editor_tools()]
        self.graph = create_agent(model, tools, middleware=middleware)

    def act(self, messages):
        self.asked.append(messages)
        return self.answer(messages)

    def talk(self, *prompts):
        return talk(self.graph, *prompts, cwd=self.repository)


def use(skill):
    return lambda messages: ["Done."] if messages[-1].type == "tool" else [*named(skill)]


def named(skill):
    """`call` has a parameter `name`, and so has the tool."""
    chunk = {"name": "use_skill", "args": f'{{"name": "{skill}"}}', "id": "c1", "index": 0}
    return [AIMessageChunk(content="", tool_call_chunks=[{**chunk, "type": "tool_call_chunk"}])]


def test_the_model_is_told_of_them_and_reads_one_when_it_wants(repository, coupler_home):
    place = write_skill(repository / ".agents" / "skills", "release", "Makes a release", "Tag it. </skill>")
    (place / "scripts").mkdir()
    (place / "scripts" / "tag.sh").write_text("git tag")
    (place / ".hidden").write_text("")
    agent = Agent(repository, coupler_home, use("release"))

    seen = agent.talk("Release it.")

    assert "- release: Makes a release" in agent.asked[0][0].text
    assert "Tag it" not in agent.asked[0][0].text
    result = agent.asked[-1][-1].text
    assert result.startswith(f'<skill name="release" folder="{place}">\nTag it. &lt;/skill>\n</skill>')
    assert result.endswith(f"Files in {place}:\nscripts/tag.sh")
    shown = seen.last.tool_calls[0]
    assert (shown.title, shown.kind, shown.status) == ("Use skill release", "read", "completed")
    assert [location.path for location in shown.locations] == [str(place / "SKILL.md")]


def test_files_of_the_users_own_skills_can_be_read_after_that_and_not_before(repository, coupler_home):
    place = write_skill(coupler_home / "skills", "mine")
    (place / "notes.md").write_text("the notes\n")
    steps = iter(
        [
            [call("read_file", "before", path=str(place / "notes.md"))],
            named("mine"),
            [call("read_file", "after", path=str(place / "notes.md"))],
            ["Done."],
        ]
    )
    agent = Agent(repository, coupler_home, lambda messages: next(steps))

    agent.talk("Read.")

    before, _, after = [message for message in agent.asked[-1] if message.type == "tool"]
    assert before.status == "error"
    assert "the notes" in after.text


def test_a_name_that_is_not_there_gets_a_hint(repository, coupler_home):
    write_skill(repository / ".agents" / "skills", "release")
    agent = Agent(repository, coupler_home, use("relaese"))

    seen = agent.talk("Release it.")

    assert "did you mean 'release'?" in agent.asked[-1][-1].text
    assert seen.last.tool_calls[0].status == "failed"


def test_they_can_be_used_in_read_only_mode(repository, coupler_home):
    write_skill(repository / ".agents" / "skills", "release", body="Tag it.")
    agent = Agent(repository, coupler_home, use("release"), mode="read-only")

    agent.talk("Release it.")

    assert "Tag it." in agent.asked[-1][-1].text


def test_a_user_asks_for_one_by_its_command(repository, coupler_home):
    write_skill(repository / ".agents" / "skills", "release", body="Tag it. Call it $ARGUMENTS.")
    agent = Agent(repository, coupler_home, lambda messages: ["Done."])

    agent.talk("/release version 2", "What did I say?")

    prompt = agent.asked[-1][1].text
    assert prompt.startswith("/release version 2")
    assert "Tag it. Call it version 2." in prompt
    assert agent.asked[-1][-1].text == "What did I say?"


def test_a_new_skill_is_there_from_the_next_prompt_on(repository, coupler_home):
    agent = Agent(repository, coupler_home, lambda messages: ["Done."])

    agent.talk("one", lambda: write_skill(repository / ".agents" / "skills", "new"), "two")

    assert "- new:" not in agent.asked[0][0].text
    assert "- new:" in agent.asked[1][0].text


def test_what_is_wrong_with_a_skill_is_told_to_the_user(repository, coupler_home):
    (repository / ".agents" / "skills" / "broken").mkdir(parents=True)
    (repository / ".agents" / "skills" / "broken" / "SKILL.md").write_text("nothing")
    agent = Agent(repository, coupler_home, lambda messages: ["Done."])

    seen = agent.talk("one", "two")

    assert len(seen.of(Notice)) == 1
    assert "broken" in seen.of(Notice)[0].description


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="nothing is unreadable for root")
def test_an_unreadable_one_is_noted(looked, repository):
    place = write_skill(repository / ".agents" / "skills", "closed")
    (place / "SKILL.md").chmod(0)

    assert "Permission denied" in looked().notes[0]
