"""optax by name, for both loops: the optimisers that a config file can name."""

import optax

from pbcs_jax.errors import check_known, check_number

OPTIMIZERS = ("sgd", "adam", "normalized_sgd")
SCHEDULES = ("cosine", "constant")


def create(
    optimizer: str | optax.GradientTransformation,
    learning_rate: float,
    steps: int,
    *,
    schedule: str = "cosine",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    clip_norm: float = 0.0,
) -> optax.GradientTransformation:
    """An optimiser for `steps` steps; a ready-made optax one is given back as it is.

    Args:
      optimizer: 'sgd' (with `momentum`), 'adam' (AdamW when `weight_decay` > 0), 'normalized_sgd'
        ('sgd' with the gradient over its norm), or any optax optimiser.
      learning_rate: at the start.
      steps: over which 'cosine' falls to 0.
      schedule: 'cosine' or 'constant'.
      momentum: of 'sgd'.
      weight_decay: added to the gradient for 'sgd', decoupled for 'adam'.
      clip_norm: the gradient's norm is clipped at this; 0 does not clip.
    """
    if isinstance(optimizer, optax.GradientTransformation):
        return optimizer
    check_known("optimizer", optimizer, OPTIMIZERS, ", or an optax optimiser")
    check_known("schedule", schedule, SCHEDULES)
    check_number("learning_rate", learning_rate, least=0, above=True)
    check_number("clip_norm", clip_norm, least=0)
    rate = learning_rate
    if schedule == "cosine":
        rate = optax.schedules.cosine_decay_schedule(learning_rate, max(steps, 1))
    parts = [optax.clip_by_global_norm(clip_norm)] if clip_norm > 0 else []
    if optimizer == "adam":
        # eps_root: path gradients go through the square root of Adam's second moment, which may be
        # 0.
        parts.append(optax.adamw(rate, eps_root=1e-16, weight_decay=weight_decay))
    else:
        if optimizer == "normalized_sgd":
            parts.append(optax.normalize_by_update_norm())
        if weight_decay > 0:
            parts.append(optax.add_decayed_weights(weight_decay))
        parts.append(optax.sgd(rate, momentum=momentum or None))
    return optax.chain(*parts)
