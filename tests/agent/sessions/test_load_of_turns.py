"""Two hundred turns run and chat: a cancel and a list are answered as if nothing else were going on."""

import json
import statistics
import time

import pytest

from agent.sessions.lean_client import serve_lean

TURNS = 200
TRIES = 15

# The pace of a model, or as quickly as the client reads.
AGENTS = {
    "a model's pace": """
        import asyncio
        async def agent(turn):
            while True:
                await turn.say("some words of an answer ")
                await asyncio.sleep(0.02)
    """,
    "a flood": """
        async def agent(turn):
            while True:
                await turn.say("some words of an answer ")
    """,
}

# Seconds, the median and the worst. Alone it is 1 and 3 ms at a model's pace, and 20 and 50 ms in a flood,
# where the answer stands behind what 200 others have to say; but the machine may have other work.
LIMITS = {"a model's pace": (0.050, 0.150), "a flood": (0.150, 0.500)}


@pytest.mark.parametrize("pace", AGENTS)
def test_a_cancel_and_a_list_are_answered_at_once(app, tmp_path, pace):
    with serve_lean(app(AGENTS[pace])) as client:
        client.initialize()
        sessions = [client.new_session(tmp_path) for _ in range(TURNS)]
        prompts = {session: client.prompt(session, "go on") for session in sessions}
        client.read_for(1.0)

        lists, cancels = [], []
        for session in sessions[:TRIES]:
            began = time.perf_counter()
            listed = client.call("session/list", {})["sessions"]
            lists.append(time.perf_counter() - began)
            assert len(listed) == 50
            began = time.perf_counter()
            client.notify("session/cancel", {"sessionId": session})
            answer = client.answer(prompts[session])
            cancels.append(time.perf_counter() - began)
            assert answer["result"] == {"stopReason": "cancelled"}
            # It goes on with two hundred.
            prompts[session] = client.prompt(session, "go on")
            client.until(session.encode(), b"agent_message_chunk")

    figures = {"list": figures_of(lists), "cancel": figures_of(cancels)}
    print(f"{pace}: {json.dumps(figures)} (ms)")
    median, worst = LIMITS[pace]
    assert statistics.median(lists) < median, figures
    assert statistics.median(cancels) < median, figures
    assert max(*lists, *cancels) < worst, figures


def figures_of(seconds):
    return {"median": round(1e3 * statistics.median(seconds), 1), "worst": round(1e3 * max(seconds), 1)}
