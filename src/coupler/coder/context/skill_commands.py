"""Skills as slash commands: `/name what to do` gives the model the skill with the prompt."""

from __future__ import annotations

from typing import Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import HumanMessage
from langgraph.runtime import Runtime

from coupler.agent.agent import invoked
from coupler.coder.context.reading import Reader
from coupler.coder.context.skills import Skills, skill_text
from coupler.langchain.current import current

LEAD = "The user has asked for this skill by its command: do as it says, with what stands behind the command."

ARGUMENTS = "$ARGUMENTS"
"""What stands in many skills for the words behind the command."""


class SkillCommands(AgentMiddleware[Any, Any, Any]):
    """Adds a skill to the prompt that names it."""

    def __init__(self, skills: Skills) -> None:
        super().__init__()
        self._skills = skills

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Put the skill behind what the user has typed."""
        served = current()
        if served is None or served.call_id is not None:
            return None
        typed = invoked(self._skills.commands(), served.turn.blocks)
        prompt = state["messages"][-1]
        if typed is None or not isinstance(prompt, HumanMessage):
            return None
        skill = self._skills.named(typed.name)
        served.session.readable_places.add(skill.folder)
        body = await skill_text(skill, Reader(served.turn))
        text = f"{LEAD}\n\n{body.replace(ARGUMENTS, typed.arguments.strip())}"
        content: Any = prompt.content
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        whole = HumanMessage([*blocks, {"type": "text", "text": text}], id=prompt.id)
        return {"messages": [whole]}
