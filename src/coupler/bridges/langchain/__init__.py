"""LangChain and LangGraph: any compiled graph as a complete ACP agent."""
