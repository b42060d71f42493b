"""The ledger: an id is announced once, only announced ids are updated, and nothing stays open."""

import asyncio
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from msgspec import UNSET

from agent.desk import Desk
from coupler.agent.tool_call import PACE, Ledger
from coupler.events import ToolOutput, ToolUpdate
from coupler.events.fold import text_content
from wire.stage import run, until


@pytest.fixture
def sent():
    return []


@pytest.fixture
def ledger(sent):
    return Ledger(sent.append)


class TestLedger:
    def test_an_announcement_is_reported_with_an_id_of_its_own(self, ledger, sent):
        id = ledger.announce("Read", kind="read")

        assert [(update.id, update.title, update.kind) for update in sent] == [(id, "Read", "read")]
        assert [call.id for call in ledger.open_calls] == [id]

    def test_an_id_of_the_agents_model_is_kept(self, ledger):
        assert ledger.announce("Read", id="toolu_1") == "toolu_1"

    @pytest.mark.parametrize("settled", [False, True])
    def test_an_id_is_announced_once(self, ledger, sent, settled):
        ledger.announce("Read", id="a")
        if settled:
            ledger.settle("a", "completed")
        before = [*sent]

        with pytest.raises(ValueError, match="'a' was announced before"):
            ledger.announce("Read again", id="a")
        assert sent == before

    @pytest.mark.parametrize(
        "change", [lambda ledger: ledger.update("a"), lambda ledger: ledger.settle("a", "failed")]
    )
    def test_only_announced_ids_are_updated(self, ledger, sent, change):
        with pytest.raises(ValueError, match="'a' was never announced"):
            change(ledger)
        assert sent == []

    @pytest.mark.parametrize("status", ["completed", "failed"])
    def test_nothing_follows_a_calls_end(self, ledger, sent, status):
        ledger.announce("Read", id="a")
        ledger.settle("a", status)
        before = [*sent]

        ledger.update("a", title="Late")
        ledger.settle("a", "failed")

        assert sent == before
        assert ledger.open_calls == ()

    def test_a_call_may_end_as_it_is_announced(self, ledger):
        ledger.announce("Read", id="a")
        ledger.update("a", status="completed")
        assert ledger.open_calls == ()

    def test_settling_all_ends_what_is_open_in_order_and_says_why(self, ledger, sent):
        ledger.announce("One", id="1")
        ledger.announce("Two", id="2")
        ledger.announce("Three", id="3")
        ledger.append("3", text_content("half"))
        ledger.settle("2", "completed")
        sent.clear()

        ledger.settle_all("failed", "boom")

        assert [(update.id, update.status) for update in sent] == [("1", "failed"), ("3", "failed")]
        assert sent[1].content == (text_content("half"), text_content("boom"))
        assert ledger.open_calls == ()

    def test_settling_in_good_order_leaves_the_content_alone(self, ledger, sent):
        ledger.announce("One", id="1")
        ledger.settle_all("completed")
        assert sent[-1].content is UNSET
        assert sent[-1].meta is UNSET

    def test_a_cancelled_call_says_so(self, ledger, sent):
        ledger.announce("One", id="1")
        ledger.settle_all("failed", "cancelled", cancelled=True)
        assert sent[-1].meta == {"coupler": {"outcome": "cancelled"}}

    @pytest.mark.parametrize(
        ("meta", "after"),
        [
            ({"coupler": {"step": "a"}}, {"coupler": {"step": "a", "outcome": "cancelled"}}),
            ({"other": 1}, {"other": 1, "coupler": {"outcome": "cancelled"}}),
            ({"coupler": "text"}, {"coupler": {"outcome": "cancelled"}}),
        ],
    )
    def test_a_cancelled_call_keeps_what_it_told_besides(self, ledger, sent, meta, after):
        ledger.announce("One", id="1", meta=meta)
        ledger.settle_all("failed", "cancelled", cancelled=True)
        assert sent[-1].meta == after

    def test_ids_of_earlier_turns_are_taken(self, ledger):
        ledger.know({"old"})
        with pytest.raises(ValueError, match="'old' was announced before"):
            ledger.announce("Read", id="old")
        assert ledger.open_calls == ()

    @pytest.mark.parametrize(
        "change",
        [
            lambda ledger: ledger.update("a", content=(text_content("x"),)),
            lambda ledger: ledger.announce("Read", content=(text_content("x"),)),
        ],
    )
    def test_content_is_appended_never_replaced(self, ledger, sent, change):
        ledger.announce("Read", id="a")
        before = [*sent]
        with pytest.raises(TypeError, match="`append`"):
            change(ledger)
        assert sent == before


