"""How tensors are made smaller for their way, as `compression=` of push_pull.

A compressor has two functions, as Horovod's and BytePS's have:
`compress(tensor) -> (smaller, context)` and `decompress(combined, context)`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_byteps.errors import ArgumentError


class NoneCompressor:
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, context: Any) -> tf.Tensor:
        del context
        return tensor


class _Half(NoneCompressor):
    """Sends float32 and float64 in half the bytes or fewer; servers sum in float32."""

    dtype: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        if tensor.dtype not in (tf.float32, tf.float64):
            return tensor, None
        return tf.cast(tensor, cls.dtype), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, context: Any) -> tf.Tensor:
        return tensor if context is None else tf.cast(tensor, context)


class FP16Compressor(_Half):
    """Sends float16: 11 bits of precision, values up to 65504."""

    dtype = tf.float16


class BF16Compressor(_Half):
    """Sends bfloat16: 8 bits of precision, the range of float32."""

    dtype = tf.bfloat16


class Compression:
    """The compressors there are."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def checked(compression: Any) -> Any:
    """A compressor; None is `Compression.none`.

    Raises:
        ArgumentError: it is none.
    """
    if compression is None:
        return NoneCompressor
    if callable(getattr(compression, "compress", None)) and callable(
        getattr(compression, "decompress", None)
    ):
        return compression
    raise ArgumentError(
        "compression must be None, tf_byteps.Compression.none, .fp16 or .bf16, or have "
        f"functions compress and decompress. Received: {compression!r}"
    )
