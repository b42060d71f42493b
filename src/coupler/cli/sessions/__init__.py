"""`coupler sessions`: stored conversations, listed, shown, exported and deleted.

`sessions` is the command, `session_export` writes a conversation as Markdown or JSON.
"""