@pytest.fixture
def recorded():
    return []


class TestOutput:
    @pytest.fixture
    def ledger(self, sent, recorded):
        ledger = Ledger(sent.append, recorded.append)
        ledger.announce("Run", id="a")
        sent.clear()
        recorded.clear()
        return ledger

    def test_the_first_piece_is_shown_at_once(self, ledger, sent):
        ledger.append("a", text_content("one"), starts=True)
        assert [(update.status, update.content) for update in sent] == [
            ("in_progress", (text_content("one"),))
        ]

    def test_what_follows_is_shown_together_a_moment_later(self, ledger, sent):
        async def scenario():
            for piece in ("one ", "two ", "three"):
                ledger.append("a", text_content(piece))
            assert shown_texts(sent) == ["one "]
            start = asyncio.get_running_loop().time()
            await until(lambda: len(sent) == 2)
            assert asyncio.get_running_loop().time() - start > PACE / 2

        run(scenario())
        assert shown_texts(sent) == ["one ", "one two three"]

    def test_a_call_that_starts_later_says_so_at_once(self, ledger, sent):
        async def scenario():
            ledger.append("a", text_content("one"))
            ledger.append("a", text_content("two"), starts=True)
            assert sent[-1].status == "in_progress"
            assert sent[-1].content is UNSET
            ledger.settle("a", "completed")

        run(scenario())

    def test_what_was_not_shown_yet_is_shown_at_the_end_and_nothing_after_it(self, ledger, sent):
        async def scenario():
            ledger.append("a", text_content("one "))
            ledger.append("a", text_content("two"))
            ledger.settle("a", "completed")
            await asyncio.sleep(2 * PACE)

        run(scenario())
        assert shown_texts(sent) == ["one ", "one two"]
        assert sent[-1].status == "completed"

    def test_a_settled_call_leaves_no_timer(self, ledger):
        async def scenario():
            loop = asyncio.get_running_loop()
            ledger.append("a", text_content("one "))
            ledger.append("a", text_content("two"))
            ledger.settle_all("failed", "over")
            return [timer for timer in loop._scheduled if not timer.cancelled() and "_show" in repr(timer)]

        assert run(scenario()) == []

    def test_what_was_shown_is_not_said_again_at_the_end(self, ledger, sent):
        ledger.append("a", text_content("one"))
        ledger.settle("a", "completed")
        assert sent[-1].content is UNSET

    def test_the_reason_of_a_failure_is_an_item_of_its_own(self, ledger, sent, recorded):
        ledger.append("a", text_content("one"))
        ledger.settle("a", "failed", "because")
        assert sent[-1].content == (text_content("one"), text_content("because"))
        assert recorded == [
            ToolOutput("a", text_content("one")),
            ToolOutput("a", text_content("because"), apart=True),
            ToolUpdate(id="a", status="failed"),
        ]

    def test_every_change_is_recorded_once_and_no_content_is(self, ledger, recorded):
        async def scenario():
            ledger.append("a", text_content("one"), starts=True)
            for _ in range(3):
                ledger.append("a", text_content("more"))
            ledger.update("a", title="Ran")
            ledger.settle("a", "completed")
            ledger.append("a", text_content("late"))

        run(scenario())
        assert recorded == [
            ToolUpdate(id="a", status="in_progress"),
            ToolOutput("a", text_content("one")),
            *[ToolOutput("a", text_content("more"))] * 3,
            ToolUpdate(id="a", title="Ran"),
            ToolUpdate(id="a", status="completed"),
        ]

    def test_what_an_open_call_shows_can_be_asked_for(self, ledger):
        async def scenario():
            ledger.append("a", text_content("one "))
            ledger.append("a", text_content("two"))
            assert ledger.content("a") == (text_content("one two"),)
            ledger.settle("a", "completed")
            assert ledger.content("a") == ()

        run(scenario())

    def test_only_announced_calls_show_something(self, ledger):
        with pytest.raises(ValueError, match="'b' was never announced"):
            ledger.append("b", text_content("x"))

    def test_a_hundred_thousand_characters_one_by_one_are_cheap(self, ledger, sent, recorded):
        async def scenario():
            piece = text_content("x")
            start = time.process_time()
            for number in range(100_000):
                ledger.append("a", piece)
                if number % 1000 == 0:
                    await asyncio.sleep(0)
            ledger.settle("a", "completed")
            return time.process_time() - start

        # Seconds; what is done for all pieces again with each one takes minutes.
        assert run(scenario()) < 10
        assert len(recorded) == 100_001
        assert "67.2 KB left out" in shown_texts(sent)[-1]

    @pytest.mark.parametrize(("count", "piece"), [(1000, 280), (2560, 4096), (100_000, 1)])
    def test_however_often_it_could_be_shown_what_is_sent_is_in_proportion(
        self, ledger, sent, count, piece, monkeypatch
    ):
        monkeypatch.setattr("coupler.agent.tool_call.PACE", 0.0)
        for number in range(count):
            ledger.append("a", text_content(f"{number}".ljust(piece)[: piece - 1] + "\n"))
        ledger.settle("a", "completed")
        assert sum(len(msgspec.json.encode(update)) for update in sent) <= 2 * count * piece + 512 * 1024


