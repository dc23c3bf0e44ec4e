"""Your own objective in the library's outer loop: a scikit-learn estimator, called from Python.

    python examples/black_box.py

The policy gradient needs losses, no derivatives: whatever maps masks to losses will do. Here each
mask chooses columns of a table, and is judged by the cross-validated error of a random forest.
"""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

import pbcs_jax as pbcs

SIZE = 3


def make_objective(x: np.ndarray, y: np.ndarray):
    """`evaluate(key, masks [M, n]) -> Evaluation`, whose work is done outside of JAX."""

    def errors(masks: np.ndarray) -> np.ndarray:
        forest = RandomForestClassifier(20, max_depth=4, random_state=0)
        found = []
        for mask in np.asarray(masks, bool):
            # No column at all is the worst choice, not a crash.
            right = cross_val_score(forest, x[:, mask], y, cv=3).mean() if mask.any() else 0.0
            found.append(1 - right)
        return np.array(found, np.float32)

    def evaluate(key: jax.Array, masks: jax.Array) -> pbcs.Evaluation:
        shape = jax.ShapeDtypeStruct((masks.shape[0],), jnp.float32)
        losses = jax.pure_callback(errors, shape, masks)
        return pbcs.Evaluation(losses, jnp.isfinite(losses))

    return evaluate


def main() -> np.ndarray:
    """Chooses columns of the wine table, and prints their error."""
    x, y = load_wine(return_X_y=True)
    evaluate = make_objective(x, y)
    settings = pbcs.Settings(num_masks=8, outer_steps=30, learning_rate=0.1)
    state = pbcs.init(jax.random.key(0), x.shape[1], SIZE, settings)
    state, history = pbcs.run(state, evaluate, settings)
    chosen = pbcs.draw_coreset(jax.random.key(1), state.probabilities, SIZE)
    masks = np.zeros((1, x.shape[1]), np.float32)
    masks[0, chosen] = 1
    error = evaluate(jax.random.key(2), jnp.asarray(masks)).losses[0]
    print(f"mean error of {SIZE} random columns: {history['outer_loss'][0]:.3f}")
    print(f"columns {chosen.tolist()}: {error:.3f}")
    return chosen


if __name__ == "__main__":
    main()
