"""The conversation as it is seen: observations go in, parts come out in order, each once."""

from coupler.cli.chat.transcript import (
    AgentMarkdown,
    ContentNote,
    PlanPart,
    Remark,
    Tail,
    ThoughtPart,
    ToolCallPart,
    Transcript,
    UserText,
)
from coupler.client.observation import PermissionDecided, PromptSent, Received, TurnFinished
from coupler.client.policy import Decision
from coupler.client.reply import Reply
from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Info,
    Mode,
    Notice,
    Plan,
    Text,
    Thought,
    ToolCall,
    Usage,
)
from coupler.schema.v1 import Content as ToolContent
from coupler.schema.v1 import ImageContent, PermissionOption, PlanEntry, ResourceLink, TextContent
from tables import table


def seen(*events, transcript=None):
    """A transcript in the middle of a turn in which this happened."""
    transcript = transcript or Transcript()
    transcript.notice(PromptSent("s1", ()))
    for event in events:
        transcript.notice(Received("s1", event))
    return transcript


def ended(transcript, reason="end_turn"):
    transcript.notice(TurnFinished("s1", Reply("", reason)))
    return transcript


def call(status, id="c1", title="Run", **fields):
    return ToolCall(id=id, title=title, kind="execute", status=status, **fields)


def step(content, status="pending"):
    return PlanEntry(content, "medium", status)


def test_text_is_done_when_its_block_is_whole_and_in_the_tail_until_then():
    transcript = seen(Text("One.\n\nTw"), Text("o."))

    assert transcript.take() == []
    transcript.notice(Received("s1", Text("\n")))
    assert transcript.take() == [AgentMarkdown("One.\n\n")]
    assert transcript.tail() == Tail(answer="Two.\n")
    assert ended(transcript).take() == [AgentMarkdown("Two.\n")]
    assert not transcript.tail()


def test_a_call_is_in_the_tail_while_it_runs_and_done_once_it_has_ended():
    transcript = seen(Text("Let me look."), call("in_progress"))

    assert transcript.take() == [AgentMarkdown("Let me look.")]
    assert transcript.tail().calls == (ToolCallPart(1, call("in_progress")),)
    transcript.notice(Received("s1", call("completed")))
    transcript.notice(Received("s1", call("completed", raw_output={"late": True})))
    assert transcript.take() == [ToolCallPart(1, call("completed"))]
    assert not transcript.tail()
    assert transcript.numbered(1) == ToolCallPart(1, call("completed", raw_output={"late": True}))


def test_calls_at_one_time_are_done_in_the_order_in_which_they_end():
    transcript = seen(call("pending", "a"), call("pending", "b"), call("failed", "b"), call("completed", "a"))
    assert [(part.number, part.call.id) for part in transcript.take()] == [(2, "b"), (1, "a")]


def test_a_call_that_its_turn_leaves_open_is_shown_as_it_stands():
    assert ended(seen(call("in_progress"))).take() == [ToolCallPart(1, call("in_progress"))]


def test_thoughts_and_calls_are_numbered_together():
    transcript = ended(seen(Thought("Hm, "), Thought("well."), call("completed"), Text("Done.")))

    assert transcript.take() == [
        ThoughtPart(1, "Hm, well."),
        ToolCallPart(2, call("completed")),
        AgentMarkdown("Done."),
    ]
    assert transcript.numbered(1) == ThoughtPart(1, "Hm, well.")
    assert transcript.numbered() == ToolCallPart(2, call("completed"))
    assert transcript.numbered(0) is transcript.numbered(3) is None


def test_another_message_is_another_answer():
    transcript = ended(seen(Text("One", "m1"), Text(" more", "m1"), Text("Two", "m2")))
    assert transcript.take() == [AgentMarkdown("One more"), AgentMarkdown("Two")]


def test_a_plan_is_shown_when_it_is_made_and_its_progress_is_in_the_tail():
    transcript = seen(Plan((step("a"), step("b"))))
    assert transcript.take() == [PlanPart((step("a"), step("b")))]
    assert not transcript.tail()  # it stands right above

    transcript.notice(Received("s1", Plan((step("a", "completed"), step("b")))))
    assert transcript.take() == []
    assert transcript.tail().plan == (step("a", "completed"), step("b"))
    assert ended(transcript).take() == [PlanPart((step("a", "completed"), step("b")))]


def test_a_plan_that_was_carried_out_is_told_in_a_sentence():
    transcript = seen(Plan((step("a"),)), Plan((step("a", "completed"),)))
    transcript.take()
    assert ended(transcript).take() == [Remark("All 1 steps of the plan are done.")]


def test_a_plan_that_did_not_change_is_not_repeated():
    transcript = seen(Plan((step("a"),)))
    transcript.take()
    assert ended(transcript).take() == []


@table(
    ("reason", "sentence"),
    [
        ("cancelled", "The turn was cancelled."),
        ("refusal", "The agent refused to continue."),
        ("max_tokens", "The agent reached its limit of tokens."),
        ("\x1b[2Jtired", "The turn ended: tired."),
    ],
)
def test_a_turn_that_was_no_success_says_so(reason, sentence):
    assert ended(seen(), reason).take() == [Remark(sentence, severity="warning")]


