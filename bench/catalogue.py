"""The stub's tools: a catalogue of the size and shape real servers have. Words only, no behaviour."""

import orjson


def _tool(name: str, description: str, **properties: dict[str, object]) -> dict[str, object]:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {
        "name": name,
        "title": name.replace("_", " ").capitalize(),
        "description": description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def _text(description: str) -> dict[str, object]:
    return {"type": "string", "description": description, "maxLength": 2_097_152}


def _number(description: str, most: int) -> dict[str, object]:
    return {"type": "integer", "description": description, "minimum": 0, "maximum": most}


def _choice(description: str, *choices: str) -> dict[str, object]:
    return {"type": "string", "description": description, "enum": list(choices)}


TOOLS = [
    _tool("echo", "Answer at once with the text that was sent.", text=_text("What to say back.")),
    _tool("count", "Answer with the number of characters of the text that was sent.", text=_text("What to count.")),
    _tool("big", "Answer with one text of the asked size.", bytes=_number("How many bytes of text.", 16_777_216)),
    _tool("hold", "Answer when the bench releases it.", text=_text("Anything.")),
    _tool("stream", "Report progress, then answer.", events=_number("How many progress events.", 1000)),
    _tool(
        "generate_report",
        "Generate the quarterly report of one region, with charts and a table of outliers. Takes some minutes.",
        region=_text("The region's code, as `list_regions` gives it."),
        quarter=_choice("The quarter of the current year.", "Q1", "Q2", "Q3", "Q4"),
        language=_choice("The language of headings and captions.", "de", "en", "fr", "ja", "ko", "zh"),
        outliers=_number("How many outliers the table shows.", 100),
    ),
    _tool(
        "search_documents",
        "Full-text search over the document store. Quoted words must occur together; a minus excludes a word.",
        query=_text("The words to search for."),
        folder=_text("Search only below this folder."),
        limit=_number("The most documents to return.", 200),
        order=_choice("The order of the hits.", "relevance", "newest", "oldest"),
    ),
    _tool(
        "read_document",
        "The text of one document, page by page, with its title, its authors and the time of its last change.",
        document=_text("The document's id, as `search_documents` gives it."),
        page=_number("The first page to read, from 0.", 100_000),
        pages=_number("How many pages to read.", 50),
    ),
    _tool(
        "run_query",
        "Run one read-only SQL statement against the warehouse and return its rows as a table in Markdown.",
        statement=_text("A single SELECT statement."),
        warehouse=_choice("Where to run it.", "sales", "logistics", "finance"),
        rows=_number("The most rows to return.", 10_000),
    ),
    _tool(
        "send_summary",
        "Send a summary by mail to a distribution list. The summary is kept in the archive for ninety days.",
        recipients=_text("The distribution list."),
        subject=_text("The subject line."),
        body=_text("The summary in Markdown."),
        urgency=_choice("How the mail is marked.", "normal", "high"),
    ),
]

CATALOGUE = orjson.dumps({"tools": TOOLS})
