"""What an agent may do: rules, remembered choices, and the verdict on one action.

Decides and nothing else: it opens no dialog, runs no command, touches no file. Whatever cannot be judged for
certain is never allowed by a rule or a choice, only asked. Importing this package costs next to nothing;
`coupler.permission.engine.Permissions` brings the rest along.
"""