def test_what_was_not_allowed_is_told_with_what_would_allow_it():
    no = PermissionOption("no", "No", "reject_once")
    yes = PermissionOption("yes", "Yes", "allow_once")
    transcript = seen()
    transcript.notice(PermissionDecided("s1", Decision(call("pending"), no, "use --permissions allow-all")))
    transcript.notice(PermissionDecided("s1", Decision(call("pending"), yes)))

    assert transcript.take() == [Remark("Not allowed: Run", "use --permissions allow-all", "warning")]


def test_a_history_is_told_with_what_the_user_had_said():
    transcript = Transcript()
    for event in [
        Content(TextContent("Fix "), "user"),
        Content(TextContent("it"), "user"),
        Content(ResourceLink(name="app.py", uri="file:///app.py"), "user"),
        Text("Fixed."),
        Content(TextContent("Thanks"), "user"),
    ]:
        transcript.notice(Received("s1", event))
    transcript.settle()

    assert transcript.take() == [
        UserText("Fix it [app.py (file:///app.py)]"),
        AgentMarkdown("Fixed."),
        UserText("Thanks"),
    ]


def test_what_the_user_says_now_is_not_repeated():
    assert ended(seen(Content(TextContent("Fix it"), "user"), Text("Yes."))).take() == [AgentMarkdown("Yes.")]


def test_a_history_that_is_on_the_screen_is_not_told_again():
    transcript = Transcript()
    transcript.is_muted = True
    transcript.notice(Received("s1", Text("Fixed.")))
    transcript.is_muted = False
    transcript.settle()
    assert transcript.take() == []


def test_what_a_terminal_cannot_show_is_named():
    image = Content(ImageContent("aGVsbG8=", "image/png"))
    assert seen(Text("Look: "), image).take() == [
        AgentMarkdown("Look: "),
        ContentNote("image, image/png, 5 bytes"),
    ]


def test_the_mode_is_remarked_upon_when_the_agent_changes_it():
    transcript = Transcript()
    transcript.mode = "ask"
    seen(Mode("ask"), Mode("auto"), Mode("auto"), transcript=transcript)
    assert transcript.take() == [Remark("The mode is now auto.")]


def test_notices_and_compactions_are_remarks():
    transcript = seen(
        Notice("warning", "Low\nfuel", "Two\nlines"),
        Compaction("k", "in_progress"),
        CompactionSummary("k", TextContent("A summary.")),
        Compaction("k", "completed"),
    )
    notice, begun, done = transcript.take()
    assert notice == Remark("Low fuel", "Two\nlines", "warning")
    assert begun == Remark("The earlier conversation is being summarized.")
    assert "A summary." in done.title


def test_title_and_usage_are_kept_for_the_line_about_the_agent():
    transcript = seen(Info("A \x1b[31mtitle"), Usage(5, 100))
    assert (transcript.title, transcript.usage) == ("A title", Usage(5, 100))
    assert transcript.take() == []


def test_another_session_goes_on_with_the_numbers_and_knows_nothing_of_the_calls():
    first = ended(seen(call("completed")))
    second = seen(call("completed", title="Other"), transcript=first.successor())

    assert second.take() == [ToolCallPart(2, call("completed", title="Other"))]
    assert second.numbered(1) == ToolCallPart(1, call("completed"))


@table(
    ("told", "ending"),
    [
        ({"raw_output": {"exitCode": 3}}, "exit code 3"),
        ({"raw_output": {"exit_code": 0}}, ""),
        ({"meta": {"terminal_exit": {"terminal_id": "t", "exit_code": 2, "signal": None}}}, "exit code 2"),
        ({"meta": {"exitCode": None, "signal": "SIG\x1b[2JKILL"}}, "ended by SIGKILL"),
        ({"raw_output": {"exitCode": True}}, ""),
        ({"raw_output": "exit code 3"}, ""),
    ],
)
def test_how_a_command_ended_is_read_from_what_the_agent_tells(told, ending):
    (part,) = seen(call("completed", **told)).take()
    assert (part.ending, part.has_failed) == (ending, bool(ending))


def test_a_call_that_writes_the_plan_is_shown_by_the_plan_alone():
    todos = [call(status, name="write_todos", title="Write todos") for status in ("in_progress", "completed")]
    transcript = seen(*todos, call("completed", "c2"), Plan((step("a"),)), *todos)
    assert not transcript.tail().calls
    assert ended(transcript).take() == [ToolCallPart(1, call("completed", "c2")), PlanPart((step("a"),))]


def test_a_call_that_writes_a_plan_which_is_not_told_or_fails_is_shown():
    todos = call("completed", title="TodoWrite")
    assert ended(seen(todos)).take() == [ToolCallPart(1, todos)]
    failed = call("failed", title="TodoWrite")
    assert ended(seen(Plan((step("a"),)), call("pending", title="TodoWrite"), failed)).take() == [
        PlanPart((step("a"),)),
        ToolCallPart(1, failed),
    ]


def test_of_a_line_that_a_command_writes_over_the_last_state_counts():
    output = ToolContent(TextContent("10%\r50%\r\nend\r\n"))
    (part,) = seen(call("completed", content=(output,))).take()
    assert part.call.content == (ToolContent(TextContent("50%\nend\n")),)
