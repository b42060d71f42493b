"""An agent made by deepagents as its users make it, without a word of Coupler."""

from deepagents import create_deep_agent
from langchain.agents.middleware import TodoListMiddleware

from labs.langchain.graphs.doing_all import TODOS, count, model_that_calls

agent = create_deep_agent(
    model_that_calls(("write_todos", {"todos": TODOS}), ("ls", {"path": "/"}), ("count", {"number": 3})),
    tools=[count],
    middleware=[TodoListMiddleware()],
    interrupt_on={"count": True},
)
