"""An agent that calls the tools that its prompt names, and then says what they answered.

The prompt is a JSON list of `[tool, arguments]`, the answer a JSON list of `[status, content]`. To the prompt
`[]` the answer names the tools that the model was offered.
"""

import json

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage

from coupler import acp
from labs.langchain.scripted_model import ScriptedModel, call


def obey(messages):
    if isinstance(messages[-1], HumanMessage):
        text = messages[-1].text
        named = json.loads(text)
        if not named:
            return [json.dumps(model.bound[-1])]
        turn = sum(isinstance(message, HumanMessage) for message in messages)
        return [
            call(name, f"call_{turn}_{number}", index=number, **arguments)
            for number, (name, arguments) in enumerate(named)
        ]
    answers = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        answers.insert(0, [message.status, message.content])
    return [json.dumps(answers)]


model = ScriptedModel(script=obey)
agent = create_agent(model, acp.editor_tools(), middleware=[acp.tools()])
