"""Loss scalers: the protocol, and one file for each family.

A scaler is a frozen dataclass. Its `update` takes what a step observed and gives the next scaler and a
decision. ``fs.scaling.names()`` lists the scalers of this package, ``fs.scaling.make(name)`` makes one, and
:class:`Scaler` says what one of your own needs. ``fs.fit`` uses them in its loop. In a loop of your own:

>>> import fp16sim as fs
>>> fs.manual_seed(0)
>>> model, inputs, labels = fs.nn.Linear(2, 2), fs.Tensor([[0.0, 1.0], [1.0, 0.0]]), [0, 1]
>>> optimizer, scaler = fs.optim.SGD(model.parameters(), lr=0.5), fs.scaling.make("torch", init_scale=2.0**20)
>>> for step in range(3):
...     with fs.autocast("mixed_float16"):
...         loss = fs.nn.CrossEntropyLoss()(model(inputs), labels)
...     model.zero_grad()
...     fs.scaling.scale_loss(scaler, loss).backward()
...     gradients = [parameter.grad for parameter in model.parameters()]
...     scaler, decision = scaler.update(fs.scaling.observe(scaler, gradients))
...     if decision.apply:
...         optimizer.step([fs.scaling.unscale(gradient, decision) for gradient in gradients])
...     print("moved" if decision.apply else "skipped", scaler.scale)
skipped 524288.0
skipped 262144.0
moved 262144.0
"""

from typing import TYPE_CHECKING, Any

from fp16sim.emulator.formats import no_such_name
from fp16sim.scaling.adaptive import AdaptiveScaler
from fp16sim.scaling.apex import ApexFp16UtilsScaler, ApexScaler
from fp16sim.scaling.chainer import ChainerScaler
from fp16sim.scaling.colossalai import ColossalAIScaler
from fp16sim.scaling.deepspeed import DeepSpeedScaler, DeepSpeedUnfusedScaler
from fp16sim.scaling.delayed import DelayedScaler
from fp16sim.scaling.fairseq import FairseqScaler, MetaseqScaler
from fp16sim.scaling.guided_diffusion import GuidedDiffusionScaler
from fp16sim.scaling.histories import PeakModel
from fp16sim.scaling.jax import FlaxScaler, JmpScaler
from fp16sim.scaling.keras3 import Keras3Scaler
from fp16sim.scaling.layerwise import FairscaleLayerwiseScaler
from fp16sim.scaling.megatron import MegatronScaler
from fp16sim.scaling.mindspore import MindSporeAmpScaler, MindSporeCellScaler, MindSporeManagerScaler
from fp16sim.scaling.mxnet import MxnetScaler
from fp16sim.scaling.none import NoScaler
from fp16sim.scaling.oneflow import OneflowScaler
from fp16sim.scaling.openseq2seq import OpenSeq2SeqBackoffScaler, OpenSeq2SeqLogMaxScaler
from fp16sim.scaling.paddle import PaddleScaler
from fp16sim.scaling.protocol import Decision, Observation, Scaler, observe, scale_loss, unscale
from fp16sim.scaling.registry import as_scaler, from_json, make, names, parse
from fp16sim.scaling.robust import RobustScaler
from fp16sim.scaling.simulate import simulate
from fp16sim.scaling.simulation import Simulation, Trace
from fp16sim.scaling.static import StaticScaler
from fp16sim.scaling.tensorflow import Keras2Scaler, TfV1Scaler
from fp16sim.scaling.tensors import Moments, Scales, TensorScaler, TensorStatistics, moments
from fp16sim.scaling.torch import TorchScaler
from fp16sim.scaling.torch_fsdp import TorchFsdpScaler
from fp16sim.scaling.unit import LayerFactors, UnitScaler, cross_entropy_scale

__all__ = [
    "AdaptiveScaler",
    "ApexFp16UtilsScaler",
    "ApexScaler",
    "ChainerScaler",
    "ColossalAIScaler",
    "Decision",
    "DeepSpeedScaler",
    "DeepSpeedUnfusedScaler",
    "DelayedScaler",
    "FairscaleLayerwiseScaler",
    "FairseqScaler",
    "FlaxScaler",
    "GuidedDiffusionScaler",
    "JmpScaler",
    "Keras2Scaler",
    "Keras3Scaler",
    "LayerFactors",
    "MegatronScaler",
    "MetaseqScaler",
    "MindSporeAmpScaler",
    "MindSporeCellScaler",
    "MindSporeManagerScaler",
    "Moments",
    "MxnetScaler",
    "NoScaler",
    "Observation",
    "OneflowScaler",
    "OpenSeq2SeqBackoffScaler",
    "OpenSeq2SeqLogMaxScaler",
    "PaddleScaler",
    "PeakModel",
    "RobustScaler",
    "Scaler",
    "Scales",
    "Simulation",
    "StaticScaler",
    "TensorScaler",
    "TensorStatistics",
    "TfV1Scaler",
    "TorchFsdpScaler",
    "TorchScaler",
    "Trace",
    "UnitScaler",
    "as_scaler",
    "cross_entropy_scale",
    "from_json",
    "make",
    "moments",
    "names",
    "observe",
    "parse",
    "scale_loss",
    "simulate",
    "unscale",
]

if not TYPE_CHECKING:  # for a type checker a name that is not there is an error

    def __getattr__(name: str) -> Any:
        raise AttributeError(no_such_name(__name__, name, __all__))
