"""What transformers makes of an exported directory: transformers_greedy.py REQUEST, a JSON file with `model`,
`prompts` (lists of token ids), `count` and `text`.

Prints a JSON object: `replies`, for each prompt the next `count` ids with `gaps`, the distance between the two
largest logits at each, in f32; and `ids`, the text as the directory's tokenizer reads it.
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

with open(sys.argv[1]) as file:
    request = json.load(file)
model = AutoModelForCausalLM.from_pretrained(request["model"], dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(request["model"])


def continued(prompt):
    ids, gaps = list(prompt), []
    for _ in range(request["count"]):
        with torch.no_grad():
            best = model(input_ids=torch.tensor([ids])).logits[0, -1].float().topk(2)
        ids.append(best.indices[0].item())
        gaps.append((best.values[0] - best.values[1]).item())
    return {"next": ids[len(prompt):], "gaps": gaps}


print(json.dumps({
    "replies": [continued(prompt) for prompt in request["prompts"]],
    "ids": tokenizer(request["text"], add_special_tokens=False)["input_ids"],
}))
