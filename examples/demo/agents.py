"""The demo's agents: one asks a model on this machine, the other says what it was told to.

Both are served by Coupler and driven over ACP: `coupler serve examples/demo/agents.py:scripted`.
"""

from __future__ import annotations

import asyncio

from coupler import Turn
from coupler.providers import OpenAI

PACE = 0.03
"""Seconds between two words."""

ANSWERS = {
    "What is this program for?": "It waits while your tea brews, and calls you when it is ready.",
    "welcomes people": "Welcome! Put the kettle on, and let the clock be our business.",
    "like tea": "Because of its taste, and because nobody can hurry while it brews.",
}
OTHERWISE = "I am a script and know nothing about that. A model would have an answer."

local = OpenAI(options={"temperature": 0, "max_tokens": 100})
"""Asks the server that OPENAI_BASE_URL names: the demo starts one with a model of this machine."""


async def scripted(turn: Turn) -> None:
    """Answer with a prepared text, word by word."""
    answer = next((text for question, text in ANSWERS.items() if question in turn.text), OTHERWISE)
    for word in answer.split():
        await turn.say(f"{word} ")
        await asyncio.sleep(PACE)
