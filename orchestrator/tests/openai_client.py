"""Speak to `coharness serve-model` through the public openai client: openai_client.py BASE_URL."""
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
[model] = [model.id for model in client.models.list()]
messages = [{"role": "user", "content": "What is 7 + 5?"}]

plain = client.chat.completions.create(
    model=model, messages=messages, max_tokens=12, temperature=0, logprobs=True, extra_body={"ignore_eos": True})
choice = plain.choices[0]
assert choice.finish_reason == "length" and plain.usage.completion_tokens == 12, plain
assert len(choice.logprobs.content) == 12 and all(entry.logprob < 0 for entry in choice.logprobs.content), choice

stream = client.chat.completions.create(
    model=model, messages=messages, max_tokens=12, temperature=0, stream=True,
    stream_options={"include_usage": True}, extra_body={"ignore_eos": True})
chunks = list(stream)
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == choice.message.content, (text, choice.message.content)
assert chunks[-1].usage.completion_tokens == 12, chunks[-1]

tools = [{"type": "function", "function": {"name": "python", "description": "Runs code.", "parameters": {
    "type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}}}]
called = client.chat.completions.create(model=model, messages=messages, max_tokens=12, tools=tools)
assert called.choices[0].message.role == "assistant", called

several = client.chat.completions.create(model=model, messages=messages, max_tokens=4, n=2, seed=3, stop=["\n"])
assert [choice.index for choice in several.choices] == [0, 1], several

for wrong, kind in [
    (dict(max_tokens=100_000), openai.BadRequestError),
    (dict(model="nothing"), openai.NotFoundError),
    (dict(temperature=-1), openai.BadRequestError),
]:
    try:
        client.chat.completions.create(**{**dict(model=model, messages=messages), **wrong})
    except kind as error:
        assert error.body["message"], error
    else:
        sys.exit(f"{wrong} was not refused")
