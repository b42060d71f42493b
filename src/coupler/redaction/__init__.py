"""Redacts secrets from everything that people or files get to see.

`sources` says what counts as secret, how a secret is spelled, and where it stands in a text; a `masker`
replaces it by a mark, in whole texts and in streams; `known_secrets` has the secrets that all sessions of a
process share; `log_filter` masks logs and uncaught errors. What is never masked, because it must arrive as it
is, is listed in the manual.
"""
