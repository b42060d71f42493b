"""`coupler chat`: a conversation with an agent in a terminal.

`transcript` turns what is observed into parts, and does no I/O; `rendering` makes them visible.
`conversation` tells the story, over a front: `terminal` for people, `plain` for pipes.
"""
