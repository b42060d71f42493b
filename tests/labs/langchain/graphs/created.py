"""An agent made by LangChain, with the bridge's middleware and tools: it uses all that editors can show."""

from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware

from coupler import acp
from labs.langchain.graphs.doing_all import TODOS, count, model_that_calls


async def choose(colors: list[str]) -> str:
    """Let the user choose a color."""
    answer = await acp.current().ask("Which color?", {"type": "string", "enum": colors})
    return str(answer.value)


agent = create_agent(
    model_that_calls(
        ("count", {"number": 3}),
        ("write_todos", {"todos": TODOS}),
        ("read_file", {"path": "README.md"}),
        ("run_command", {"command": "pwd"}),
        ("choose", {"colors": ["red", "blue"]}),
    ),
    [count, choose, *acp.editor_tools()],
    middleware=[
        TodoListMiddleware(),
        acp.tools(),
        acp.permissions({"count": "ask"}),
        acp.modes(),
        acp.plan(),
    ],
)
