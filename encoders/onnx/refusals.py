"""Why an operator cannot be read, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable

_TREES = "trees are step functions, and networks are what is verified here; train a network (MLPClassifier, say)"
_RECURRENT = "a recurrent network is not one chain of layers; unroll it, or use a feed-forward network"
_CURVED = "it is neither piecewise linear nor a curve that is bounded here; train with ReLU, LeakyReLU or HardSigmoid instead"
_JUMPS = "it jumps, and a network of continuous layers has no jumps; leave it out, or export the model behind it"
_QUADRATIC = "it multiplies the data with itself; train with ReLU or HardSigmoid instead"
_WHY = {
    "TreeEnsembleClassifier": _TREES, "TreeEnsembleRegressor": _TREES, "TreeEnsemble": _TREES,
    "SVMClassifier": "kernels are not piecewise linear; use a linear model or a network",
    "SVMRegressor": "kernels are not piecewise linear; use a linear model or a network",
    "LSTM": _RECURRENT, "GRU": _RECURRENT, "RNN": _RECURRENT, "Loop": _RECURRENT, "Scan": _RECURRENT,
    "If": "branches of a graph are not followed; export the model for inference, without control flow",
    "HardSwish": _QUADRATIC, "Attention": _QUADRATIC, "Erf": _CURVED, "Gelu": _CURVED, "Elu": _CURVED, "Selu": _CURVED,
    "Celu": _CURVED, "Softplus": _CURVED, "Softsign": _CURVED, "Mish": _CURVED, "Exp": _CURVED, "Log": _CURVED, "Sqrt": _CURVED,
    "Pow": _CURVED, "Reciprocal": _CURVED,
    "ThresholdedRelu": _JUMPS, "Binarizer": _JUMPS, "Floor": _JUMPS, "Ceil": _JUMPS, "Round": _JUMPS, "Sign": _JUMPS,
    "ArgMax": _JUMPS, "ArgMin": _JUMPS, "TopK": _JUMPS, "Greater": _JUMPS, "Less": _JUMPS, "Where": _JUMPS, "Equal": _JUMPS,
    "Softmax": "it is supported only at the end, as the model's probabilities; attention and voting classifiers have it in the "
               "middle: read the tensor in front of it with output=...",
    "LogSoftmax": "it is supported only at the end, as the model's probabilities",
    "Normalizer": "it divides each row by its own norm, which is not piecewise linear; use StandardScaler or MinMaxScaler",
    "LayerNormalization": "it divides each row by its own deviation, which is not piecewise linear; use BatchNormalization",
    "InstanceNormalization": "it divides each row by its own deviation, which is not piecewise linear; use BatchNormalization",
    "LpNormalization": "it divides each row by its own norm, which is not piecewise linear; leave it out",
    "Imputer": "it replaces missing values, and proofs are about rows without any; fill them in before the model",
    "SimpleImputer": "it replaces missing values, and proofs are about rows without any; fill them in before the model",
    "ConvTranspose": "upsampling is not read; networks that decide on rows or small images need none",
}


def refusal(op: str, supported: Iterable[str]) -> str:
    """What is wrong with an operator that is not among the supported ones."""
    why = f" ({_WHY[op]})" if op in _WHY else ""
    return (f"operator {op} is not supported here{why}; supported are {', '.join(sorted(supported))}; at the end Sigmoid, Softmax, "
            "LogSoftmax")
