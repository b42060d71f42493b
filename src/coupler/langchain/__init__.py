"""LangChain and LangGraph agents as Coupler agents."""
