"""How leniently each field is read, by Struct and wire name. Made by scripts/generate_schema.py: do not edit.

`_meta` is not listed: it is DEFAULT_ON_ERROR in every Struct.
"""

from __future__ import annotations

from coupler.schema.base import DEFAULT_ON_ERROR, DEFAULT_ON_NULL, SKIP_INVALID_ITEMS, Leniency

MARKERS: dict[str, dict[str, Leniency]] = {
    "AgentAuthCapabilities": {
        "logout": DEFAULT_ON_ERROR,
    },
    "AgentCapabilities": {
        "loadSession": DEFAULT_ON_ERROR,
        "promptCapabilities": DEFAULT_ON_ERROR,
        "mcpCapabilities": DEFAULT_ON_ERROR,
        "sessionCapabilities": DEFAULT_ON_ERROR,
        "auth": DEFAULT_ON_ERROR,
    },
    "Annotations": {
        "audience": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "lastModified": DEFAULT_ON_ERROR,
        "priority": DEFAULT_ON_ERROR,
    },
    "AudioContent": {
        "annotations": DEFAULT_ON_ERROR,
    },
    "AuthCapabilities": {
        "terminal": DEFAULT_ON_ERROR,
    },
    "AuthMethodAgent": {
        "description": DEFAULT_ON_ERROR,
    },
    "AuthMethodTerminal": {
        "description": DEFAULT_ON_ERROR,
        "args": DEFAULT_ON_NULL,
        "env": DEFAULT_ON_NULL,
    },
    "AvailableCommand": {
        "input": DEFAULT_ON_ERROR,
    },
    "AvailableCommandsUpdate": {
        "availableCommands": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "BlobResourceContents": {
        "mimeType": DEFAULT_ON_ERROR,
    },
    "BooleanPropertySchema": {
        "title": DEFAULT_ON_ERROR,
        "description": DEFAULT_ON_ERROR,
        "default": DEFAULT_ON_ERROR,
    },
    "ClientCapabilities": {
        "fs": DEFAULT_ON_ERROR,
        "terminal": DEFAULT_ON_ERROR,
        "session": DEFAULT_ON_ERROR,
        "auth": DEFAULT_ON_ERROR,
        "elicitation": DEFAULT_ON_ERROR,
        "plan": DEFAULT_ON_ERROR,
        "subagents": DEFAULT_ON_ERROR,
    },
    "ClientSessionCapabilities": {
        "compaction": DEFAULT_ON_ERROR,
        "configOptions": DEFAULT_ON_ERROR,
        "notices": DEFAULT_ON_ERROR,
    },
    "CompactionUpdate": {
        "summary": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "error": DEFAULT_ON_ERROR,
    },
    "ConfigOptionUpdate": {
        "configOptions": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "ContentChunk": {
        "messageId": DEFAULT_ON_ERROR,
    },
    "CreateFormElicitationRequest": {
        "toolCallId": DEFAULT_ON_ERROR,
    },
    "CreateTerminalRequest": {
        "args": DEFAULT_ON_NULL,
        "env": DEFAULT_ON_NULL,
    },
    "CreateUrlElicitationRequest": {
        "toolCallId": DEFAULT_ON_ERROR,
    },
    "Diff": {
        "oldText": DEFAULT_ON_ERROR,
    },
    "ElicitationCapabilities": {
        "form": DEFAULT_ON_ERROR,
        "url": DEFAULT_ON_ERROR,
    },
    "ElicitationSchema": {
        "type": DEFAULT_ON_ERROR,
        "title": DEFAULT_ON_ERROR,
        "description": DEFAULT_ON_ERROR,
    },
    "EmbeddedResource": {
        "annotations": DEFAULT_ON_ERROR,
    },
    "EnumOption": {
        "description": DEFAULT_ON_ERROR,
    },
    "Error": {
        "data": DEFAULT_ON_ERROR,
    },
    "FileSystemCapabilities": {
        "readTextFile": DEFAULT_ON_ERROR,
        "writeTextFile": DEFAULT_ON_ERROR,
    },
    "ForkSessionRequest": {
        "additionalDirectories": DEFAULT_ON_NULL,
        "mcpServers": DEFAULT_ON_NULL,
    },
    "ForkSessionResponse": {
        "modes": DEFAULT_ON_ERROR,
        "configOptions": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "IdleStateUpdate": {
        "usage": DEFAULT_ON_ERROR,
        "stopReason": DEFAULT_ON_ERROR,
        "error": DEFAULT_ON_ERROR,
    },
    "ImageContent": {
        "annotations": DEFAULT_ON_ERROR,
        "uri": DEFAULT_ON_ERROR,
    },
    "Implementation": {
        "title": DEFAULT_ON_ERROR,
    },
    "InitializeRequest": {
        "clientCapabilities": DEFAULT_ON_ERROR,
        "clientInfo": DEFAULT_ON_ERROR,
    },
    "InitializeResponse": {
        "agentCapabilities": DEFAULT_ON_ERROR,
        "authMethods": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "agentInfo": DEFAULT_ON_ERROR,
    },
    "IntegerPropertySchema": {
        "title": DEFAULT_ON_ERROR,
        "description": DEFAULT_ON_ERROR,
        "default": DEFAULT_ON_ERROR,
    },
    "ListSessionsResponse": {
        "sessions": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "nextCursor": DEFAULT_ON_ERROR,
    },
    "LoadSessionRequest": {
        "mcpServers": DEFAULT_ON_NULL,
        "additionalDirectories": DEFAULT_ON_NULL,
    },
    "LoadSessionResponse": {
        "modes": DEFAULT_ON_ERROR,
        "configOptions": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "McpCapabilities": {
        "http": DEFAULT_ON_ERROR,
        "sse": DEFAULT_ON_ERROR,
    },
    "McpServerHttp": {
        "headers": DEFAULT_ON_NULL,
    },
    "McpServerSse": {
        "headers": DEFAULT_ON_NULL,
    },
    "McpServerStdio": {
        "args": DEFAULT_ON_NULL,
        "env": DEFAULT_ON_NULL,
    },
    "MultiSelectPropertySchema": {
        "title": DEFAULT_ON_ERROR,
        "description": DEFAULT_ON_ERROR,
        "default": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "NewSessionRequest": {
        "additionalDirectories": DEFAULT_ON_NULL,
        "mcpServers": DEFAULT_ON_NULL,
    },
    "NewSessionResponse": {
        "modes": DEFAULT_ON_ERROR,
        "configOptions": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "Notice": {
        "description": DEFAULT_ON_ERROR,
    },
    "NumberPropertySchema": {
        "title": DEFAULT_ON_ERROR,
        "description": DEFAULT_ON_ERROR,
        "default": DEFAULT_ON_ERROR,
    },
    "PermissionToolCall": {
        "kind": DEFAULT_ON_ERROR,
        "status": DEFAULT_ON_ERROR,
        "title": DEFAULT_ON_ERROR,
        "name": DEFAULT_ON_ERROR,
        "content": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "locations": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "rawInput": DEFAULT_ON_ERROR,
        "rawOutput": DEFAULT_ON_ERROR,
    },
    "Plan": {
        "entries": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "PlanItems": {
        "entries": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "PromptCapabilities": {
        "image": DEFAULT_ON_ERROR,
        "audio": DEFAULT_ON_ERROR,
        "embeddedContext": DEFAULT_ON_ERROR,
    },
    "PromptResponse": {
        "usage": DEFAULT_ON_ERROR,
    },
    "ResourceLink": {
        "annotations": DEFAULT_ON_ERROR,
        "description": DEFAULT_ON_ERROR,
        "mimeType": DEFAULT_ON_ERROR,
        "size": DEFAULT_ON_ERROR,
        "title": DEFAULT_ON_ERROR,
    },
    "ResumeSessionRequest": {
        "additionalDirectories": DEFAULT_ON_NULL,
        "mcpServers": DEFAULT_ON_NULL,
    },
    "ResumeSessionResponse": {
        "modes": DEFAULT_ON_ERROR,
        "configOptions": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "SessionCapabilities": {
        "list": DEFAULT_ON_ERROR,
        "delete": DEFAULT_ON_ERROR,
        "additionalDirectories": DEFAULT_ON_ERROR,
        "resume": DEFAULT_ON_ERROR,
        "close": DEFAULT_ON_ERROR,
        "fork": DEFAULT_ON_ERROR,
    },
    "SessionConfigBoolean": {
        "description": DEFAULT_ON_ERROR,
        "category": DEFAULT_ON_ERROR,
    },
    "SessionConfigOptionsCapabilities": {
        "boolean": DEFAULT_ON_ERROR,
    },
    "SessionConfigSelect": {
        "description": DEFAULT_ON_ERROR,
        "category": DEFAULT_ON_ERROR,
    },
    "SessionConfigSelectGroup": {
        "options": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "SessionConfigSelectOption": {
        "description": DEFAULT_ON_ERROR,
    },
    "SessionInfo": {
        "additionalDirectories": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "title": DEFAULT_ON_ERROR,
        "updatedAt": DEFAULT_ON_ERROR,
    },
    "SessionInfoUpdate": {
        "title": DEFAULT_ON_ERROR,
        "updatedAt": DEFAULT_ON_ERROR,
    },
    "SessionMode": {
        "description": DEFAULT_ON_ERROR,
    },
    "SessionModeState": {
        "availableModes": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "SetSessionConfigOptionResponse": {
        "configOptions": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
    },
    "StringPropertySchema": {
        "title": DEFAULT_ON_ERROR,
        "description": DEFAULT_ON_ERROR,
        "default": DEFAULT_ON_ERROR,
    },
    "SubagentSessionCapabilities": {
        "cancel": DEFAULT_ON_ERROR,
    },
    "SubagentUpdate": {
        "title": DEFAULT_ON_ERROR,
        "description": DEFAULT_ON_ERROR,
        "capabilities": DEFAULT_ON_ERROR,
        "state": DEFAULT_ON_ERROR,
    },
    "TerminalExitStatus": {
        "exitCode": DEFAULT_ON_ERROR,
        "signal": DEFAULT_ON_ERROR,
    },
    "TerminalOutputResponse": {
        "exitStatus": DEFAULT_ON_ERROR,
    },
    "TextContent": {
        "annotations": DEFAULT_ON_ERROR,
    },
    "TextResourceContents": {
        "mimeType": DEFAULT_ON_ERROR,
    },
    "ToolCall": {
        "name": DEFAULT_ON_ERROR,
        "kind": DEFAULT_ON_ERROR,
        "status": DEFAULT_ON_ERROR,
        "content": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "locations": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "rawInput": DEFAULT_ON_ERROR,
        "rawOutput": DEFAULT_ON_ERROR,
    },
    "ToolCallLocation": {
        "line": DEFAULT_ON_ERROR,
    },
    "ToolCallUpdate": {
        "kind": DEFAULT_ON_ERROR,
        "status": DEFAULT_ON_ERROR,
        "title": DEFAULT_ON_ERROR,
        "name": DEFAULT_ON_ERROR,
        "content": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "locations": DEFAULT_ON_ERROR | SKIP_INVALID_ITEMS,
        "rawInput": DEFAULT_ON_ERROR,
        "rawOutput": DEFAULT_ON_ERROR,
    },
    "Usage": {
        "thoughtTokens": DEFAULT_ON_ERROR,
        "cachedReadTokens": DEFAULT_ON_ERROR,
        "cachedWriteTokens": DEFAULT_ON_ERROR,
    },
    "UsageUpdate": {
        "cost": DEFAULT_ON_ERROR,
    },
    "WaitForTerminalExitResponse": {
        "exitCode": DEFAULT_ON_ERROR,
        "signal": DEFAULT_ON_ERROR,
    },
}
