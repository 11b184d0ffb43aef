// A server with skills, on the unmodified `@modelcontextprotocol/server` 2 and its skills extension. It speaks both
// eras: `node skills_server.mjs` takes a free port and tells its URL. A page has two entries.

import { createServer } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

import { McpServer, createMcpHandler } from "@modelcontextprotocol/server";
import { SkillsExtension, memorySkillFiles } from "@modelcontextprotocol/server/ext/skills";

const skill = (name, description, more = "") =>
  `---\nname: ${name}\ndescription: ${description}\n${more}---\n\n# ${name}\n\nRead the references first.\n`;

const files = {
  "audit/SKILL.md": skill("audit", '"Checks the books: \\"all\\" of them, größer als 1 \u{1f642}"', "license: MIT\n"),
  "audit/references/RULES.md": "# Rules\r\n\r\nNo line may end in a space. \t\r\n",
  "audit/references/empty.txt": "",
  "audit/assets/seal.bin": new Uint8Array(Array.from({ length: 1024 }, (_, index) => (index * 7) % 256)),
  "audit/assets/name with space.txt": "\u{feff}a mark of the byte order begins this\u2028",
  "report/SKILL.md": skill("report", "Writes reports.", 'metadata:\n  author: "someone"\n  io.example/rank: "1.0"\n'),
  "report/references/STYLE.md": "# Style\n".repeat(20_000),
  "translate/SKILL.md": skill("translate", "Translates what is written.", "allowed-tools: Read Write\n"),
};
const skills = await SkillsExtension.load(memorySkillFiles(files), { pageSize: 2, strict: true });

const served = createMcpHandler(() => {
  const made = new McpServer({ name: "skilled", version: "3.2" });
  made.registerTool("audit", {}, () => ({ content: [{ type: "text", text: "audited" }] }));
  skills.attach(made);
  return made;
});

async function serve(incoming, outgoing) {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const request = new Request(`http://${incoming.headers.host}${incoming.url}`, {
    method: incoming.method,
    headers: incoming.headers,
    body: chunks.length ? Buffer.concat(chunks) : undefined,
  });
  const response = await served.fetch(request);
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  if (response.body === null) outgoing.end();
  else await pipeline(Readable.fromWeb(response.body), outgoing).catch(() => {});
}

const listener = createServer((incoming, outgoing) => {
  serve(incoming, outgoing).catch(() => outgoing.destroy());
});
listener.listen(0, "127.0.0.1", () => {
  process.stdout.write(`serving at http://127.0.0.1:${listener.address().port}/mcp\n`);
});
