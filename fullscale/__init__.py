"""A JAX PPO trainer that measures its own outer loop. Import the modules by name."""
