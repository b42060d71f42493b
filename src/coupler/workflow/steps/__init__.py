"""The kinds of steps: one object each has all that is particular about a kind.

`kind` says what such an object has: the fields that expressions may read, how a step is titled, checked,
performed and rehearsed, and how people see it. A module a family has the objects: `run`, `agents`,
`questions`, `blocks` and `control`; `kinds` finds the object of a step or of a name. They are light, because
a check of a file loads all of them: what performs a step is imported when the step runs, such as
`shell_command`, which runs the script of a `run` step, and `shell_script`, which puts values into it as
expansions of variables, never as script.
"""
