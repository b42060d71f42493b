"""The built-in coding agent: answers prompts of `coupler serve` that name no workflow.

`served` is what is served, `agent` is one session of it. A session's `setup` is its profile (`profiles`), its
model (`model`) and the configuration; `assembly` puts the LangChain agent of it together.

Its tools are the editor's, `shell` with `background_jobs` and `sandbox`, `web` with `page_text`, `questions`,
`skills`, and `sub_agents` with `other_agents`. Around the model stand `prompt` with `instructions`, `modes`,
`hooks`, and `compaction`, which keeps the conversation within the window; long results are kept by `outputs`.
"""
