"""The error codes of JSON-RPC and of ACP that the kit reads and sends.

The kit judges by the protocol, so they are from there, and not from the code of Coupler, which it judges too.
"""

PARSE_ERROR = -32700
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

CANCELLED = -32800
AUTH_REQUIRED = -32000
NOT_FOUND = -32002
