// What a host on `@modelcontextprotocol/client` 2 gives `@modelcontextprotocol/ext-tasks` in the stateless era: the SDK has
// no words for tasks there, so the package has its host send them.

export const REVISION = "2026-07-28";

/** Sends what the SDK has no words for, as the package asks its hosts to: one POST for each request. */
function dispatchTo(url, headers) {
  let last = 0;
  return async (request, options) => {
    const { method, params } = request;
    const id = `raw ${++last}`;
    const response = await fetch(url, {
      method: "POST",
      headers: {
        ...headers,
        "Content-Type": "application/json",
        Accept: "application/json, text/event-stream",
        "MCP-Protocol-Version": REVISION,
        "Mcp-Method": method,
        "Mcp-Name": params.taskId ?? params.name,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id, method, params }),
      signal: options?.signal,
    });
    const told = await response.text();
    const texts = response.headers.get("content-type").startsWith("text/event-stream")
      ? told.split(/\r?\n/).filter((line) => line.startsWith("data:") && line.length > 6).map((line) => line.slice(5))
      : [told];
    const answer = texts.map((text) => JSON.parse(text)).find((message) => message.id === id);
    return "error" in answer ? { kind: "error", error: answer.error } : { kind: "result", result: answer.result };
  };
}

/** The options of a task session at that URL, for a host that is called that, can be asked that, and sends these headers. */
export function wordsOfTasks(url, info, capabilities, headers = {}) {
  return {
    rawDispatch: dispatchTo(url, headers),
    v2RequestFraming: { protocolVersion: REVISION, clientInfo: info, clientCapabilities: capabilities },
  };
}
