"""What a mask does to the data: `Samples` packs rows, `Inputs` multiplies columns.

A choice is a value, a pytree that travels with the data into compiled functions. What depends on it
asks it five things; everything else is the same for samples and for inputs.

    levels                             numbers of training rows that programs are compiled for
    pack(masks [M, n])                 each mask's own arrays, the masks really used, rows needed
    cut(own, rows)                     the same arrays for that many rows
    training_data(own, x, y)           what a network is trained on
    show(own, x)                       other inputs as such a network sees them
    path_gradient(own, x, ...)         dL/dm from the differentiated last steps of training
"""

from pbcs_jax.choices.inputs import Inputs
from pbcs_jax.choices.samples import Samples

Choice = Samples | Inputs

__all__ = ["Choice", "Inputs", "Samples"]
