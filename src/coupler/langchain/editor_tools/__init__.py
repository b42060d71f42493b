"""The editor's files and terminals as LangChain tools.

`tools` lists them; `reading`, `writing` and `searching` are the tools for files. `tool_use` is what they
share: the call, its permission and its errors. `search_program` runs in a process of its own, which can be
ended.
"""
