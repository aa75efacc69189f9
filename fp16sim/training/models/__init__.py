"""Small versions of the networks that the field trains, one a file, each with its recipe.

===============  =======================================================  ===========================
file             network                                                  data
===============  =======================================================  ===========================
`perceptron.py`  fully connected layers                                   digits
`vgg.py`         convolutions and max pooling                             digits
`resnet.py`      residual blocks with batch normalisation                 digits
`gpt.py`         a causal transformer that predicts the next character    characters
`bert.py`        a transformer that fills in masked characters            characters
`gru.py`         a gated recurrent network in both directions             vowels
===============  =======================================================  ===========================

``fp16sim.training.recipes.RECIPES[name].build(seed)`` makes any of them. Each beside the perceptron is a module with a
function of its own name; they are imported when they are asked for.
"""

from fp16sim.training.models.perceptron import mlp

__all__ = ["mlp"]
