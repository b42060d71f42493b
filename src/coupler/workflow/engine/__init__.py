"""The engine: runs lists of steps in order, concurrently and in loops, over a journal.

A bundle of workflows and its inputs come in, and the outputs go out. `run` starts or resumes a run and runs
each workflow from its inputs to its outputs; `interpreter` goes through lists of steps, and `blocks` has what
steps with others inside need for that. How each kind of step is performed is in `coupler.workflow.steps`.
`attempt` is what the work of a step needs of its run, `performers` chooses between work, rehearsal and mocks,
and `front` is the interface to whoever answers questions.
"""
