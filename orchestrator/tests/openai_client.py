"""Speak to `coharness serve-model` through the public openai client: openai_client.py BASE_URL."""
import sys

import openai
import pydantic

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
[model] = [model.id for model in client.models.list()]
messages = [{"role": "user", "content": "What is 7 + 5?"}]

plain = client.chat.completions.create(
    model=model, messages=messages, max_tokens=12, temperature=0, logprobs=True, top_logprobs=3,
    extra_body={"ignore_eos": True})
choice = plain.choices[0]
assert choice.finish_reason == "length" and plain.usage.completion_tokens == 12, plain
assert len(choice.logprobs.content) == 12 and all(entry.logprob < 0 for entry in choice.logprobs.content), choice
for entry in choice.logprobs.content:
    first, second, third = (one.logprob for one in entry.top_logprobs)
    assert entry.logprob == first >= second >= third, entry

stream = client.chat.completions.create(
    model=model, messages=messages, max_tokens=12, temperature=0, stream=True,
    stream_options={"include_usage": True}, extra_body={"ignore_eos": True})
chunks = list(stream)
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == choice.message.content, (text, choice.message.content)
assert chunks[-1].usage.completion_tokens == 12, chunks[-1]

forced = client.chat.completions.create(
    model=model, messages=messages, max_tokens=12, temperature=0, logit_bias={"65": 100},
    frequency_penalty=0.5, presence_penalty=-0.5)
assert forced.choices[0].message.content == "A" * 12, forced

assert client.models.retrieve(model).id == model

# A call that is demanded, with a model nested in another as pydantic writes it: with "$defs".
digit = pydantic.Field(ge=0, le=9)


class Point(pydantic.BaseModel):
    x: int = digit
    y: int = digit


class Line(pydantic.BaseModel):
    """Draws a line."""

    start: Point
    end: Point


tools = [openai.pydantic_function_tool(Line, name="line")]
assert "$defs" in tools[0]["function"]["parameters"], tools
demand = dict(
    model=model, messages=messages, max_tokens=400, temperature=1, seed=7, tools=tools,
    tool_choice={"type": "function", "function": {"name": "line"}}, parallel_tool_calls=False)
called = client.chat.completions.create(**demand)
choice_of_call = called.choices[0]
assert choice_of_call.finish_reason == "tool_calls", called
[call] = choice_of_call.message.tool_calls
assert call.type == "function" and call.id and call.function.name == "line", called
line = Line.model_validate_json(call.function.arguments)
assert 0 <= line.start.x <= 9 and 0 <= line.end.y <= 9, line

# The same in a stream, put together as clients do.
parts = {"id": "", "name": "", "arguments": ""}
reasons = []
for chunk in client.chat.completions.create(**demand, stream=True):
    for streamed in chunk.choices:
        reasons += [streamed.finish_reason] if streamed.finish_reason else []
        for delta in streamed.delta.tool_calls or []:
            assert delta.index == 0, chunk
            parts["id"] += delta.id or ""
            parts["name"] += delta.function.name or ""
            parts["arguments"] += delta.function.arguments or ""
assert reasons == ["tool_calls"] and parts["id"], (reasons, parts)
assert (parts["name"], parts["arguments"]) == ("line", call.function.arguments), (parts, call)

# The result goes back, with the message as the client keeps it.
answered = client.chat.completions.create(
    model=model, max_tokens=4, tools=tools,
    messages=[*messages, choice_of_call.message.model_dump(),
              {"role": "tool", "tool_call_id": call.id, "content": "drawn"}])
assert answered.choices[0].message.role == "assistant", answered

# A reply of a schema.
shaped = client.chat.completions.create(
    model=model, messages=messages, max_tokens=400, temperature=1, seed=3,
    response_format={"type": "json_schema", "json_schema": {
        "name": "line", "strict": True, "schema": tools[0]["function"]["parameters"]}})
assert shaped.choices[0].finish_reason == "stop", shaped
Line.model_validate_json(shaped.choices[0].message.content)

several = client.chat.completions.create(model=model, messages=messages, max_tokens=4, n=2, seed=3, stop=["\n"])
assert [choice.index for choice in several.choices] == [0, 1], several

for wrong, kind in [
    (dict(max_tokens=100_000), openai.BadRequestError),
    (dict(model="nothing"), openai.NotFoundError),
    (dict(temperature=-1), openai.BadRequestError),
    (dict(frequency_penalty=3), openai.BadRequestError),
    (dict(logit_bias={"65": 101}), openai.BadRequestError),
    (dict(functions=[{"name": "f", "parameters": {}}]), openai.BadRequestError),
    (dict(extra_body={"guided_json": {"type": "object"}}), openai.BadRequestError),
]:
    try:
        client.chat.completions.create(**{**dict(model=model, messages=messages), **wrong})
    except kind as error:
        assert error.body["message"], error
    else:
        sys.exit(f"{wrong} was not refused")
