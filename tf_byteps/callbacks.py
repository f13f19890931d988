"""Keras callbacks for scripts without a strategy, under Horovod's names.

Under a `BytePSStrategy` none of them is needed: initial values are worker 0's and
metrics are the cluster's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tf_byteps import ops, runtime
from tf_byteps.errors import ArgumentError


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives all workers one worker's model and optimizer when training begins.

    Once before the first batch, if the model has its variables then, and once after
    it, when the optimizer has its own.
    """

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self.root_rank = root_rank
        self._done = False

    def on_train_begin(self, logs: Any = None) -> None:
        self._done = False
        if self.model.built:
            ops.broadcast_variables(self.model.variables, self.root_rank)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._done:
            return
        variables = list(self.model.variables)
        if self.model.optimizer is not None:
            variables += self.model.optimizer.variables
        ops.broadcast_variables(variables, self.root_rank)
        self._done = True


class MetricAverageCallback(keras.callbacks.Callback):
    """Averages an epoch's logs over the workers.

    Stands in the list before callbacks that look at them, such as
    `ReduceLROnPlateau` and `ModelCheckpoint`.
    """

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if not logs or not runtime.require("MetricAverageCallback").distributed:
            return
        names = sorted(logs)
        values = np.array([float(logs[name]) for name in names])
        averages = ops.push_pull(values, "tf_byteps/metric_average")
        logs.update(zip(names, map(float, averages), strict=True))


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Multiplies the initial learning rate by a factor that depends on the epoch."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """Describes the schedule.

        Args:
            initial_lr: The learning rate that is multiplied.
            multiplier: A factor, or a function of the epoch. Without `staircase` it
                is asked before each batch, for the epoch and its fraction.
            start_epoch: The first epoch in which the callback acts.
            end_epoch: The first in which it acts no longer; None: it acts on.
            staircase: Whether the rate changes between epochs only.
            momentum_correction: Kept for scripts that pass it: Keras 3 compiles the
                momentum into the step, where it cannot change.
            steps_per_epoch: None takes what `fit` knows.
        """
        super().__init__()
        if initial_lr is None:
            raise ArgumentError(
                f"{type(self).__name__}: initial_lr must be a number. Received: None"
            )
        del momentum_correction
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.steps_per_epoch = steps_per_epoch
        self._epoch = 0
        self._multiplier = multiplier if callable(multiplier) else lambda _: multiplier

    def on_train_begin(self, logs: Any = None) -> None:
        if self.steps_per_epoch is None:
            self.steps_per_epoch = self.params.get("steps")
        if not self.staircase and not self.steps_per_epoch:
            raise ArgumentError(
                f"{type(self).__name__}: steps_per_epoch must be given, since fit does "
                "not know it for this dataset. Received: None"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        after = self.end_epoch is not None and self._epoch >= self.end_epoch
        if self._epoch < self.start_epoch or after:
            return
        if not self.staircase:
            self._adjust(self._epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._adjust(self._epoch)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if logs is not None:
            logs["learning_rate"] = float(self.model.optimizer.learning_rate)

    def _adjust(self, epoch: float) -> None:
        self.model.optimizer.learning_rate = self.initial_lr * self._multiplier(epoch)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr`.

    As in Goyal et al., "Accurate, Large Minibatch SGD" (2017): a rate that was
    multiplied by the number of workers is reached over some epochs, batch by batch.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """Describes the warm-up.

        Args:
            initial_lr: The learning rate that is reached.
            warmup_epochs: The epochs that it takes.
            momentum_correction: See `LearningRateScheduleCallback`.
            steps_per_epoch: None takes what `fit` knows.
            verbose: 1 prints the rate when it is reached, on worker 0.
        """

        def multiplier(epoch: float) -> float:
            size = runtime.require(type(self).__name__).size
            # The end of an epoch's last batch is that of the epoch.
            epoch += 1 / self.steps_per_epoch
            return (epoch * (size - 1) / warmup_epochs + 1) / size

        super().__init__(
            initial_lr,
            multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        last = epoch == self.end_epoch - 1
        if self.verbose and last and runtime.require("rank").rank == 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: the learning rate has reached {rate:g}.")
