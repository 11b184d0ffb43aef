// A host on `@modelcontextprotocol/client` 2 and its skills extension: `node host_skills.mjs URL` speaks 2025-11-25,
// with `--stateless` 2026-07-28. Its report has every skill, file and directory, and the codes of three refusals.

import { Client, ProtocolError, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { DIRECTORY_MIME_TYPE, SkillsClient } from "@modelcontextprotocol/client/ext/skills";

import { REVISION } from "./stateless_words.mjs";

const [url, ...options] = process.argv.slice(2);
const stateless = options.includes("--stateless");
const ABSENT = "skill://absent/SKILL.md";

async function refused(asking) {
  try {
    await asking;
  } catch (error) {
    if (error instanceof ProtocolError) return { code: error.code };
    return { thrown: error.message };
  }
  return {};
}

async function below(skills, uri) {
  const { resources, ...more } = await skills.readDirectory(uri);
  const found = { [uri]: { resources, ...more } };
  for (const each of resources) {
    if (each.mimeType === DIRECTORY_MIME_TYPE) Object.assign(found, await below(skills, each.uri));
  }
  return found;
}

const client = new Client(
  { name: "host", version: "1" },
  stateless ? { versionNegotiation: { mode: { pin: REVISION } } } : {},
);
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const skills = new SkillsClient(client);
const told = { supported: skills.supported, directoryRead: skills.directoryRead, listing: await skills.list() };
told.entries = {};
told.files = {};
told.directories = {};
for (const entry of told.listing.skills) {
  told.entries[entry.uri] = await skills.get(entry.uri);
  for (const { uri } of entry.resources) {
    const { bytes, verified, mimeType } = await skills.read(entry, uri);
    told.files[uri] = { verified, mimeType, bytes: Buffer.from(bytes).toString("base64") };
  }
  if (skills.directoryRead) {
    Object.assign(told.directories, await below(skills, entry.uri.slice(0, -"/SKILL.md".length)));
  }
}
told.refusals = {
  skill: await refused(skills.get(ABSENT)),
  directory: await refused(skills.readDirectory(ABSENT)),
  file: await refused(client.readResource({ uri: ABSENT })),
};
process.stdout.write(`${JSON.stringify(told)}\n`);
await client.close();
