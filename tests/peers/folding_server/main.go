// An MCP server on standard input and output that reads with the decoder of Go's standard library, as it comes.
//
// Every call is answered with the tool, the arguments and the wish for a task that the decoder found.
package main

import (
	"bufio"
	"encoding/json"
	"os"
)

type params struct {
	Name      string                     `json:"name"`
	Arguments json.RawMessage            `json:"arguments"`
	Meta      map[string]json.RawMessage `json:"_meta"`
	Task      json.RawMessage            `json:"task"`
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params params          `json:"params"`
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked message
		if json.Unmarshal(line, &asked) != nil || asked.ID == nil {
			continue
		}
		answers.Encode(map[string]any{"jsonrpc": "2.0", "id": asked.ID, "result": result(asked)})
	}
}

func result(asked message) any {
	switch asked.Method {
	case "initialize":
		return map[string]any{
			"protocolVersion": "2025-11-25",
			"capabilities":    map[string]any{"tools": map[string]any{}},
			"serverInfo":      map[string]any{"name": "folding", "version": "1"},
		}
	case "tools/list":
		schema := map[string]any{"type": "object"}
		return map[string]any{"tools": []any{
			map[string]any{"name": "echo", "inputSchema": schema},
			map[string]any{"name": "danger", "inputSchema": schema},
		}}
	case "tools/call":
		ran := map[string]any{"tool": asked.Params.Name, "arguments": asked.Params.Arguments, "task": asked.Params.Task}
		return map[string]any{"content": []any{}, "structuredContent": ran}
	}
	return map[string]any{}
}
