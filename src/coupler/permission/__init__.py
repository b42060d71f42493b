"""Decides what an agent may do: rules, remembered choices, and the verdict on one action.

It only decides: it opens no dialog, runs no command and touches no file. Whatever cannot be judged for
certain is never allowed by a rule or a choice, only asked. An `action` is what a tool wants to do; `claims`
are the paths, commands and URLs that must be allowed for it; `decision` rules on each of them by `rules`,
whose `patterns` say what they mean, then by remembered choices (`offers`), then asks the dialog that its
caller supplies. Command lines are parsed by `shell` into `command_words`; `programs` knows which programs
start others, `variables` which variables change what a command does. `reach` finds the files and secrets that
a command reaches, and the programs that options of unknown ones may start, by what `effects` knows. `floor`
finds what nobody may allow, such as `rm -rf /`, by `destructive_programs` and the `places` that matter:
`claims` notes it as a `Destruction`, which `decision` denies before it asks any rule. Importing this package
costs next to nothing; `coupler.permission.decision.Permissions` loads the rest.
"""