def shown_texts(sent):
    """The only text that each of the updates shows."""
    return [update.content[0].content.text for update in sent if update.content is not UNSET]


class LedgerMachine(RuleBasedStateMachine):
    """Any order of operations keeps what clients rely on."""

    calls = Bundle("calls")

    def __init__(self):
        super().__init__()
        self.sent = []
        # Calls wait for their moment in a loop.
        self.loop = asyncio.new_event_loop()
        asyncio.events._set_running_loop(self.loop)
        self.ledger = Ledger(self.sent.append)

    def teardown(self):
        asyncio.events._set_running_loop(None)
        self.loop.close()

    @rule(target=calls, id=st.none() | st.sampled_from("abc"))
    def announce(self, id):
        try:
            return self.ledger.announce("Work", id=id)
        except ValueError:
            return id

    @rule(id=calls)
    def update(self, id):
        self.ledger.update(id, status="in_progress")

    @rule(id=calls, status=st.sampled_from(["completed", "failed"]))
    def settle(self, id, status):
        self.ledger.settle(id, status)

    @rule(id=calls, starts=st.booleans())
    def append(self, id, starts):
        self.ledger.append(id, text_content("x"), starts=starts)

    @rule(id=consumes(calls))
    def forget(self, id):
        """Agent code that never touches its call again."""

    @rule(cancelled=st.booleans())
    def settle_all(self, cancelled):
        self.ledger.settle_all("failed", "over", cancelled=cancelled)
        assert self.ledger.open_calls == ()

    @invariant()
    def what_was_sent_makes_sense(self):
        open_ids = check_tool_updates(
            [(update.id, update.title is not UNSET, update.status) for update in self.sent]
        )
        assert open_ids == {call.id for call in self.ledger.open_calls}


