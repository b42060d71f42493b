"""A LangGraph graph with interrupts: it drafts release notes, and the user says what becomes of them.

    pip install "coupler[langchain]" langchain-openai
    coupler serve examples/langgraph_release_notes.py

It uses any model that `init_chat_model` knows, by the name in AGENT_MODEL, and that model's own key. Open a
session in a git repository and say since when: "v1.2.0", "HEAD~20".

    collect -> draft -> review -> write
                 ^________|

The interrupt in `review` is a form in editors that have forms. In the others it is a question in the chat,
and the next prompt is its answer: "write", "change: say less", "forget". What does not fit is asked for
again, and "cancel" drops the question. A graph that waits outlives the editor, because Coupler keeps its
state.
"""

import os
import subprocess
from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, TypedDict

from langchain.chat_models import init_chat_model
from langchain_core.messages import AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from coupler import acp, serve

FILE = "RELEASE_NOTES.md"


@dataclass
class Review:
    """What is asked of the user: a choice, and words that are needed for one of them only."""

    decision: Literal["write", "change", "forget"]
    wish: str = ""


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    commits: NotRequired[str]
    notes: NotRequired[str]
    wish: NotRequired[str]


def collect(state: State) -> Command[Literal["draft", "__end__"]]:
    """What was committed since the point that the user named."""
    since = state["messages"][-1].text.strip()
    served = acp.current()
    done = subprocess.run(
        ["git", "log", "--format=%s", "--end-of-options", f"{since}..HEAD"],
        cwd=served.session.cwd if served else ".",
        capture_output=True,
        text=True,
    )
    if done.returncode != 0 or not done.stdout.strip():
        reason = done.stderr.strip() or f"Nothing was committed since {since}."
        return Command(goto="__end__", update={"messages": [("ai", f"{reason} Name a tag or a commit.")]})
    return Command(goto="draft", update={"commits": done.stdout, "wish": ""})


async def draft(state: State) -> dict[str, str]:
    """The model's words are shown as they come. A draft after a wish begins with the one before it."""
    task = f"Write short release notes for users, as a Markdown list, from these commits:\n{state['commits']}"
    if state.get("wish"):
        task += f"\nYour last draft was:\n{state['notes']}\nThe user wants this changed: {state['wish']}"
    model = init_chat_model(os.environ.get("AGENT_MODEL", "openai:gpt-5"))
    return {"notes": (await model.ainvoke(task)).text}


def review(state: State) -> Command[Literal["draft", "write", "__end__"]]:
    """Wait for the user. With the answer the node runs again from its top, so it does nothing before that."""
    answer = interrupt("What shall become of these notes?", response_schema=Review)
    match answer.decision:
        case "write":
            return Command(goto="write")
        case "change":
            return Command(goto="draft", update={"wish": answer.wish})
    return Command(goto="__end__", update={"messages": [("ai", "They are forgotten.")]})


async def write(state: State) -> dict[str, list[tuple[str, str]]]:
    """Through the editor, which shows the change; `overwrite` because the user has just decided about it."""
    served = acp.current()
    if served is not None:
        await served.turn.files.write(FILE, state["notes"].rstrip() + "\n", overwrite=True)
    return {"messages": [("ai", f"They are in {FILE}.")]}


graph = StateGraph(State)
graph.add_node("collect", collect)
graph.add_node("draft", draft)
graph.add_node("review", review)
graph.add_node("write", write)
graph.add_edge(START, "collect")
graph.add_edge("draft", "review")
graph.add_edge("write", END)
agent = graph.compile(name="release-notes")

if __name__ == "__main__":
    serve(agent)
