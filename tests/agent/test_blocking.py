"""Plain functions as agents: a worker thread and a Turn that blocks."""

import asyncio

import psutil
import pytest

from agent.steps import (
    asks,
    begin,
    cancel,
    end_of,
    error_of,
    final_call,
    still_serves,
    text_of,
    tool_updates,
    update_of,
)
from coupler.agent.blocking import (
    BlockingCall,
    BlockingCompacting,
    BlockingMcp,
    BlockingPlan,
    BlockingTerminal,
    BlockingTurn,
)
from coupler.agent.mcp_servers import TurnMcp
from coupler.agent.terminal import Terminal
from coupler.agent.tool_call import Call
from coupler.agent.turn import Compacting, Plan, Turn
from coupler.runtime.threads import WorkerLoop
from raw_client import texts
from tables import table


def test_a_plain_function_says_thinks_plans_and_calls_tools(converse):
    client, session = converse("""
        def agent(turn):
            turn.think("hm")
            plan = turn.plan("a", "b")
            plan.start("a")
            plan.complete(0)
            plan.add("c", priority="low")
            plan.prioritize("c", "high")
            with turn.tool("Work", kind="edit", path="x.py", line=3, input={"a": 1}) as call:
                call.output("out")
                call.diff("x.py", None, "new")
                call.locate("y.py", 4)
                call.retitle(f"Worked as {bool(call.id)}")
                call.input({"a": 2})
                call.result([1])
            turn.say(f"{turn.text} {len(turn.blocks)} {turn.session.cwd} {turn.editor.offers('terminal')}")
            return "max_tokens"
    """)

    updates, answer = client.prompt(session, "hello")

    assert texts(updates) == "hello 1 / False"
    assert [len(update["entries"]) for update in updates if update["sessionUpdate"] == "plan"] == [
        2,
        2,
        2,
        3,
        3,
    ]
    call = final_call(updates)
    assert (call["status"], call["title"], call["rawInput"], call["rawOutput"]) == (
        "completed",
        "Worked as True",
        {"a": 2},
        [1],
    )
    assert answer["result"] == {"stopReason": "max_tokens"}


def test_a_plain_prompt_method_runs_in_a_thread_too(converse):
    client, session = converse("""
        import threading
        from coupler import Agent
        class Plain(Agent):
            def prompt(self, turn):
                turn.say("main" if threading.current_thread() is threading.main_thread() else "worker")
    """)

    assert texts(client.prompt(session)[0]) == "worker"


def test_blocking_code_holds_up_nobody(converse):
    client, session = converse("""
        import threading
        both = threading.Barrier(2)
        def agent(turn):
            turn.say("started")
            both.wait()
    """)
    first = begin(client, session)
    assert error_of(client.call("session/prompt", {"sessionId": session, "prompt": []})) == (
        -32600,
        "session_busy",
    )

    _, answer = client.prompt(client.new_session())

    assert answer["result"] == {"stopReason": "end_turn"}
    assert client.answer_to(first)["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("raise LookupError('gone')", "LookupError: gone"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("next(iter([]))", "RuntimeError: the agent's code raised StopIteration"),
        ("return 'nonsense'", "ValueError: the agent returned 'nonsense'"),
    ],
)
def test_what_it_raises_ends_its_turn_alone(converse, statement, message):
    client, session = converse(f"""
        def agent(turn):
            turn.say("started")
            if turn.text == "fail":
                {statement}
    """)

    answer = client.prompt(session, "fail")[1]

    assert error_of(answer) == (-32603, "agent_failed")
    assert answer["error"]["message"].startswith(message)
    assert client.prompt(session)[1]["result"] == {"stopReason": "end_turn"}


def test_a_function_that_cancels_itself_is_no_cancelled_turn(converse):
    client, session = converse("""
        import asyncio
        def agent(turn):
            raise asyncio.CancelledError
    """)

    assert error_of(client.prompt(session)[1]) == (-32800, "cancelled")


def test_a_thread_that_outlives_the_loop_gets_the_cancel():
    loop = asyncio.new_event_loop()
    ours = WorkerLoop(loop)
    loop.close()

    async def report(): ...

    with pytest.raises(asyncio.CancelledError, match="the connection has ended"):
        ours.wait_for(report())
    ours.call_soon(print)


