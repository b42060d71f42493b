"""What LangChain itself takes for a chunk that goes nowhere: as fast as any bridge could ever be.

The same agent in this process, with a callback that does nothing, and by the stream of mode `messages`, whose
items are dropped. Python's search for garbage is set as Coupler sets it. Written to stdout as JSON.
"""

import asyncio
import json
import sys
import time
from typing import Any

from coupler_agent import agent
from langchain_core.callbacks import BaseCallbackHandler

from coupler.agent.startup.loading import tune_gc


class Nothing(BaseCallbackHandler):
    """Makes models stream, as LangChain has it, and does nothing."""

    run_inline = True

    def tap_output_aiter(self, run_id: Any, output: Any) -> Any:
        return output

    def tap_output_iter(self, run_id: Any, output: Any) -> Any:
        return output

    def on_llm_new_token(self, token: Any, **more: Any) -> None:
        pass


async def measured(
    chunks: int, mode: str, callbacks: list[BaseCallbackHandler], words: str = ""
) -> dict[str, float]:
    """Chunks a second, and the processor's seconds for one."""
    prompt: Any = {"messages": [("user", f"{words}{chunks}")]}
    began, used = time.perf_counter(), time.process_time()
    async for _ in agent.astream(prompt, {"callbacks": callbacks}, stream_mode=mode):
        pass
    cost = (time.process_time() - used) / chunks
    return {"rate": chunks / (time.perf_counter() - began), "cost": cost}


async def main(chunks: int) -> None:
    ways = {"callback": ("updates", [Nothing()]), "messages": ("messages", [])}
    for mode, callbacks in ways.values():
        await measured(chunks, mode, callbacks)
    tune_gc()
    figures = {
        f"{words}{name}": await measured(chunks, *way, words)
        for words in ("", "fresh ")
        for name, way in ways.items()
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
