"""Run inside a served image: OpenAI's own client asks for tool calls; prints what came of it.

The image's engine brings the client.  Arguments: the address of the server and the model's name.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import openai

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather",
        "strict": True,  # else the engine leaves the arguments to the model
        "parameters": {
            "type": "object",
            "properties": {"unit": {"type": "string", "enum": ["C", "F"]}},
            "required": ["unit"],
            "additionalProperties": False,
        },
    },
}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
QUESTION = {"role": "user", "content": "weather?"}


def main(url: str, model: str) -> None:
    client: Any = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)

    def ask(messages: list[Any], **more: Any) -> Any:
        return client.chat.completions.create(
            model=model, messages=messages, tools=[WEATHER], max_tokens=200, temperature=0, **more
        )

    call = ask([QUESTION], tool_choice=NAMED).choices[0].message.tool_calls[0]
    required = ask([QUESTION], tool_choice="required").choices[0].message
    answers = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": '{"degrees": 21}'},
    ]
    after = ask(answers, tool_choice="auto")
    streamed, name = "", ""
    for chunk in ask([QUESTION], tool_choice=NAMED, stream=True):
        for delta in chunk.choices[0].delta.tool_calls or ():
            streamed += delta.function.arguments or ""
            name += delta.function.name or ""
    found = {
        "named": [call.type, call.function.name, json.loads(call.function.arguments)],
        "required": [one.function.name for one in required.tool_calls],
        "auto": ask([QUESTION], tool_choice="auto").object,
        "after the tool answered": after.choices[0].message.role,
        "streamed": [name, streamed],
    }
    sys.stdout.write(json.dumps(found) + "\n")


main(*sys.argv[1:])
