"""The buckets of one optimizer, and the technique that each of them has."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from roundelay._internal.spelling.techniques import for_users
from roundelay.torch._internal.gradients.pool import PoolBucket
from roundelay.torch._internal.operations import LINEAR_OPS
from roundelay.torch._internal.strategy import bucket as views
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.strategy.strategy import Strategy

Traffic = list[tuple[str, int, int, int]]  # a technique's text, operations, bytes of gradients, bytes sent


class BucketTechniques:
    """Asks the strategy for each bucket's technique, and gives it to the bucket.

    prefix: that of the optimizer's names. A strategy that chooses no techniques costs no call for a bucket.
    """

    def __init__(self, strategy: Strategy, op: int, prefix: str) -> None:
        self._strategy = strategy
        self._op = op
        self.prefix = prefix
        self.chooses = "technique" in strategy.overrides  # False: every bucket is dense
        self.buckets: Sequence[PoolBucket] = ()
        self._views: list[views.Bucket] = []  # the buckets as the strategy sees them
        self._texts: list[str | None] = []  # the techniques that they have
        self._keeps: list[bool] = []  # True: the technique has state
        self._files: dict[str, str] = {}  # the user's texts of libraries' techniques, by the core's

    def use(self, buckets: Sequence[PoolBucket]) -> None:
        """Begins to use new buckets, without techniques; the last ones are not used any more."""
        self.buckets = buckets
        self._views = [self._view(*each) for each in enumerate(buckets)] if self.chooses else []
        self._texts, self._keeps = [None] * len(buckets), [False] * len(buckets)
        if self.chooses and buckets:
            self._strategy.use_buckets(self._views)

    def by_name(self) -> dict[str, PoolBucket]:
        """Returns the buckets by their names, without the prefix."""
        return {self.short(bucket.core.name): bucket for bucket in self.buckets}

    def short(self, name: str) -> str:
        """Returns a name of the optimizer's without the prefix."""
        return name.removeprefix(f"{self.prefix}.")

    def choose(self, step: int, may_leave: bool) -> bool:
        """Asks the strategy about each bucket. Returns whether all buckets have what it has chosen.

        may_leave: no rank keeps anything back. Otherwise all buckets stay as they are if one is to leave a
        technique with state: that one must be flushed first.
        """
        if not self.chooses:
            return True
        texts = [self._answer(view, step) for view in self._views]
        changed = [number for number, text in enumerate(texts) if text != self._texts[number]]
        if not may_leave and any(self._keeps[number] for number in changed):
            return False
        for number in changed:
            core = self.buckets[number].core
            core.set_technique(texts[number])
            self._texts[number], self._keeps[number] = texts[number], core.state is not None
        self._strategy.techniques_chosen(step)
        return True

    def _answer(self, bucket: views.Bucket, step: int) -> str | None:
        spec = self._strategy.technique(bucket, step)
        if spec is None:
            return None
        if not isinstance(spec, Spec):
            raise ValueError(f"strategy {self._strategy.text} chose {spec!r}, which is no Spec")
        if self._op not in LINEAR_OPS:
            raise ValueError(
                f"strategy {self._strategy.text} chose technique {spec.text}, which needs op=hvd.Average or "
                "op=hvd.Sum"
            )
        if spec.of_library:
            self._files[spec.core] = spec.text
        return None if spec.core == "dense" else spec.core

    def for_users(self, technique: str) -> str:
        """Returns the text that a user writes for a technique; a library has its file there."""
        return self._files.get(technique) or for_users(technique)

    def refresh(self) -> None:
        """Takes note of the techniques and states that the buckets have got from a checkpoint."""
        self._texts = [bucket.core.technique for bucket in self.buckets]
        self._keeps = [bucket.core.state is not None for bucket in self.buckets]

    @property
    def stateful(self) -> bool:
        """True if techniques may keep gradients back. Alike on all ranks."""
        return any(self._keeps)

    def keeps_something(self) -> bool:
        """Returns whether this rank's buckets keep gradients back."""
        return any(bucket.core.unflushed for bucket in self.buckets)

    def flush_next(self, names: Collection[str] | None = None) -> None:
        """Makes the next submission of each bucket that may keep gradients back a flush.

        names: of buckets that have one of these parameters, without the prefix; None: of all.
        """
        every = zip(self.buckets, self._views, self._keeps, strict=True) if self.stateful else ()
        for bucket, view, keeps in every:
            if keeps and (names is None or any(name in names for name in view.parameters)):
                bucket.core.flush_next()

    def rescale(self, factor: float) -> None:
        """Multiplies gradients that are kept back."""
        for bucket, keeps in zip(self.buckets, self._keeps, strict=True):
            if keeps:
                bucket.core.rescale(factor)

    def sent(self) -> list[views.Sent]:
        """Returns the buckets that have a technique, and the part of them that this step has sent."""
        every = zip(self.buckets, self._views, self._texts, self._keeps, strict=True) if self.chooses else ()
        return [
            _sent(bucket, view, keeps) for bucket, view, technique, keeps in every if technique is not None
        ]

    def traffic(self) -> list[tuple[views.Bucket, Traffic]]:
        """Returns each bucket's traffic by technique, since the bucket was made."""
        return [(self._view(n, bucket), bucket.core.traffic) for n, bucket in enumerate(self.buckets)]

    def _view(self, number: int, bucket: PoolBucket) -> views.Bucket:
        names = tuple(self.short(gradient.name) for gradient in bucket.members)
        pool = bucket.pool
        return views.Bucket(
            number,
            self.short(bucket.core.name),
            bucket.core.bytes,
            pool.dtype,
            pool.device,
            names,
            pool.index,
            bucket.ranges(),
            tuple(views.shape_in_pool(gradient.core.parameter) for gradient in bucket.members),
        )


def _sent(bucket: PoolBucket, view: views.Bucket, keeps: bool) -> views.Sent:
    """Returns what the step's only operation in the pool has sent. keeps: the technique has a state."""
    parameters = tuple(one.core.parameter for one in bucket.members)
    sent = bucket.core.sent()
    part = None if sent is None else views.Part(*sent)
    return views.Sent(view, parameters, part, keeps and bucket.core.applied)
