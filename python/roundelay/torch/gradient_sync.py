"""Keeps the gradients of one optimizer equal on all ranks.

Gradients are submitted from hooks while backward runs. At the end of the outermost backward, and in step()
where something is still open, the ranks *compare notes*: one small allreduce says how often each gradient
was submitted by the rank that did so most and least. It is submitted with the last gradients, so it costs
no round of its own. A rank that lacks a gradient which others have contributes ``.grad`` as it stands, or
zeros; a gradient that nobody has stays as it is. So everything that was submitted is complete when
backward() returns, on every rank.

step() compares notes only while there is a gradient that no rank has submitted since the last step (an
unused layer, a second loss still to come), until all ranks are in step(). Ranks may therefore call
backward() a different number of times as long as each such call brings gradients that the step did not have
yet.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch
from torch.utils.hooks import unserializable_hook

from roundelay import _core
from roundelay.torch.backward_end import backward_end
from roundelay.torch.gradient import Gradient, Holds, Reduction
from roundelay.torch.measure import Span
from roundelay.torch.operations import Max

_owners: weakref.WeakValueDictionary[int, Gradient] = weakref.WeakValueDictionary()


class GradientSync:
    """Hooks on the parameters of one optimizer, and the state of their gradients since its last step."""

    def __init__(self, scope: int, reduction: Reduction, passes_per_step: int) -> None:
        self.scope = scope
        self.passes_per_step = passes_per_step
        self._prefix = "gradient" if scope == 0 else f"gradient{scope}"
        self._reduction = reduction
        self._gradients: dict[int, Gradient] = {}  # by id(parameter), in the order of the parameter groups
        self._frozen = 0
        self._rounds = 0
        self._round: tuple[int, torch.Tensor, list[int]] | None = None
        self._seen: list[bool] = []
        self._wanted: list[bool] = []
        self._all_final = False

    # -- parameters

    def add(self, parameters: Iterable[tuple[str, torch.Tensor]], after_backward: bool = False) -> None:
        """Takes over parameters that it does not have yet, and hooks those that were frozen until now.

        after_backward: a gradient that they have came from a backward that no hook saw.

        A parameter of two optimizers belongs to the one that was wrapped last: its gradient is reduced once.
        """
        for name, parameter in parameters:
            gradient = self._gradients.get(id(parameter))
            if gradient is None or gradient.parameter is not parameter:
                gradient = Gradient(parameter, f"{self._prefix}.{name}", self._reduction)
                previous = _owners.get(id(parameter))
                if previous is not None:
                    previous.release()
                self._gradients[id(parameter)] = _owners[id(parameter)] = gradient
            if not gradient.hooks and parameter.requires_grad and _owners.get(id(parameter)) is gradient:
                self._hook(parameter, gradient)
                gradient.accumulated = int(after_backward)
        self._frozen = sum(not gradient.hooks for gradient in self._gradients.values())

    def covers(self, number: int) -> bool:
        """Whether it has ``number`` parameters, all of them hooked."""
        return self._frozen == 0 and len(self._gradients) == number

    def _hook(self, parameter: torch.Tensor, gradient: Gradient) -> None:
        sync = weakref.ref(self)

        def before(_: torch.Tensor) -> None:
            if gradient.holds is not Holds.LOCAL:
                gradient.make_room()

        def after(_: torch.Tensor) -> None:
            owner = sync()
            if owner is not None:
                owner._arrived(gradient)

        unserializable_hook(before)  # so that pickling the parameter does not warn
        gradient.hooks.append(parameter.register_hook(before))
        gradient.hooks.append(parameter.register_post_accumulate_grad_hook(after))

    def close(self) -> None:
        """Takes all hooks off."""
        for gradient in self._gradients.values():
            gradient.release()

    # -- one step

    def _arrived(self, gradient: Gradient) -> None:
        gradient.accumulated += 1
        if gradient.accumulated >= self.passes_per_step:
            backward_end.note(self)
            gradient.submit()

    def outstanding(self) -> bool:
        """Whether gradients are in flight: only after a backward that raised."""
        return any(gradient.flights for gradient in self._gradients.values())

    def has_submitted(self) -> bool:
        """Whether there is something to compare notes about."""
        return any(gradient.submitted for gradient in self._gradients.values())

    def synchronize(self) -> None:
        """Completes everything for this step: gradients not submitted yet, and those of other ranks."""
        untouched = self._rounds == 0
        for gradient in self._gradients.values():
            parameter = gradient.parameter
            if parameter is None or parameter.grad is None or gradient.holds is not Holds.LOCAL:
                continue
            # Accumulated but not submitted, or made without backward().
            if (gradient.accumulated or untouched) and _wants(gradient):
                gradient.submit()
        while self._open():
            self.begin_round(final=True)
            self.end_round()

    def _open(self) -> bool:
        if self.has_submitted():
            return True
        complete = self._rounds > 0 and all(
            seen or not wanted for seen, wanted in zip(self._seen, self._wanted, strict=True)
        )
        return not (complete or self._all_final)

    def new_step(self) -> None:
        """After optimizer.step()."""
        for gradient in self._gradients.values():
            gradient.new_step()
        self._rounds = 0
        self._all_final = False

    # -- comparing notes

    def begin_round(self, final: bool) -> None:
        """Submits this rank's notes; does not wait."""
        gradients = list(self._gradients.values())
        if self._rounds == 0:
            self._seen = [False] * len(gradients)
        counts = [min(gradient.submitted, 255) for gradient in gradients]
        notes = torch.tensor(
            [0 if final else 1, *counts, *(255 - count for count in counts), *map(_wants, gradients)],
            dtype=torch.uint8,
        )
        for gradient in gradients:
            gradient.submitted = 0
        self._rounds += 1
        name = f"{self._prefix}.notes{self._rounds}"
        self._round = (_core.allreduce_async(notes, notes, name, Max, 1.0, 1.0, 0), notes, counts)
        _core.flush()

    def end_round(self) -> None:
        """Contributes what this rank lacks, and sleeps until all that was submitted is complete."""
        assert self._round is not None
        (handle, notes, counts), self._round = self._round, None
        span = Span("synchronize", "exposed_ns")
        gradients = list(self._gradients.values())
        number = len(gradients)
        try:
            _core.synchronize(handle)
            values: list[int] = notes.tolist()
            most, wanted = values[1 : 1 + number], values[1 + 2 * number :]
            self._all_final = values[0] == 0
            self._wanted = [bool(value) for value in wanted]
            self._seen = [seen or count > 0 for seen, count in zip(self._pad(number), most, strict=True)]
            self._contribute(gradients, most, counts)
            self._finish(gradients)
        finally:
            span.end()

    def _pad(self, number: int) -> list[bool]:
        return self._seen + [False] * (number - len(self._seen))

    def _contribute(self, gradients: list[Gradient], most: list[int], counts: list[int]) -> None:
        lacking = False
        for gradient, others, own in zip(gradients, most, counts, strict=True):
            for _ in range(others - own):
                gradient.submit_missing()
                gradient.submitted -= 1  # all ranks know of it
                lacking = True
        if lacking:
            _core.flush()

    def _finish(self, gradients: list[Gradient]) -> None:
        try:
            with torch.no_grad():
                for gradient in gradients:
                    if gradient.flights:
                        gradient.finish()
        except BaseException:
            for gradient in gradients:
                gradient.abandon()
            self.new_step()
            raise


def _wants(gradient: Gradient) -> bool:
    parameter = gradient.parameter
    return parameter is not None and parameter.requires_grad and _owners.get(id(parameter)) is gradient