TestAnyOrder = LedgerMachine.TestCase
TestAnyOrder.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def check_tool_updates(updates):
    """Check the life of every call in (id, is an announcement, status); returns the ids still open."""
    open_ids, ended = set(), set()
    for id, is_announcement, status in updates:
        assert id not in ended, f"{id} goes on after its end"
        assert is_announcement == (id not in open_ids), f"{id} is announced twice, or never"
        open_ids.add(id)
        if status in ("completed", "failed"):
            open_ids.discard(id)
            ended.add(id)
    return open_ids


# A program for an agent: what it does between yields to the loop. Nested lists run concurrently.
ACTIONS = st.sampled_from(
    [
        "say",
        "think",
        "plan",
        "open",
        "leak",
        "output",
        "locate",
        "close",
        "tick",
        "raise",
        "swallow",
        "spawn",
        "ask",
    ]
)
PROGRAMS = st.recursive(st.lists(ACTIONS, max_size=8), lambda inner: st.lists(inner | ACTIONS, max_size=4))


async def perform(turn, program):
    """Do what the program says, as carelessly as people do."""
    opened = []
    try:
        for action in program:
            await (_do(turn, action, opened) if isinstance(action, str) else _together(turn, action))
    finally:
        # The last one is closed as `async with` would, the others are left to the ledger.
        if opened:
            await opened[-1].__aexit__(None, None, None)


async def _together(turn, programs):
    await asyncio.gather(
        *(perform(turn, [program] if isinstance(program, str) else program) for program in programs)
    )


async def _do(turn, action, opened):
    match action:
        case "say":
            await turn.say("text")
        case "think":
            await turn.think("hm")
        case "plan":
            await turn.plan("a")
        case "open":
            opened.append(await turn.tool("Work").__aenter__())
        case "leak":
            await turn.tool("Leaked").__aenter__()
        case "output" if opened:
            await opened[-1].output("out")
        case "locate" if opened:
            await opened[0].locate("file")
        case "ask" if opened:
            await opened[-1].permitted()
        case "close" if opened:
            await opened.pop().__aexit__(None, None, None)
        case "tick":
            await asyncio.sleep(0)
        case "raise":
            raise ValueError("careless")
        case "swallow":
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                await turn.say("not yet")
        case "spawn":
            tasks.add(task := asyncio.create_task(_later(turn)))
            task.add_done_callback(tasks.discard)


async def _later(turn):
    try:
        async with turn.tool("Spawned") as call:
            await asyncio.sleep(0)
            await call.output("late")
    except (Exception, asyncio.CancelledError):
        return


tasks: set[asyncio.Task[None]] = set()


@settings(max_examples=150, deadline=None)
@given(PROGRAMS, st.none() | st.integers(0, 12), st.sampled_from(["cancel", "cancel_request", "leave"]))
def test_whatever_an_agent_does_and_whenever_it_is_cancelled_no_call_stays_open(program, moment, how):
    async def scenario():
        async def agent(turn):
            await perform(turn, program)

        desk = await Desk.open(agent)
        session = await desk.new_session()
        prompt = desk.prompt(session)
        if moment is not None:
            for _ in range(moment):
                await asyncio.sleep(0)
            if how == "leave":
                desk.leave()
            elif how == "cancel":
                desk.notify("session/cancel", {"sessionId": session})
            else:
                desk.notify("$/cancel_request", {"requestId": prompt})
        # Dialogs are answered as they come, one yes, one no.
        await desk.answer(prompt, permissions=["allow_once", "reject_once"])
        # Whatever the code left running goes on, and must not be heard any more.
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left)
        answer, updates, after = desk.around(prompt)

        assert [frame for frame in after if frame.get("method") == "session/update"] == []
        assert (
            check_tool_updates(
                [
                    (update["toolCallId"], update["sessionUpdate"] == "tool_call", update.get("status"))
                    for update in updates
                    if update["sessionUpdate"].startswith("tool_call")
                ]
            )
            == set()
        )
        assert "stopReason" in answer.get("result", {}) or answer["error"]["data"]["reason"] == "agent_failed"
        await desk.close()

    run(scenario())
