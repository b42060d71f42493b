"""The arguments of `/resume`: a run's id, inputs and `--force`."""

from __future__ import annotations

from coupler.workflow.editor.arguments import PromptText
from coupler.workflow.editor.workflow_agent import ResumeRequest
from tables import table


@table(
    ("typed", "meant"),
    [
        ("", ResumeRequest()),
        ("build-7f3k2", ResumeRequest("build-7f3k2")),
        ("token=a b", ResumeRequest(inputs="token=a b")),
        ("build-7f3k2\n token=a  b", ResumeRequest("build-7f3k2", "token=a  b")),
        ("--force", ResumeRequest(is_forced=True)),
        ("build-7f3k2 --force token=a", ResumeRequest("build-7f3k2", "token=a", is_forced=True)),
        ("--force build-7f3k2", ResumeRequest("build-7f3k2", is_forced=True)),
        ("token=a --force", ResumeRequest(inputs="token=a --force")),
        ("-i token=a", ResumeRequest(inputs="-i token=a")),
        ("build-7f3k2 two", ResumeRequest("build-7f3k2", "two")),
    ],
)
def test_a_run_its_secrets_and_whether_it_may_have_changed(typed: str, meant: ResumeRequest) -> None:
    assert ResumeRequest.of(PromptText(typed)) == meant
