"""What PEFT makes of an adapter: peft_logits.py REQUEST, a JSON file with `base`, `adapter` and `tokens`.

Prints a JSON object: `plain` and `adapted`, for each token the logits behind it, in f32.
"""
import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

with open(sys.argv[1]) as file:
    request = json.load(file)
tokens = torch.tensor([request["tokens"]])


def logits(model):
    with torch.no_grad():
        return model(input_ids=tokens).logits[0].float().tolist()


model = AutoModelForCausalLM.from_pretrained(request["base"], dtype=torch.float32).eval()
plain = logits(model)
adapted = logits(PeftModel.from_pretrained(model, request["adapter"]).eval())
print(json.dumps({"plain": plain, "adapted": adapted}))
