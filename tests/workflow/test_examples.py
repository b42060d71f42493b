"""Each example workflow does what it says: run by the real command, with stubs of the programs it needs."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coupler.workflow.language.inputs import inputs_in_words
from coupler.workflow.language.library import Library
from coupler.workflow.language.model import Step, Workflow, all_steps
from coupler.workflow.language.reader import read_workflow
from coupler.workflow.validation.views import lists_of
from providers.model_server import ModelServer, Prepared, text
from tables import table
from workflow.http_site import Site
from workflow.project import Project

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "workflows"
FILES = sorted(EXAMPLES.glob("*.yaml"))
KINDS = {
    "Run", "Http", "Agent", "Converse", "Approve", "Ask", "Parallel", "ForEach", "While", "Call", "Set",
    "Stop", "Break", "Continue",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, unmeasured: None) -> Project:
    return Project(tmp_path)


def example(name: str) -> Path:
    return EXAMPLES / f"{name}.yaml"


# All of them


@table("file", FILES, ids=lambda file: file.stem)
def test_an_example_is_valid_and_called_as_its_file_and_says_how_it_is_run(file: Path) -> None:
    assert Library(str(EXAMPLES)).check(str(file)).errors == ()
    workflow = read_workflow(str(file))
    assert workflow.name == file.stem
    assert workflow.description
    assert [name for name, declared in workflow.inputs.items() if not declared.description] == []
    top = file.read_text().split("name:")[0]
    assert "# Needs: " in top
    assert _ways_to_run(top, workflow)


def test_the_examples_show_every_kind_of_step_and_what_steps_can_say() -> None:
    workflows = [read_workflow(str(file)) for file in FILES]
    steps = [step for workflow in workflows for step in _every_step(workflow)]

    assert {type(step).__name__ for step in steps} == KINDS
    for shown in (
        lambda step: step.retry and step.retry.backoff == "exponential",
        lambda step: step.on_error and step.on_error.of_kinds,
        lambda step: step.goto and step.goto.most,
        lambda step: step.gate and step.gate.question,
        lambda step: step.gate and step.gate.tools,
        lambda step: step.once,
        lambda step: step.env,
        lambda step: step.cwd,
        lambda step: getattr(step, "wait", None) == "any",
        lambda step: getattr(step, "wait", None) == "settled",
        lambda step: getattr(step, "file", None),
    ):
        assert any(map(shown, steps))
    assert all(any(getattr(each, name) for each in workflows) for name in ("secrets", "agents", "budget"))


def test_the_page_about_the_examples_has_each_of_them_and_no_other() -> None:
    page = (EXAMPLES.parent.parent / "docs" / "workflow-examples.md").read_text()

    headings = re.findall("^## (.*)$", page, re.MULTILINE)
    assert sorted(headings) == [file.stem for file in FILES]
    for file in FILES:
        section = page.split(f"\n## {file.stem}\n")[1].split("\n## ")[0]
        workflow = read_workflow(str(file))
        assert workflow.description in section
        assert [name for name in workflow.inputs if f"`{name}`" not in section] == []
        assert _ways_to_run(section, workflow)


def _ways_to_run(text: str, workflow: Workflow) -> list[str]:
    """The command lines that a text shows for a workflow; each has inputs that the workflow takes."""
    lines = re.findall(rf"coupler run {re.escape(workflow.name)}\.yaml(.*?)(?:   .*)?$", text, re.MULTILINE)
    for line in lines:
        inputs_in_words(shlex.split(re.sub(r"--answer \S+|--\S+|< .*", "", line)), workflow)
    return lines


def _every_step(workflow: Workflow) -> Iterator[Step]:
    for steps in lists_of(workflow):
        yield from all_steps(tuple(steps))


# One by one


def finding(title: str, severity: str) -> dict[str, Any]:
    return {"file": "app.py", "line": 1, "severity": severity, "title": title, "details": f"About {title}."}


@pytest.fixture
def branch(project: Project) -> Project:
    """A repository with a branch that changes something."""
    project.write("app.py", "a = 1\n")
    project.commit("Begin")
    project.git("checkout", "--quiet", "-b", "topic")
    project.write("app.py", "a = eval(input())\n")
    project.commit("Read a")
    return project


def test_review_fixes_what_two_agents_find_and_commits_after_a_yes(branch: Project) -> None:
    minor = [finding("Spaces", "low"), finding("Too hard", "medium")]
    claude = branch.agent("claude").answers({"says": {"findings": minor}})
    gemini = branch.agent("gemini").answers({"says": {"findings": [finding("Code from outside", "high")]}})
    codex = branch.agent("codex").answers(
        {"when": "Too hard", "fails": "I give up"},
        {"says": "Done.", "edits": {"app.py": "a = int(input())\n"}},
    )

    ran = branch.run(example("review"), "--yes")

    assert ran.exit_code == 0, ran
    titles = [found["title"] for found in ran.outputs["findings"]]
    assert titles == ["Spaces", "Too hard", "Code from outside"]
    assert "# How to review" in claude.prompts[0]
    assert all("+a = eval(input())" in prompt for prompt in (claude.prompts[0], gemini.prompts[0]))
    assert ["Too hard" in codex.prompts[0], "Code from outside" in codex.prompts[1]] == [True, True]
    assert codex.tools == [("Edit app.py", True)]
    assert branch.git("log", "-1", "--format=%B") == "Fix what a review has found\n\n- Code from outside"
    assert ran.outputs["commit"] == branch.git("rev-parse", "--short", "HEAD")
    assert branch.read("app.py") == "a = int(input())\n"


def test_review_leaves_the_fixes_uncommitted_after_a_no(branch: Project) -> None:
    branch.agent("claude").answers({"says": {"findings": []}})
    branch.agent("gemini").answers(
        {"says": "I found: nothing that is JSON", "times": 1},
        {"says": {"findings": [finding("Eval", "high")]}},
    )
    branch.agent("codex").answers({"says": "Done.", "edits": {"app.py": "a = 2\n"}})

    ran = branch.run(example("review"), "severity=high", "--no")

    assert ran.exit_code == 0, ran
    assert ran.statuses["gate"] == "denied"
    assert ran.statuses["commit"] == "skipped"
    assert branch.git("diff", "--name-only") == "app.py"


def test_review_touches_no_changes_of_the_user(branch: Project) -> None:
    branch.write("app.py", "a = 3\n")

    ran = branch.run(example("review"))

    assert ran.exit_code == 1, ran
    assert "Commit or stash" in ran.end["message"]


def test_fix_tests_goes_on_until_the_tests_pass(project: Project) -> None:
    project.write("core/check.sh", "grep -q right answer || { echo the answer is wrong; exit 1; }\n")
    project.write("core/answer", "bad\n")
    claude = project.agent("claude").answers(
        {"when": "Change nothing yet", "says": "It is wrong."},
        {"when": "Fix what you have found", "says": "Tried.", "edits": {"answer": "wrong\n"}},
        {"when": "still fail", "says": "Now.", "edits": {"answer": "right\n"}, "runs": ["git push"]},
    )

    ran = project.run(example("fix-tests"), "command=sh check.sh", "directory=core", "--yes")

    assert ran.exit_code == 0, ran
    assert ran.outputs == {"rounds": 2}
    assert "The tests pass after 2 rounds" in ran.end["message"]
    assert all("the answer is wrong" in prompt for prompt in claude.prompts)
    assert len({*claude.sessions}) == 1
    assert claude.tools == [("Edit answer", True), ("Edit answer", True), ("git push", False)]


def test_fix_tests_asks_before_anything_is_installed_and_gives_up(project: Project) -> None:
    claude = project.agent("claude").answers({"says": "I cannot.", "runs": ["pip install luck"]})

    ran = project.run(example("fix-tests"), "command=false", "--no")

    assert ran.exit_code == 3, ran
    assert "still fail after 5 rounds" in ran.end["message"]
    assert "I cannot." in ran.end["message"]
    assert len(claude.prompts) == 6
    assert {allowed for _, allowed in claude.tools} == {False}
    assert any("pip install luck" in asked["question"] for asked in ran.of("approval_asked"))


def test_commit_message_is_rewritten_until_it_is_wanted(project: Project) -> None:
    project.write("app.py", "a = 1\n")
    project.commit("Begin")
    project.write("app.py", "a = 2\n")
    project.git("add", "app.py")
    claude = project.agent("claude").answers(
        {"when": "Say two", "says": {"subject": "Set a to two", "body": ""}},
        {"says": {"subject": "Change a", "body": "It was one."}},
    )

    asked = project.run(example("commit-message"), "The one was a typo")
    assert asked.exit_code == 5, asked
    assert "Change a" in asked.of("answer_asked")[0]["question"]
    ran = project.resume(asked.id, "--answer", "wish=Say two", "--answer", "wish#2=yes")

    assert ran.exit_code == 0, ran
    assert "The one was a typo" in claude.prompts[0]
    assert "Begin" in claude.prompts[0]
    assert len(claude.prompts) == 2
    assert claude.loaded == [claude.sessions[0]]
    assert project.git("log", "-1", "--format=%B") == "Set a to two"


def test_commit_message_wants_something_staged(project: Project) -> None:
    project.write("app.py", "a = 1\n")
    project.commit("Begin")

    ran = project.run(example("commit-message"))

    assert ran.exit_code == 1, ran
    assert "git add" in ran.end["message"]


SECTIONS = {
    "sections": [
        {"title": "Added", "entries": ["You can count sheep.", "Sheep have `names`."]},
        {"title": "Fixed", "entries": []},
    ]
}


def test_changelog_puts_a_section_on_top_of_the_file(project: Project) -> None:
    project.write("CHANGELOG.md", "# Changelog\n\n## 1.0.0\n\n- Begun.\n")
    project.commit("Begin")
    project.git("tag", "v1.0.0")
    project.write("sheep.py", "count = 1\n")
    project.commit("Count sheep")
    claude = project.agent("claude").answers({"says": SECTIONS})

    ran = project.run(example("changelog"), "version=1.1.0")

    assert ran.exit_code == 0, ran
    assert ran.outputs == {"sections": SECTIONS["sections"][:1], "count": 2, "file": "CHANGELOG.md"}
    assert "Count sheep" in claude.prompts[0]
    assert "Begin" not in claude.prompts[0]
    assert project.read("CHANGELOG.md") == (
        "# Changelog\n\n## 1.1.0\n\n### Added\n\n- You can count sheep.\n- Sheep have `names`.\n"
        "\n## 1.0.0\n\n- Begun.\n"
    )


def test_release_publishes_once_and_masks_the_token(project: Project, tmp_path: Path) -> None:
    project.write("app.py", "a = 1\n")
    project.commit("Begin")
    project.git("init", "--quiet", "--bare", str(tmp_path / "origin.git"))
    project.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    project.agent("claude").answers({"says": SECTIONS})
    project.program("gh", 'cat > notes.txt; echo "$GH_TOKEN" > token.txt; echo https://example.com/v1.0.0')
    project.env["GH_TOKEN"] = "very-secret-token"
    words = ("version=1.0.0", "test=test $CI = true", "build=echo built $VERSION > built.txt", "--yes")

    ran = project.run(example("release"), *words)

    assert ran.exit_code == 0, ran
    assert ran.outputs == {"tag": "v1.0.0", "release": "https://example.com/v1.0.0"}
    assert project.calls("gh") == ["release create v1.0.0 --title 1.0.0 --notes-file -"]
    assert "- You can count sheep." in project.read("notes.txt")
    assert project.read("token.txt") == "very-secret-token\n"
    assert "very-secret-token" not in ran.stdout + ran.stderr
    assert project.read("built.txt") == "built 1.0.0\n"
    assert project.git("--git-dir", str(tmp_path / "origin.git"), "tag") == "v1.0.0"
    assert project.git("show", "--stat", "--format=%s", "v1.0.0^{commit}").startswith("Release 1.0.0")

    again = project.run(example("release"), *words)
    assert again.exit_code == 1, again
    assert project.calls("gh")[1:] == []


def test_release_stops_where_a_check_fails_and_after_a_no(project: Project, tmp_path: Path) -> None:
    project.write("app.py", "a = 1\n")
    project.commit("Begin")
    project.git("remote", "add", "origin", str(project.directory))
    project.agent("claude").answers({"says": SECTIONS})
    project.env["GH_TOKEN"] = "very-secret-token"

    failed = project.run(example("release"), "version=1.0.0", "test=exit 4", "build=true")
    denied = project.run(example("release"), "version=1.0.0", "test=true", "build=true")
    project.env.pop("GH_TOKEN")
    without_token = project.coupler("run", str(example("release")), "version=1.0.0", "--quiet")

    assert failed.exit_code == 3, failed
    assert "The release of 1.0.0 failed: checks.test: " in failed.result("hooks.error.run_1")["stderr"]
    assert denied.exit_code == 130, denied
    told = denied.result("hooks.cancel.run_1")["stderr"]
    assert "?? CHANGELOG.md" in told
    assert f"coupler resume {denied.id}" in told
    assert project.git("tag") == ""
    assert without_token.exit_code == 1
    assert "GH_TOKEN" in without_token.stderr


def test_triage_judges_issues_beside_each_other_and_writes_all_of_them(project: Project) -> None:
    issues = [
        {"number": 7, "title": "It crashes", "body": "Always."},
        {"number": 8, "title": "Hm", "body": None},
    ]
    project.write("issues.json", json.dumps(issues))
    judged = {"kind": "bug", "area": "api", "priority": "high", "reason": 'It says "always".'}
    crash, odd = text(json.dumps(judged)), text("I would rather not.")

    class Server(ModelServer):
        def answer_to(self, request: dict[str, Any]) -> Prepared:
            return crash if "It crashes" in json.dumps(request) else odd

    with Server(crash) as server:
        project.env |= {
            "OPENAI_BASE_URL": server.url,
            "OPENAI_MODEL": "small",
            "OPENAI_API_KEY": "k-123456789",
        }
        ran = project.run(example("triage"), "issues=issues.json")

    assert ran.exit_code == 0, ran
    assert ran.outputs == {"report": "triage.csv", "judged": 1, "open": 1}
    assert project.read("triage.csv").splitlines() == [
        "number,kind,area,priority,reason",
        '7,bug,"api",high,"It says ""always""."',
        '8,,,,"not judged: invalid_output"',
    ]
    assert {request["model"] for request in server.requests} == {"small"}


def test_translate_translates_what_has_changed(project: Project) -> None:
    project.write("README.md", "Hello\n")
    project.write("docs/index.md", "Goodbye\n")
    gemini = project.agent("gemini").answers(
        {"when": "(?s)into German.*Hello", "says": "Hallo"},
        {"when": "(?s)into German.*Goodbye", "says": "Tschüss"},
        {"when": "(?s)into French.*Hello", "says": "Bonjour"},
        {"when": "(?s)into French.*Goodbye", "says": "Au revoir"},
    )
    words = ("files=README.md,docs/index.md", "languages=German,French")

    first = project.run(example("translate"), *words)
    project.write("docs/index.md", "Goodbye, world\n")
    second = project.run(example("translate"), *words)

    assert first.exit_code == 0, first
    assert first.outputs["written"] == [
        "translations/german/README.md",
        "translations/french/README.md",
        "translations/german/docs/index.md",
        "translations/french/docs/index.md",
    ]
    assert project.read("translations/german/README.md") == "Hallo\n"
    assert "| commit | Commit |" in gemini.prompts[0]
    assert second.exit_code == 0, second
    assert second.outputs["written"] == [
        "translations/german/docs/index.md",
        "translations/french/docs/index.md",
    ]
    assert len(gemini.prompts) == 6


def test_second_opinion_weighs_the_answers_of_those_who_have_one(project: Project) -> None:
    claude = project.agent("claude").answers(
        {"when": "<answer", "says": "A queue, then."}, {"says": "A queue."}
    )
    project.agent("codex").answers({"fails": "out of credit"})
    project.agent("gemini").answers({"says": "A cron job."})

    ran = project.run(example("second-opinion"), "Queue", "or", "cron?")

    assert ran.exit_code == 0, ran
    assert ran.outputs == {"answer": "A queue, then."}
    assert claude.prompts[0] == "Queue or cron?"
    assert '<answer number="1">\nA queue.\n</answer>' in claude.prompts[1]
    assert '<answer number="2">\nA cron job.\n</answer>' in claude.prompts[1]
    assert ran.statuses["opinions.codex"] == "failed"


def test_second_opinion_takes_the_first_answer_if_it_is_in_a_hurry(project: Project) -> None:
    project.agent("claude").answers({"fails": "out of credit"})
    codex = project.agent("codex").answers({"hangs": True})
    project.agent("gemini").answers({"says": "git reflog"})

    ran = project.run(example("second-opinion"), "fast=true", "Undo a rebase?")

    assert ran.exit_code == 0, ran
    assert ran.outputs == {"answer": "git reflog"}
    assert ran.statuses["race.codex_first"] == "cancelled"
    assert "verdict" not in ran.statuses
    assert len(codex.prompts) <= 1


def test_explain_talks_about_the_repository_and_takes_notes(project: Project) -> None:
    project.write("app.py", "a = 1\n")
    project.commit("Begin")
    claude = project.agent("claude").answers(
        {"when": "Explain this repository", "says": "It sets a."},
        {"when": "Why", "says": "For fun."},
        {"when": "Write down", "says": "# Notes\n\nFor fun."},
    )

    parked = project.run(example("explain"), "notes=NOTES.md")
    ran = project.resume(parked.id, "--answer", "talk=Why?")

    assert parked.exit_code == 5, parked
    assert "app.py" in claude.prompts[0]
    assert ran.exit_code == 0, ran
    assert ran.outputs == {"overview": "It sets a."}
    assert len(claude.prompts) == 3
    assert {*claude.sessions} == {claude.sessions[0]}
    assert claude.sessions[0] in claude.loaded
    assert project.read("NOTES.md") == "# Notes\n\nFor fun.\n"


def test_upgrade_dependencies_keeps_what_passes_the_tests(project: Project) -> None:
    outdated = {
        name: {"current": "1.0.0", "wanted": "1.0.0", "latest": "2.0.0"}
        for name in ("easy", "hard", "broken", "unwanted")
    }
    project.write("outdated.json", json.dumps(outdated))
    project.write("package.json", "{}\n")
    project.write("code.js", "old\n")
    project.commit("Begin")
    project.program(
        "npm",
        """
        case "$*" in
          outdated*) cat outdated.json; exit 1;;
          install\\ *@*) echo "$2" > package.json;;
          test) case "$(cat package.json code.js)" in hard*old|broken*) echo it fails; exit 1;; esac;;
        esac
        """,
    )
    item = {"id": "item_0", "type": "agent_message", "text": "Adapted."}
    project.native("codex").says(
        [
            {"line": {"type": "thread.started", "thread_id": "t-1"}},
            {"write": ["code.js", "new\n"]},
            {"line": {"type": "item.completed", "item": item}},
            {"line": {"type": "turn.completed", "usage": {"input_tokens": 9, "output_tokens": 1}}},
        ]
    )

    ran = project.run(example("upgrade-dependencies"), "only=easy,hard,broken")

    assert ran.exit_code == 0, ran
    assert ran.outputs["summary"] == [
        "easy 1.0.0 2.0.0 upgraded",
        "hard 1.0.0 2.0.0 adapted",
        "broken 1.0.0 2.0.0 kept as it was",
        "unwanted 1.0.0 2.0.0 not wanted",
    ]
    assert project.git("log", "--format=%s").splitlines() == [
        "Upgrade hard to 2.0.0",
        "Upgrade easy to 2.0.0",
        "Begin",
    ]
    assert project.git("status", "--porcelain", "--untracked-files=no") == ""
    asked = project.native("codex").runs
    assert ["hard" in asked[0]["stdin"], "broken" in asked[1]["stdin"], len(asked)] == [True, True, 2]
    assert "it fails" in asked[0]["stdin"]
    assert any("workspace-write" in word for word in asked[0]["argv"])


def test_health_check_reports_and_has_an_exit_code(project: Project) -> None:
    project.program("curl", 'case "$*" in *down*) echo refused >&2; exit 7;; esac')
    project.program(
        "df", 'printf "Filesystem 1024-blocks Used Available Capacity Mounted\\n/ 9 8 1 20%% /\\n"'
    )

    well = project.run(example("health-check"), "urls=https://a.example/,https://b.example/")
    ill = project.run(example("health-check"), "urls=https://a.example/,https://down.example/", "free=90")

    assert well.exit_code == 0, well
    assert well.outputs["report"].splitlines() == [
        "ok    https://a.example/",
        "ok    https://b.example/",
        "ok    disk: 80 % free",
    ]
    assert ill.exit_code == 10, ill
    assert ill.end["message"].splitlines() == [
        "ok    https://a.example/",
        "DOWN  https://down.example/: refused",
        "FULL  disk: 80 % free",
    ]
    assert sum("down.example" in words for words in project.calls("curl")) == 3


def test_open_issues_reads_pages_until_one_is_empty_and_leaves_pull_requests_out(project: Project) -> None:
    site = Site()
    pages = ([{"number": 1, "title": "Slow"}, {"number": 2, "title": "Fix", "pull_request": {}}],)
    for page in (*pages, [{"number": 3, "title": "Wrong"}], []):
        site.says("/repos/a/b/issues", page)
    project.env |= {"GITHUB_TOKEN": "token-of-a-test-4711", "no_proxy": "*"}

    ran = project.run(example("open-issues"), "repository=a/b", f"api={site.url}", "label=bug,ui")
    site.close()

    assert ran.exit_code == 0, ran
    assert ran.outputs == {"issues": "#1  Slow\n#3  Wrong", "count": 2}
    query = "state=open&labels=bug%2Cui&per_page=100&page="
    assert site.paths == [f"/repos/a/b/issues?{query}{page}" for page in (1, 2, 3)]
    assert site.asked[0][2]["authorization"] == "Bearer token-of-a-test-4711"
    assert "token-of-a-test" not in ran.stdout