def test_an_exception_in_a_tool_fails_it(converse):
    client, session = converse("""
        def agent(turn):
            try:
                with turn.tool("Work"):
                    raise OSError("disk full")
            except OSError:
                turn.say("went on")
    """)

    updates, _ = client.prompt(session)

    assert text_of(final_call(updates)) == "OSError: disk full"
    assert texts(updates) == "went on"


@pytest.mark.parametrize(("option", "expected"), [("allow_once", "True"), ("reject_once", "False")])
def test_it_can_ask_the_user(converse, option, expected):
    client, session = converse("""
        def agent(turn):
            with turn.tool("Delete") as call:
                turn.say(str(call.permitted()))
    """)
    request = client.prompt_request(session, "")
    client.send(request)
    *_, question = client.read_until(asks("session/request_permission"))

    client.send({"id": question["id"], "result": {"outcome": {"outcome": "selected", "optionId": option}}})

    assert texts(end_of(client, request)[0]) == expected


def test_a_call_that_asks_at_once_is_not_reported_as_running_before_the_answer(converse):
    client, session = converse("""
        def agent(turn):
            with turn.tool("Delete") as call:
                call.permitted()
    """)
    request = client.prompt_request(session, "")
    client.send(request)

    *before, question = client.read_until(asks("session/request_permission"))

    assert [frame["params"]["update"]["status"] for frame in before] == ["pending"]
    client.send({"id": question["id"], "result": {"outcome": {"outcome": "cancelled"}}})
    end_of(client, request)


def test_it_can_ask_the_client_for_a_file(converse):
    client, session = converse(
        """
        from coupler.schema.v1 import ReadTextFileRequest

        def agent(turn):
            turn.say(turn.call_editor(ReadTextFileRequest(turn.session.id, "/notes")).content)
    """,
        fs={"readTextFile": True},
    )
    request = client.prompt_request(session, "")
    client.send(request)
    *_, question = client.read_until(asks("fs/read_text_file"))

    client.send({"id": question["id"], "result": {"content": "unsaved"}})

    assert texts(end_of(client, request)[0]) == "unsaved"


def test_it_runs_commands_which_show_in_the_innermost_open_call_of_their_thread(converse):
    client, session = converse("""
        def agent(turn):
            with turn.tool("Outer", id="outer"):
                with turn.tool("Inner", id="inner"):
                    turn.terminal.run("echo", "inside")
                turn.terminal.run("echo", "outside")
            finished = turn.terminal.run("cat", input="alone", env={"A": "b"}, timeout=20)
            turn.say(f"{finished.exit_code} {finished.output}")
    """)

    updates, _ = client.prompt(session)

    shown = {update["toolCallId"]: text_of(update) for update in tool_updates(updates) if text_of(update)}
    assert [shown.pop("inner"), shown.pop("outer"), *shown.values()] == ["inside\n", "outside\n", "alone"]
    assert texts(updates) == "0 alone"


def test_it_tells_what_stands_beside_the_conversation(converse):
    client, session = converse("""
        def agent(turn):
            turn.usage(10, 100, cost=0.5)
            turn.notice("Low on disk", "Free some.", severity="warning")
            with turn.compaction() as compaction:
                compaction.summarize("It was long.")
            turn.say(f"{turn.command}")
    """)

    updates, answer = client.prompt(session)

    assert [update["used"] for update in updates if update["sessionUpdate"] == "usage_update"] == [10]
    said = texts(updates)
    assert "Warning: Low on disk" in said
    assert "It was long." in said
    assert said.endswith("None")
    assert answer["result"] == {"stopReason": "end_turn"}


def test_a_cancel_ends_the_command_that_a_thread_waits_for(converse):
    client, session = converse("""
        def agent(turn):
            turn.terminal.run("/bin/sh", "-c", "echo started; exec sleep 60")
    """)
    request = client.prompt_request(session, "")
    client.send(request)
    client.read_until(lambda frame: text_of(update_of(frame)) == "started\n")

    client.send(cancel(session))

    updates, answer = end_of(client, request)
    assert updates[-1]["status"] == "failed"
    assert answer["result"] == {"stopReason": "cancelled"}
    assert psutil.Process(client.process.pid).children() == []


