"""Makes datasets/formats: one small talk with a made-up shop, in formats in which people have their traces.

Run from the repository root: python3 scripts/formats_sample.py
"""

import json
from pathlib import Path

FOLDER = Path("datasets/formats")
START = 1_790_000_000_000_000_000  # nanoseconds since 1970

# Session, question, tool, its arguments and result, answer.
TURNS = [
    ("talk-1", "Where is my order 1042?", "find_order", {"order": 1042}, {"state": "shipped"},
     "Your order 1042 was shipped yesterday and arrives tomorrow."),
    ("talk-1", "Can it still go to my office?", "change_address", {"order": 1042, "to": "office"}, None,
     "A parcel that is under way can't be sent elsewhere any more."),
    ("talk-1", "And if I am not at home?", None, None, None,
     "Then the parcel waits for you at the nearest shop for seven days."),
    ("talk-2", "Do you sell green tea?", "search_shop", {"text": "green tea"}, {"found": 3},
     "Yes, we have three kinds of green tea: sencha, matcha and jasmine."),
    ("talk-2", "Which one has the least caffeine?", "search_shop", {"text": "green tea"}, {"found": 3},
     "Yes, we have three kinds of green tea: sencha, matcha and jasmine."),
]


def otlp():
    def attribute(key, value):
        kind = {int: "intValue", float: "doubleValue"}.get(type(value), "stringValue")
        return {"key": key, "value": {kind: str(value) if kind == "intValue" else value}}

    def span(trace, number, parent, name, start, attributes, error=None):
        made = {
            "traceId": f"{trace:032x}", "spanId": f"{trace * 16 + number:016x}", "name": name, "kind": 1,
            "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 800_000_000),
            "attributes": [attribute(key, value) for key, value in attributes.items()],
            "status": {"code": 2, "message": error} if error else {},
        }
        if parent:
            made["parentSpanId"] = f"{trace * 16 + parent:016x}"
        return made

    for at, (session, question, tool, arguments, result, answer) in enumerate(TURNS):
        start = START + at * 60_000_000_000
        asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": question}]}])
        said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": answer}], "finish_reason": "stop"}])
        spans = [
            span(at + 1, 1, None, "invoke_agent shop", start, {
                "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop", "gen_ai.conversation.id": session,
                "gen_ai.input.messages": asked, "gen_ai.output.messages": said}),
            span(at + 1, 2, 1, "chat", start + 1_000_000, {
                "gen_ai.operation.name": "chat", "gen_ai.request.model": "small-1", "gen_ai.input.messages": asked,
                "gen_ai.output.messages": said, "gen_ai.usage.input_tokens": 40 + at, "gen_ai.usage.output_tokens": 12}),
        ]
        if tool:
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool,
                          "gen_ai.tool.call.arguments": json.dumps(arguments)}
            if result is not None:
                attributes["gen_ai.tool.call.result"] = json.dumps(result)
            spans.append(span(at + 1, 3, 1, f"execute_tool {tool}", start + 2_000_000, attributes,
                              None if result is not None else "the parcel is under way"))
        # A collector writes spans as they end: those of one trace are not in one line.
        for one in reversed(spans):
            yield {"resourceSpans": [{"resource": {"attributes": [attribute("service.name", "shop")]},
                                      "scopeSpans": [{"scope": {"name": "shop"}, "spans": [one]}]}]}


def langfuse():
    for at, (session, question, tool, arguments, result, answer) in enumerate(TURNS):
        common = {"trace_id": f"trace-{at}", "project_id": "shop", "environment": "test", "session_id": session,
                  "user_id": "u1", "level": "DEFAULT", "tags": ["sample"], "trace_name": "turn"}
        minute = f"2026-09-21 14:{13 + at:02}"
        yield common | {"id": f"root-{at}", "type": "AGENT", "name": "turn", "parent_observation_id": None,
                        "start_time": f"{minute}:20.000000", "end_time": f"{minute}:21.500000", "is_root_observation": True,
                        "input": json.dumps({"messages": [{"role": "user", "content": question}]}),
                        "output": json.dumps({"role": "assistant", "content": answer})}
        yield common | {"id": f"model-{at}", "type": "GENERATION", "name": "answer", "parent_observation_id": f"root-{at}",
                        "start_time": f"{minute}:20.100000", "end_time": f"{minute}:21.400000",
                        "provided_model_name": "small-1", "usage_details": {"input": 40 + at, "output": 12},
                        "total_cost": 0.0001, "input": json.dumps([{"role": "user", "content": question}]),
                        "output": json.dumps({"role": "assistant", "content": answer})}
        if tool:
            failed = result is None
            yield common | {"id": f"tool-{at}", "type": "TOOL", "name": tool, "parent_observation_id": f"root-{at}",
                            "start_time": f"{minute}:20.500000", "end_time": f"{minute}:20.600000",
                            "input": json.dumps(arguments), "output": None if failed else json.dumps(result),
                            "level": "ERROR" if failed else "DEFAULT",
                            "status_message": "the parcel is under way" if failed else None}


def house():
    for at, (session, question, tool, arguments, result, answer) in enumerate(TURNS):
        steps = [{"tool": tool, "args": arguments, "observation": result}] if tool else []
        yield {"talk": {"id": session}, "turn": f"{session}/{at}", "at": START // 1_000_000 + at * 60_000,
               "question": question, "reply": {"text": answer}, "steps": steps}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, rows in [("otlp", otlp()), ("langfuse", langfuse()), ("house", house())]:
        with open(FOLDER / f"{name}.jsonl", "w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")


main()
