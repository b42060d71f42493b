"""Chooses the coder's model, finds its key, and makes the client for it.

`choice` says which model holds, `credentials` which key goes with it, and `chat_model` makes LangChain's
client of both, with `middleware` around it. `local` runs models on this machine, each in a `local_program`.
`choice` and `credentials` import no LangChain.
"""
