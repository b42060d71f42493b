"""The editor's files and terminals as LangChain tools."""
