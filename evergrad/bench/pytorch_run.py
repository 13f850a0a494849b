"""PyTorch's LSTM by truncated backpropagation, in an environment of its own: `python pytorch_run.py FILE`, a round for every
line it reads.

FILE has the symbols to learn, in chunks of as many steps as the horizon, and the weights to start from, so that both sides
train the same network. The first line written holds the losses of the first chunk, each further one the seconds a step of a
round, all as JSON. It is what people write: nn.LSTM over a chunk, the state cut behind it, cross entropy, clipping of the
recurrent gradient, Adam (its `foreach` form, the fastest here), two threads.
"""

import json
import sys
import time

import numpy as np
import torch

THREADS = 2


def trainer(given):
    """A function that trains on chunk after chunk, and returns the losses of the last."""
    size, symbols = given["readout"].shape
    lstm, readout = torch.nn.LSTM(symbols, size), torch.nn.Linear(size, symbols)
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            parameter.copy_(torch.as_tensor(given[name]))
        readout.weight.copy_(torch.as_tensor(given["readout"].T))
        readout.bias.copy_(torch.as_tensor(given["bias"]))
    optimiser = torch.optim.Adam([*lstm.parameters(), *readout.parameters()], lr=float(given["rate"]), foreach=True)
    xs, ys = (torch.as_tensor(given[name], dtype=torch.int64) for name in ("xs", "ys"))
    inputs, state = torch.eye(symbols)[xs], None

    def train():
        nonlocal state
        for x, y in zip(inputs, ys, strict=True):
            hidden, state = lstm(x, state)
            state = tuple(a.detach() for a in state)
            losses = torch.nn.functional.cross_entropy(readout(hidden).flatten(0, 1), y.flatten(), reduction="none")
            optimiser.zero_grad(set_to_none=True)
            losses.mean().backward()
            torch.nn.utils.clip_grad_norm_(lstm.parameters(), 1.0)
            optimiser.step()
        return losses

    def first():
        with torch.no_grad():
            return torch.nn.functional.cross_entropy(readout(lstm(inputs[0, :1])[0])[0], ys[0, 0])

    return first, train, ys.shape[0] * ys.shape[1]


def main():
    torch.set_num_threads(THREADS)
    first, train, steps = trainer(np.load(sys.argv[1]))
    print(json.dumps([float(first())]), flush=True)
    train()
    for _ in sys.stdin:
        start = time.perf_counter()
        train()
        print(json.dumps((time.perf_counter() - start) / steps), flush=True)


if __name__ == "__main__":
    main()
