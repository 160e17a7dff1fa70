"""rejax's PPO on Reacher, timed on request; it runs in an environment of its own.

rejax needs gymnax < 1 and therefore an older JAX:
`pip install jax==0.4.38 gymnax==0.0.8 rejax "flax<0.11" "optax<0.2.5"`.
`against_rejax` starts this file, which imports nothing of ours, with the settings as
JSON in its only argument. It says "ready", then answers every line with the seconds
that `updates` updates took.
"""

import json
import sys
import time

import jax
from rejax import PPO


def main() -> None:
    """Compile, then time as often as asked."""
    want = json.loads(sys.argv[1])
    rows = want["num_envs"] * want["rollout_length"]
    algorithm = PPO.create(
        env="Reacher-misc",
        agent_kwargs={
            "activation": want["activation"],
            "hidden_layer_sizes": tuple(want["hidden_sizes"]),
        },
        num_envs=want["num_envs"],
        num_steps=want["rollout_length"],
        num_minibatches=rows // want["minibatch_size"],
        num_epochs=want["update_epochs"],
        learning_rate=want["learning_rate"],
        gamma=want["discount"],
        gae_lambda=want["gae_lambda"],
        clip_eps=want["clip_epsilon"],
        ent_coef=want["entropy_coefficient"],
        max_grad_norm=want["max_grad_norm"],
    )

    @jax.jit
    def run(state: object) -> object:
        return jax.lax.fori_loop(
            0, want["updates"], lambda _, s: algorithm.train_iteration(s), state
        )

    state = algorithm.init_state(jax.random.PRNGKey(0))
    state = jax.block_until_ready(run(state))
    say("ready")
    for _ in sys.stdin:
        start = time.perf_counter()
        state = jax.block_until_ready(run(state))
        say(str(time.perf_counter() - start))


def say(text: str) -> None:
    """A line on stdout, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
