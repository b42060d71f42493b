"""Where workflows are found, what they are called, and which of their files have to be trusted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coupler.store.store import Store
from coupler.workflow.errors import InvalidWorkflowError, WorkflowError
from coupler.workflow.language.library import (
    Broken,
    Found,
    Library,
    trust_files,
    untrusted_files,
    untrusted_project_files,
)

PLAIN = "steps: [{run: make}]\n"


class Scene:
    """A project in a repository, and a user with workflows of their own."""

    def __init__(self, directory: Path) -> None:
        self.project = directory / "app"
        self.workflows = self.project / ".coupler" / "workflows"
        self.home = directory / "home"
        self.users = self.home / "workflows"
        for each in (self.project / ".git", self.project / "src", self.workflows, self.users):
            each.mkdir(parents=True)

    def library(self, where: str = "") -> Library:
        return Library(str(self.project / where), {"COUPLER_HOME": str(self.home), "HOME": str(self.home)})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path.resolve())


def names(library: Library) -> list[tuple[str, str, str]]:
    return [(type(each).__name__, each.name, each.origin) for each in library.all()]


class TestFinding:
    def test_the_projects_and_the_users_are_found_and_the_projects_counts(self, scene):
        (scene.workflows / "lint.yaml").write_text("description: ours\n" + PLAIN)
        (scene.workflows / "b.yml").write_text("name: build\n" + PLAIN)
        (scene.workflows / ".hidden.yaml").write_text(PLAIN)
        (scene.workflows / "notes.md").write_text("no workflow")
        (scene.users / "lint.yaml").write_text("description: mine\n" + PLAIN)
        (scene.users / "tidy.yaml").write_text(PLAIN)

        library = scene.library("src")

        assert names(library) == [
            ("Found", "build", "project"),
            ("Found", "lint", "project"),
            ("Found", "tidy", "user"),
        ]
        assert library.find("lint").description == "ours"

    def test_nothing_is_looked_for_above_the_repository(self, scene):
        above = scene.project.parent / ".coupler" / "workflows"
        above.mkdir(parents=True)
        (above / "lint.yaml").write_text(PLAIN)
        scene.workflows.rmdir()
        assert scene.library().all() == []

    def test_a_broken_file_hides_none_of_the_others(self, scene):
        (scene.workflows / "a.yaml").write_text("name: broken\nstps: []\n")
        (scene.workflows / "b.yaml").write_text(": : :")
        (scene.workflows / "c.yaml").mkdir()
        (scene.workflows / "d.yaml").write_text(PLAIN)

        library = scene.library()

        assert names(library) == [
            ("Broken", "b", "project"),
            ("Broken", "broken", "project"),
            ("Broken", "c", "project"),
            ("Found", "d", "project"),
        ]
        with pytest.raises(InvalidWorkflowError, match=r"a\.yaml:2:1: `stps` is no key of a workflow"):
            library.find("broken")

    def test_of_two_files_with_one_name_none_is_taken(self, scene):
        (scene.workflows / "a.yaml").write_text("name: lint\n" + PLAIN)
        (scene.workflows / "lint.yaml").write_text(PLAIN)
        (scene.users / "lint.yaml").write_text(PLAIN)
        with pytest.raises(
            InvalidWorkflowError, match=r"lint\.yaml:1:1: the name `lint` is taken by a\.yaml"
        ):
            scene.library().find("lint")

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            ("lnt", "there is no workflow `lnt`; did you mean `lint`? `coupler workflows list` shows those"),
            ("other", "there is no workflow `other`; did you mean the file `other.yaml`?"),
            ("xyz", "there is no workflow `xyz`: `coupler workflows list` shows those there are"),
            ("no/where.yaml", "there is no file {project}/no/where.yaml"),
            ("./othr.yaml", "there is no file {project}/othr.yaml; did you mean `other.yaml`?"),
            ("other.yml", "there is no file {project}/other.yml; did you mean `other.yaml`?"),
            ("./main.yaml", "there is no file {project}/main.yaml"),
            ("./link.yaml", "there is no file {project}/link.yaml"),
        ],
    )
    def test_what_is_not_there_is_told_with_the_nearest(self, scene, given, sentence):
        (scene.workflows / "lint.yaml").write_text(PLAIN)
        (scene.project / "other.yaml").write_text(PLAIN)
        (scene.project / "link.yaml").symlink_to("nowhere.yaml")
        with pytest.raises(WorkflowError) as raised:
            scene.library().find(given)
        told = str(raised.value).replace(str(scene.project), "{project}")
        assert told.startswith(sentence)
        assert ("did you mean" in told) is ("did you mean" in sentence)

    def test_a_path_starts_at_the_caller_and_a_name_does_not(self, scene):
        (scene.workflows / "main.yaml").write_text("steps: [{call: sub/inner.yaml}, {call: lint}]")
        (scene.workflows / "lint.yaml").write_text(PLAIN)
        (scene.workflows / "sub").mkdir()
        (scene.workflows / "sub" / "inner.yaml").write_text("steps: [{call: ../lint.yaml}]")

        bundle = scene.library("src").bundle_of("main")

        assert [each.name for each in bundle.workflows] == ["main", "inner", "lint"]

    def test_all_problems_of_all_files_are_raised_at_once(self, scene):
        (scene.workflows / "main.yaml").write_text(
            "steps: [{call: one.yaml}, {call: two.yaml}, {call: lnt}, {run: 'echo {{ inputs.x }}'}]"
        )
        (scene.workflows / "one.yaml").write_text("stps: []")
        (scene.workflows / "two.yaml").write_text("steps: [{run: 'echo {{ vars.x }}'}]")
        (scene.workflows / "lint.yaml").write_text(PLAIN)
        with pytest.raises(InvalidWorkflowError) as raised:
            scene.library().bundle_of("main")
        told = [(Path(each.position.file).name, each.message[:24]) for each in raised.value.problems]
        assert told == [
            ("main.yaml", "there is no workflow `ln"),
            ("main.yaml", "there is no input `x`; `"),
            ("two.yaml", "there is no variable `x`"),
            ("one.yaml", "`stps` is no key of a wo"),
        ]


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
class TestLinks:
    def test_a_projects_workflow_must_not_lead_out_of_it(self, scene, tmp_path):
        outside = tmp_path / "outside.yaml"
        outside.write_text(PLAIN)
        (scene.workflows / "a.yaml").symlink_to(outside)
        (scene.project / "inside.yaml").write_text(PLAIN)
        (scene.workflows / "b.yaml").symlink_to("../../inside.yaml")
        (scene.users / "c.yaml").symlink_to(outside)

        a, b, c = scene.library().all()

        assert isinstance(a, Broken)
        assert "leads out of the project" in a.problems[0].message
        assert isinstance(b, Found)
        assert isinstance(c, Found)

    @pytest.mark.parametrize(
        "step", ["{run_file: secret.txt}", "{call: other.yaml}", "{call: ../../../x.yaml}"]
    )
    def test_nor_may_the_files_and_workflows_that_it_names(self, scene, tmp_path, step):
        (tmp_path / "x.yaml").write_text(PLAIN)
        (tmp_path / "secret.txt").write_text("password")
        (scene.workflows / "main.yaml").write_text(f"steps: [{step}]")
        (scene.workflows / "secret.txt").symlink_to(tmp_path / "secret.txt")
        (scene.workflows / "other.yaml").symlink_to(tmp_path / "x.yaml")
        (problem,) = scene.library().check("main").errors
        assert "leads out of the project" in problem.message


class TestTrust:
    @pytest.fixture
    def trust(self, tmp_path: Path):
        store = Store.open(str(tmp_path / "coupler.db"))
        yield store.trust
        store.close()

    @pytest.fixture
    def main(self, scene: Scene) -> Path:
        """A workflow with a script beside it and one above, which calls the user's own and another one."""
        (scene.project / "script.sh").write_text("make")
        (scene.workflows / "prompt.sh").write_text("make")
        (scene.workflows / "lint.yaml").write_text(PLAIN)
        (scene.users / "mine.yaml").write_text("steps: [{run_file: own.sh}]")
        (scene.users / "own.sh").write_text("make")
        main = scene.workflows / "main.yaml"
        main.write_text(
            "steps: [{run_file: ../../script.sh}, {run_file: prompt.sh}, {call: lint}, {call: mine}]"
        )
        return main

    def untrusted(self, library: Library, given: str, trust) -> list[str]:
        files = untrusted_files(library.bundle_of(given), given, library, trust)
        return [Path(file.real_path).name for file in files]

    def test_a_name_needs_trust_for_every_file_of_the_project(self, scene, main, trust):
        library = scene.library()
        assert self.untrusted(library, "main", trust) == ["main.yaml", "script.sh", "prompt.sh", "lint.yaml"]
        assert self.untrusted(library, "main", None) == self.untrusted(library, "main", trust)
        assert self.untrusted(library, "mine", trust) == []

    def test_a_path_is_consent_for_what_is_below_its_directory(self, scene, main, trust):
        assert self.untrusted(scene.library(), ".coupler/workflows/main.yaml", trust) == ["script.sh"]

    @pytest.mark.skipif(sys.platform == "win32", reason="needs links")
    def test_a_link_out_of_the_directory_is_not_below_it(self, scene, main, trust):
        (scene.workflows / "prompt.sh").unlink()
        (scene.workflows / "prompt.sh").symlink_to("../../script.sh")
        main.write_text("steps: [{run_file: prompt.sh}]")
        assert self.untrusted(scene.library(), ".coupler/workflows/main.yaml", trust) == ["script.sh"]

    def test_what_is_trusted_is_the_content_that_was_shown(self, scene, main, trust):
        library = scene.library()
        files = untrusted_files(library.bundle_of("main"), "main", library, trust)
        (scene.workflows / "prompt.sh").write_text("rm -rf /")

        trust_files(trust, files)

        assert self.untrusted(scene.library(), "main", trust) == ["prompt.sh"]

    def test_those_of_a_project_are_all_files_of_its_workflows_once(self, scene, main, trust):
        (scene.workflows / "broken.yaml").write_text("stps: []")
        library = scene.library()
        files = untrusted_project_files(library, trust)
        assert [Path(file.path).name for file in files] == [
            "lint.yaml",
            "main.yaml",
            "script.sh",
            "prompt.sh",
        ]
        trust_files(trust, files)
        assert untrusted_project_files(library, trust) == []

    def test_so_does_the_code_of_python_agents_and_of_servers(self, scene, trust):
        for file in (scene.workflows / "beside.py", scene.project / "here.py", scene.project / "mod.py"):
            file.write_text("agent = None")
        (scene.workflows / "bin").mkdir()
        (scene.workflows / "bin" / "server").write_text("#!/bin/sh")
        (scene.workflows / "main.yaml").write_text(
            """
            mcp_servers: {s: {command: ./bin/server}, t: {command: npx}}
            agents: {mine: {agent: "beside.py:agent"}}
            steps:
              - {agent: mine, prompt: go}
              - {agent: "here.py:agent", prompt: go}
              - {converse: "mod:agent"}
              - {agent: claude, prompt: go}
            """
        )
        by_name = self.untrusted(scene.library(), "main", trust)
        by_path = self.untrusted(scene.library(), ".coupler/workflows/main.yaml", trust)

        assert by_name == ["main.yaml", "here.py", "mod.py", "beside.py", "server"]
        assert by_path == []

    def test_every_file_that_the_import_of_an_agent_runs_has_to_be_trusted(self, scene, trust):
        package = scene.project / "bots" / "one"
        package.mkdir(parents=True)
        (scene.project / "bots" / "__init__.py").write_text("")
        (package / "__init__.py").write_text("agent = None")
        # One of the same name beside the workflow is not the one that is imported.
        (scene.workflows / "bots").mkdir()
        (scene.workflows / "bots" / "one.py").write_text("agent = None")
        (scene.workflows / "main.yaml").write_text('steps: [{agent: "bots.one:agent", prompt: go}]')

        library = scene.library()
        files = untrusted_files(library.bundle_of("main"), "main", library, trust)

        named = {str(Path(file.real_path).relative_to(scene.project.resolve())) for file in files}
        assert {"bots/__init__.py", "bots/one/__init__.py"} < named

    def test_a_program_of_the_system_needs_no_trust_and_one_of_the_project_does(self, scene, trust):
        server = scene.project / "server"
        server.write_text("#!/bin/sh")
        (scene.workflows / "main.yaml").write_text(
            f"mcp_servers: {{s: {{command: {sys.executable}}}, t: {{command: '{server}'}}}}\n"
            "steps: [{agent: claude, prompt: go}]"
        )
        assert self.untrusted(scene.library(), "main", trust) == ["main.yaml", "server"]

    def test_an_agent_of_a_project_that_is_not_trusted_is_told_as_that(self, scene):
        (scene.project / "coupler.toml").write_text('[agents.mine]\ncommand = "my-agent"\n')
        (scene.workflows / "main.yaml").write_text("steps: [{agent: mine, prompt: go}]")
        (problem,) = scene.library().check("main").errors
        assert "`coupler trust`" in problem.message

    def test_a_run_is_not_resumed_with_changed_code_of_an_agent(self, scene):
        (scene.workflows / "mine.py").write_text("agent = None")
        (scene.workflows / "main.yaml").write_text('steps: [{agent: "mine.py:agent", prompt: go}]')
        here = str(scene.project)
        before = scene.library().bundle_of("main").digest_in(here)
        assert scene.library().bundle_of("main").digest_in(here) == before

        (scene.workflows / "mine.py").write_text("agent = 1")

        assert scene.library().bundle_of("main").digest_in(here) != before
