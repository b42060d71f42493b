"""`coupler chat`: a conversation with an agent in a terminal.

`chat` is the command and the conversation, `chat_sessions` opens its sessions. What is observed goes into the
`Transcript`, which turns it into parts, and `rendering` shows them. A front prints them and reads lines:
`line_editor` for people, or `plain` for pipes. `input_line` completes and parses what is typed; `dialogs`
asks what the agent asks.
"""