@table(
    ("plain", "blocking"),
    [
        (Turn, BlockingTurn),
        (Plan, BlockingPlan),
        (Call, BlockingCall),
        (Terminal, BlockingTerminal),
        (Compacting, BlockingCompacting),
        (TurnMcp, BlockingMcp),
    ],
)
def test_everything_that_a_coroutine_can_do_a_plain_function_can_do(plain, blocking):
    inner = {"report", "check_alive", "begin_new_message", "end", "open", "is_alive", "own", "say_apart"}
    offered = {name for name in vars(plain) if not name.startswith("_")} - inner
    assert offered - {"start"} <= set(vars(blocking))


def test_a_cancel_is_answered_at_once_and_the_thread_gets_it_from_its_next_report(converse):
    client, session = converse("""
        import threading
        cancelled, outcome = threading.Event(), []
        def agent(turn):
            global thread
            if turn.text == "how did it end?":
                cancelled.set()
                thread.join()
                turn.say(outcome[0])
                return
            thread = threading.current_thread()
            with turn.tool("Stuck"):
                turn.say("started")
                cancelled.wait()
                try:
                    turn.say("late")
                except BaseException as error:
                    outcome.append(type(error).__name__)
                    raise
    """)
    request = begin(client, session)

    client.send(cancel(session))

    updates, answer = end_of(client, request)
    assert updates[-1]["status"] == "failed"
    assert answer["result"] == {"stopReason": "cancelled"}
    assert texts(client.prompt(session, "how did it end?")[0]) == "CancelledError"


def test_a_cancel_wakes_a_thread_that_waits_for_the_user_and_takes_the_question_back(converse):
    client, session = converse("""
        import queue
        outcomes = queue.Queue()
        def agent(turn):
            if turn.text == "how did it end?":
                turn.say(outcomes.get())
                return
            try:
                with turn.tool("Delete") as call:
                    call.permitted()
            except BaseException as error:
                outcomes.put(type(error).__name__)
                raise
    """)
    request = client.prompt_request(session, "")
    client.send(request)
    *_, question = client.read_until(asks("session/request_permission"))

    client.send(cancel(session))

    *_, taken_back = client.read_until(lambda frame: frame.get("method") == "$/cancel_request")
    assert taken_back["params"] == {"requestId": question["id"]}
    assert client.answer_to(request)["result"] == {"stopReason": "cancelled"}
    client.send(prompt := client.prompt_request(session, "how did it end?"))
    assert "CancelledError" in texts(end_of(client, prompt)[0])


def test_a_thread_that_hangs_does_not_keep_the_process(converse):
    client, session = converse("""
        import threading
        def agent(turn):
            turn.say("started")
            threading.Event().wait()
    """)
    begin(client, session)

    client.close_stdin()

    assert client.wait() == 0
    assert client.rest()[-1]["result"] == {"stopReason": "cancelled"}


def test_a_thread_that_goes_on_after_its_turn_writes_nothing(converse):
    client, session = converse("""
        import threading
        outcome, over = [], threading.Event()
        def afterwards(turn):
            over.wait()
            try:
                turn.say("late")
            except Exception as error:
                outcome.append(type(error).__name__)
        def agent(turn):
            global thread
            if turn.text == "second":
                over.set()
                thread.join()
                turn.say(outcome[0])
            else:
                thread = threading.Thread(target=afterwards, args=[turn], daemon=True)
                thread.start()
    """)
    client.prompt(session, "first")

    assert texts(client.prompt(session, "second")[0]) == "TurnEndedError"
    still_serves(client)


def test_several_threads_of_one_agent_may_report_at_once(converse):
    client, session = converse("""
        from concurrent.futures import ThreadPoolExecutor
        def agent(turn):
            def work(i):
                with turn.tool(f"Work {i}", id=f"{i}") as call:
                    call.output(f"{i}")
                    turn.say(f"{i} ")
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(work, range(40)))
    """)

    updates, _ = client.prompt(session)

    assert sorted(map(int, texts(updates).split())) == list(range(40))
    ends = {update["toolCallId"]: update["status"] for update in updates if "status" in update}
    assert set(ends.values()) == {"completed"}
    assert len(ends) == 40
