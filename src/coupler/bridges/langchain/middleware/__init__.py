"""What people put into `create_agent(…, middleware=[…])`: each alone, and none of them needs an editor.

In a graph that is not served they pass everything through.
"""
