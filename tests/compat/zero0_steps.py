"""Two steps of DeepSpeed's ZeRO-0 in bf16, each with the gradient -1: prints the weight after each as JSON."""

import json

import deepspeed
import torch

deepspeed.init_distributed("gloo")
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
    config={
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 0},
    },
)
weights = []
for _ in range(2):
    engine.backward(-engine(torch.ones(1, 1, dtype=torch.bfloat16)).sum())
    engine.step()
    weights.append(model.weight.item())
print(json.dumps(weights))
