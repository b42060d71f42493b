"""`coupler chat`: a conversation with an agent in a terminal.

`chat` is the command and the conversation. What is observed goes into the `Transcript` of `rendering`,
which turns it into parts. A front shows them and reads lines: `line_editor` for people, or `plain` for
pipes. `input_line` completes and parses what is typed; `dialogs` asks what the agent asks.
"""
