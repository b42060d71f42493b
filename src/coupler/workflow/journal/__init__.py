"""The events of a run: kept in one order, followed by many, and read again on resume.

Events come in from the engine and go out to the store and to followers. `run_events` defines and encodes
them, `log` writes and sends them, `journal` has the results and decisions that a resumed run does not do
again, and `run_secrets` redacts the secrets in all of it. `runs` creates, opens and finds runs, and holds
their leases.
"""
