"""What `import fp16sim` offers, for type checkers and editors; `__init__.py` hands it on lazily."""

from fp16sim import (
    autograd as autograd,
    emulator as emulator,
    nn as nn,
    optim as optim,
    recording as recording,
    report as report,
    scaling as scaling,
    testing as testing,
    training as training,
)
from fp16sim.autograd.checkpoint import (
    checkpoint as checkpoint,
)
from fp16sim.autograd.gradcheck import (
    gradcheck as gradcheck,
)
from fp16sim.autograd.policy import (
    Policy as Policy,
    autocast as autocast,
)
from fp16sim.autograd.tensor import (
    Tensor as Tensor,
    no_grad as no_grad,
)
from fp16sim.emulator.arithmetic import (
    add as add,
    divide as divide,
    fma as fma,
    ieee_remainder as ieee_remainder,
    ldexp as ldexp,
    logb as logb,
    maximum as maximum,
    minimum as minimum,
    multiply as multiply,
    nextafter as nextafter,
    rint as rint,
    round_to as round_to,
    subtract as subtract,
)
from fp16sim.emulator.backends import (
    use_backend as use_backend,
)
from fp16sim.emulator.backends.threads import (
    set_threads as set_threads,
)
from fp16sim.emulator.comparisons import (
    equal as equal,
    greater as greater,
    greater_equal as greater_equal,
    less as less,
    less_equal as less_equal,
    not_equal as not_equal,
    to_integer as to_integer,
)
from fp16sim.emulator.convolution import (
    conv1d as conv1d,
    conv1d_input as conv1d_input,
    conv1d_weight as conv1d_weight,
    conv2d as conv2d,
    conv2d_input as conv2d_input,
    conv2d_weight as conv2d_weight,
    conv3d as conv3d,
    conv3d_input as conv3d_input,
    conv3d_weight as conv3d_weight,
)
from fp16sim.emulator.datapath import (
    Datapath as Datapath,
)
from fp16sim.emulator.describe import (
    Description as Description,
    describe as describe,
)
from fp16sim.emulator.dot_explanation import (
    explain as explain,
)
from fp16sim.emulator.events import (
    Events as Events,
    count_events as count_events,
    scope as scope,
)
from fp16sim.emulator.formats import (
    Format as Format,
    as_format as as_format,
    bfloat16 as bfloat16,
    binary16 as binary16,
    binary32 as binary32,
    e4m3 as e4m3,
    e5m2 as e5m2,
    tf32 as tf32,
)
from fp16sim.emulator.functions import (
    atan as atan,
    cbrt as cbrt,
    cos as cos,
    cosh as cosh,
    erf as erf,
    exp as exp,
    exp2 as exp2,
    expm1 as expm1,
    gelu as gelu,
    log as log,
    log1p as log1p,
    log2 as log2,
    log10 as log10,
    reciprocal as reciprocal,
    rsqrt as rsqrt,
    sigmoid as sigmoid,
    silu as silu,
    sin as sin,
    sinh as sinh,
    softplus as softplus,
    sqrt as sqrt,
    square as square,
    tan as tan,
    tanh as tanh,
)
from fp16sim.emulator.matmul import (
    dot as dot,
    matmul as matmul,
)
from fp16sim.emulator.reductions import (
    cumsum as cumsum,
    index_sum as index_sum,
    mean as mean,
    norm as norm,
    softmax as softmax,
    sum as sum,
)
from fp16sim.emulator.rounding import (
    Rounding as Rounding,
)
from fp16sim.nn.random import (
    manual_seed as manual_seed,
)
from fp16sim.training.fit import (
    fit as fit,
    fit_steps as fit_steps,
)

__version__: str
