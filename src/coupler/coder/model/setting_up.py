"""What somebody without a model is told: the ways to set one up, those first that would work at once."""

from __future__ import annotations

import os
from collections.abc import Mapping

from coupler.coder.model.provider import PROVIDERS

_WAYS = """\
No model is set, so I can only run workflows. To work with one, do one of these:

- **With a key**: run `coupler login coder` in a terminal. It asks for the model and its key, and keeps them \
in a file that only you can read.
- **With variables**: start the editor, or this agent, with `COUPLER_MODEL={anthropic}` (or `{openai}`) and \
`COUPLER_API_KEY=…`. Any server that speaks as OpenAI does goes with `COUPLER_MODEL=openai:NAME` and \
`COUPLER_BASE_URL=https://HOST/v1`.
- **On this machine, without a key**: run `coupler models install`, which fetches a tiny model to try things \
out, and `coupler login coder --model local:smollm2`. For work, start [Ollama](https://ollama.com), and \
write into `{file}`:

```toml
[coder]
model = "ollama:qwen3-coder"
```

{found}Then send your message again: nothing has to be restarted after a login or a change of the file."""


def how_to_set_up(environ: Mapping[str, str] = os.environ) -> str:
    """The ways, in Markdown; the values of variables are not looked at."""
    from coupler.config.lookup import user_file

    examples = {
        name: f"{name}:{provider.example}" for name, provider in PROVIDERS.items() if provider.example
    }
    return _WAYS.format(
        anthropic=examples["anthropic"],
        openai=examples["openai"],
        file=user_file(environ) or "coupler.toml",
        found=_found(environ),
    )


def _found(environ: Mapping[str, str]) -> str:
    """What would work with the keys that are there already."""
    lines = []
    for provider in PROVIDERS.values():
        variable = next((each for each in provider.variables if environ.get(each, "").strip()), None)
        if variable is not None:
            model = f"{provider.name}:{provider.example or 'NAME'}"
            lines.append(f"`{variable}` is set: `COUPLER_MODEL={model}` would work with it.\n\n")
    return "".join(lines)
