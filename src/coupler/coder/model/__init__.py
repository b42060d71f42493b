"""The model that the coder works with: which one is meant, where its key comes from, and the client for it.

`choice` says which model holds, `keyring` which key goes with it, `chat_model` makes LangChain's client of
both. Only the last imports LangChain.
"""
