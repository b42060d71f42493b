"""The LangChain agent of a session, put together from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent

from coupler import acp
from coupler.bridges.langchain.graph_agent import GraphAgent
from coupler.bridges.langchain.stream.model_run import Look
from coupler.coder.model.chat_model import chat_models, model_middleware
from coupler.coder.model.keyring import Keyring
from coupler.coder.profile import CODER

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

    from coupler.agent.session import Session
    from coupler.coder.setup import Setup

ORIGIN = ("coupler.coder", CODER)
"""What names the agent where LangChain's agents are named by their modules."""


def assembled(setup: Setup, session: Session, store: str | None) -> GraphAgent:
    """The agent of a session."""
    keyring = Keyring()
    keyring.conceal(session, [*setup.models.values()])
    graph = _graph(setup, session, keyring)
    return GraphAgent(graph, ORIGIN, setup.profile.name, look=Look(), store=store)


def _graph(setup: Setup, session: Session, keyring: Keyring) -> Pregel[Any, Any, Any, Any]:
    models = chat_models(setup.models, keyring)
    return create_agent(
        next(iter(models.values())),
        acp.editor_tools(session),
        middleware=[*model_middleware(models, keyring), acp.models(models), acp.tools()],
        system_prompt="You are Coupler, a coding agent in the user's editor.",
        name=CODER,
    )
